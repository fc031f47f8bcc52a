"""Translate regular expressions of Python to the few forms that the C runtime understands, which tier.h lists."""

from __future__ import annotations

import re
from collections.abc import Sequence

SIGNS = "\\()|[]#*%^$&<>"
"""The characters that mean something in a pattern of C."""
ESCAPED = {"b": "%", "d": "#", "s": " "}
TOKEN = re.compile(
    r"""\(\?<!(?P<behind>[\w ]+)\) | (?P<follows>\(\?=\\w\)) | (?P<open>\((?:\?:)?) | (?P<close>\)) | (?P<any>\.\*)
    | \[(?P<members>[\w-]+)\] | (?P<optional>\?) | \{(?P<least>\d)(?:,(?P<most>\d))?\} | \\(?P<escaped>.)
    | (?P<sign>[|^$]) | (?P<letter>[^][.*+?{}])""",
    re.VERBOSE,
)


def c_pattern(text: str, ignores_case: bool) -> str:
    """Return the same pattern for C. One that ignores case is for texts in lower case; white space is one space there.
    Raises ValueError for what C does not understand."""
    groups: list[list[str]] = [[]]  # of open parentheses, what they hold so far
    place = 0
    while place < len(text):
        token = TOKEN.match(text, place)
        if token is None or not _add(groups, token, ignores_case):
            raise ValueError(f"C has no form for {text[place:]!r} of the pattern {text!r}")
        place = token.end()
    return _group(groups[0]) if "|" in groups[0] else "".join(groups[0])


def _add(groups: list[list[str]], token: re.Match[str], ignores_case: bool) -> bool:
    """Add a token to the innermost group; return whether C has a form for it."""
    kind, atoms = token.lastgroup, groups[-1]
    if kind == "open":
        groups.append([])
    elif kind == "close":
        groups.pop()
        groups[-1].append(_group(atoms))
    elif kind in ("optional", "least", "most"):
        least, most = (0, 1) if kind == "optional" else (int(token["least"]), int(token["most"] or token["least"]))
        if not atoms:
            return False
        atoms.append(_repeated(atoms.pop(), least, most))
    else:
        found = _plain(kind, token, ignores_case)
        atoms.append(found)
        return bool(found)
    return True


def _plain(kind: str | None, token: re.Match[str], ignores_case: bool) -> str:
    """Return the form of what stands for characters or a place between them; empty if there is none."""
    said = token[kind or 0].lower() if ignores_case and kind != "escaped" else token[kind or 0]
    if kind == "behind":
        return f"<{said}>"
    if kind == "members":
        return f"[{re.sub('(.)-(.)', lambda found: _between(*found.groups()), said)}]"
    if kind == "escaped":
        return ESCAPED.get(said, "") if said.isalnum() else f"\\{said}"
    if kind == "letter":
        return f"\\{said}" if said in SIGNS else said
    return {"any": "*", "follows": "&"}.get(kind or "", said)


def _between(first: str, last: str) -> str:
    return "".join(map(chr, range(ord(first), ord(last) + 1)))


def _repeated(atom: str, least: int, most: int) -> str:
    optional = ""
    for _ in range(most - least):
        optional = f"({atom}{optional}|)"
    return atom * least + optional


def _group(atoms: Sequence[str]) -> str:
    return f"({''.join(atoms)})"

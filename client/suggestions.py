"""Suggest names in place of an unknown name: the name that is most like it, or else the names that exist."""

import difflib
from collections.abc import Iterable

SHARE = 0.6
"""By how much a name must be like another at least: twice the characters in common over all characters of both."""
MOST_SHOWN = 12


def near(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like this one; empty where none is like it. What all options begin with is no
    likeness."""
    bare = {each.lstrip("-"): each for each in known}
    found = difflib.get_close_matches(name.lstrip("-")[:80], bare, 1, SHARE)
    return bare[found[0]] if found else ""


def instead(name: str, known: Iterable[str], what: str = "there are") -> str:
    """Return the end of a message about a name that is not known: "did you mean 'x'?", or the known ones after
    `what`."""
    names = list(dict.fromkeys(known))
    if similar := near(name, names):
        return f"did you mean {similar!r}?"
    shown = ", ".join(map(repr, names[:MOST_SHOWN])) or "none"
    return f"{what} {shown}" + (f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else "")

"""Several launches of one source in one OpenCL C text, for compilers that charge for each program.

PoCL takes as long for a program as for four kernels in one. Launches that share a source differ in their -D options
only, so the text holds that source once for each, unchanged, between lines that give it what it has alone: its options
as macros, names of its own for what it declares, and the driver's own macros again when it is over.

It costs only time to refuse, so all that could make a copy mean something else than the source alone is refused here
by looks, and what is overlooked (a name that a macro makes, say) is defined twice, which no compiler takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from gputune.runtime.variant import Launch

LAUNCHES_AT_MOST = 8  # more save little, and whoever comes first waits for all
TEXT_CHARACTERS = 1 << 20

OWN_NAMES = "gputune_"  # what all names of copies begin with
_SPLICE = re.compile(r"\\[ \t]*\n")
# Options that are macros. Names in capitals only: others may mean something to the headers that a driver puts in front
# of a source, which get to see options and do not see what a text defines.
_DEFINE_OPTION = re.compile(r"-D([A-Z]\w*)(?:=((?!.*/[/*]).*))?", re.ASCII | re.DOTALL)
_DEFINED = re.compile(r"#[ \t]*(?:define|undef)\b(?:[ \t]+([A-Za-z_]\w*))?", re.ASCII)
_REFUSED = re.compile(
    r"[^\t\n -~]"  # what may be white, or part of a name, to some compilers
    r"|\?\?|%:|<%|%>"  # other spellings of # { }
    r"|#[ \t]*pragma(?![ \t]+unroll\b)"  # it may last beyond the end of its copy
    r"|\b__(?:LINE|FILE|COUNTER|INCLUDE_LEVEL|BASE_FILE|func|FUNCTION|PRETTY_FUNCTION)__"  # differ from copy to copy
    r"|\b_*(?:overloadable|alias|weak|section)_*\b"  # names that may be shared on purpose
)
# One alternative after the other: what is passed over (comments, texts, directives), a name, anything else. What has no
# end goes to the end of its line or of all, so that each character is looked at once.
_TOKEN = re.compile(
    r"""(?P<gap>//[^\n]*|/\*(?:.*?\*/|.*)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?"""
    r"""|^[ \t]*\#(?:/\*(?:.*?\*/|.*)|[^\n/]|/(?!\*))*)"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<sign>\S)""",
    re.ASCII | re.DOTALL | re.MULTILINE,
)
_DECLARES = frozenset("(=;[,{")  # what follows a name that is declared
_NOT_DECLARED = frozenset(["__attribute__", "__attribute", "struct", "union", "enum", "typedef"])


@dataclass(frozen=True)
class Merged:
    """One program for several launches; the kernel of launch i has the name prefixes[i] + its entry, which no other
    program has."""

    source: str
    options: str
    prefixes: tuple[str, ...]


def groups(launches: Iterable[Launch]) -> list[list[Launch]]:
    """Those that may share a program, about as many in each; who would be alone is not in there."""
    alike: dict[tuple[str, str], dict[Launch, None]] = {}
    for launch in launches:
        alike.setdefault((launch.source, launch.entry), {})[launch] = None
    found = []
    for each in map(list, alike.values()):
        number = -(-len(each) // LAUNCHES_AT_MOST)
        found += [each[i::number] for i in range(number)]
    return [group for group in found if len(group) > 1]


def merged(launches: Sequence[Launch]) -> Merged | None:
    """One program for all of them, or None where they do not go together: sources or options other than -D differ,
    or something in them might mean something else beside others."""
    source = _SPLICE.sub("", launches[0].source)
    if any(launch.source != launches[0].source for launch in launches):
        return None
    if len(source) * len(launches) > TEXT_CHARACTERS or OWN_NAMES in source or _REFUSED.search(source):
        return None
    options = [parts for launch in launches if (parts := _options(launch.options)) is not None]
    if len(options) < len(launches) or any(parts.rest != options[0].rest for parts in options):
        return None
    macros = {found[1] for found in _DEFINED.finditer(source)}
    if None in macros:
        return None
    names = _declared(source) - macros
    text_key = sha256("\0".join([source, *(launch.options for launch in launches)]).encode()).hexdigest()[:8]
    prefixes = tuple(f"{OWN_NAMES}{text_key}_{number}_" for number in range(len(launches)))
    text: list[str] = []
    for launch, parts, prefix in zip(launches, options, prefixes, strict=True):
        declared = names.difference(parts.macros)
        if launch.entry not in declared:
            return None
        text += _copy(source, parts.macros, macros.union(parts.macros), declared, prefix)
    return Merged("\n".join(text), " ".join(options[0].rest), prefixes)


@dataclass(frozen=True)
class _Options:
    """Build options: the macros that they define, and all others."""

    macros: dict[str, str]
    rest: tuple[str, ...]


def _options(text: str) -> _Options | None:
    macros: dict[str, str] = {}
    rest = []
    for option in text.split():
        if not option.startswith("-D"):
            rest.append(option)
        elif (found := _DEFINE_OPTION.fullmatch(option)) is None or found[1] in macros:
            return None
        else:
            macros[found[1]] = "1" if found[2] is None else found[2]
    return _Options(macros, tuple(rest))


def _copy(source: str, options: Mapping[str, str], macros: set[str], declared: set[str], prefix: str) -> Iterator[str]:
    """The lines of one copy. Macros are saved and brought back, so that the next one finds what this one found."""
    changed = sorted(macros | declared)
    yield from (f'#pragma push_macro("{name}")' for name in changed)
    for name in sorted(declared.union(options)):  # the driver's macros come after a program's options, ours would not
        yield f"#ifdef {name}\n#error {name} is a macro of the driver\n#endif"
    yield from (f"#define {name} {value}" for name, value in options.items())
    yield from (f"#define {name} {prefix}{name}" for name in sorted(declared))
    yield source
    yield from (f'#pragma pop_macro("{name}")' for name in changed)


def _declared(source: str) -> set[str]:
    """Names of functions, types and variables outside of all brackets, and perhaps others that stand where those
    could. Directives are passed over, so brackets need not match: then there is something too few or too much."""
    names: set[str] = set()
    depth = 0
    before = ""
    for token in _TOKEN.finditer(source):
        if token.lastgroup == "gap":
            continue
        sign = token["sign"] or ""
        if depth == 0 and sign in _DECLARES and before:
            names.add(before)
        depth += (sign in ("{", "(", "[")) - (sign in ("}", ")", "]"))
        before = token["word"] or ""
    return names - _NOT_DECLARED

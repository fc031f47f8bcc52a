"""Merge several launches into one OpenCL C text, for compilers whose cost is per program.

PoCL takes as long for a program as for four kernels in one. The text holds the source of each launch, unchanged,
between lines that give it its own context: its -D options as macros, unique names for what it declares, and the
driver's own macros again at the end.

A merged text, for a source that declares `tile` and `scale` and is built with -DMR=4:

    #pragma OPENCL EXTENSION ... : enable     those that any source begins with, once
    #pragma push_macro("MR")             what these names mean outside is saved, and
    #pragma push_macro("scale") ...
    #ifdef MR ... #error                 a macro of the driver with such a name stops the build,
    #define MR 4                         its own options become macros,
    #define scale gputune_1f2e3d4c_0_scale   its names become names that no other copy has
    #define tile gputune_1f2e3d4c_0_tile
    ...the source, unchanged...
    #pragma pop_macro("scale") ...       restored, so that the next copy finds what this copy found

Three things must therefore be known of a source, without a C parser: what it declares at file level (`_declared`: names
outside all brackets before one of _DECLARES), what it defines as macros, and that nothing in it depends on its position
(_REFUSED). They are found by tokens; comments and directives are skipped.

A wrong answer must not give a wrong program. Refusing costs only time, so a source is refused if any part of it looks
as if it could mean something else in a copy. If a name is wrongly taken for declared, it is renamed everywhere alike,
or the compiler reports it missing. If a declared name is overlooked, perhaps because a macro makes it, it is defined
twice, which no compiler accepts. Then each launch is built alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from gputune.core.launches import Launch, as_stage, pragmas_for

LAUNCHES_AT_MOST = 8  # more save little, and the first launch waits for all
TEXT_CHARACTERS = 1 << 20

OWN_NAMES = "gputune_"  # what all names of copies begin with
_SPLICE = re.compile(r"\\[ \t]*\n")
# Options that are macros. Names in capitals only: others may mean something to the headers that a driver puts in front
# of a source, which get to see options and do not see what a text defines.
_DEFINE_OPTION = re.compile(r"-D([A-Z]\w*)(?:=((?!.*/[/*]).*))?", re.ASCII | re.DOTALL)
_DEFINED = re.compile(r"#[ \t]*(?:define|undef)\b(?:[ \t]+([A-Za-z_]\w*))?", re.ASCII)
_REASONS: Mapping[str, str] = {
    "a character that compilers read differently": r"[^\t\n -~]",
    "another spelling of # { }": r"\?\?|%:|<%|%>",
    "a pragma that may last beyond the text": r"#[ \t]*pragma(?![ \t]+unroll\b)[^\n]*",
    "a name that differs from place to place": (
        r"\b__(?:LINE|FILE|COUNTER|INCLUDE_LEVEL|BASE_FILE|func|FUNCTION|PRETTY_FUNCTION)__"
    ),
    "a name that may be shared on purpose": r"\b_*(?:overloadable|alias|weak|section)_*\b",
}
_REFUSED = re.compile("|".join(f"({pattern})" for pattern in _REASONS.values()))
_ENABLES = re.compile(r"\s*#[ \t]*pragma[ \t]+OPENCL[ \t]+EXTENSION[ \t]+(\w+)[ \t]*:[ \t]*enable[ \t]*(?:\n|\Z)")
UNDECLARED = "it does not declare the kernel in a form that can be copied"
_CHANGES_OTHERS = frozenset(["all", "cl_khr_fp64"])
"""Extensions that change what a text means that does not enable them: 1.0 is a double with them. All others add names
that OpenCL reserves."""
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

    def as_one(self, launches: Sequence[Launch]) -> Launch:
        """Return one launch that runs all kernels of these launches, each on buffers whose names have its prefix."""
        *before, last = (
            as_stage(kernel, prefix + kernel.entry, prefix)
            for launch, prefix in zip(launches, self.prefixes, strict=True)
            for kernel in launch.sequence
        )
        return Launch(self.source, options=self.options, stages=tuple(before), **vars(last))


def groups(launches: Iterable[Launch]) -> list[list[Launch]]:
    """Return groups of those that may share a program, about as many in each; who would be alone is not in there."""
    alike: dict[tuple[str, str], dict[Launch, None]] = {}
    for launch in launches:
        alike.setdefault((launch.source, launch.entry), {})[launch] = None
    found = []
    for each in map(list, alike.values()):
        number = -(-len(each) // LAUNCHES_AT_MOST)
        found += [each[i::number] for i in range(number)]
    return [group for group in found if len(group) > 1]


def merged(launches: Sequence[Launch]) -> Merged | None:
    """Return one program for all of them, or None where they do not go together: options other than -D differ, or
    something in them might mean something else beside others."""
    if sum(len(launch.source) for launch in launches) > TEXT_CHARACTERS:
        return None
    read = [text_of(launch.source, launch.options) for launch in launches]
    texts = [text for text in read if isinstance(text, Text)]
    if len(texts) < len(launches) or any(text.rest != texts[0].rest for text in texts):
        return None
    if any(launch.entry not in text.declared for launch, text in zip(launches, texts, strict=True)):
        return None
    text_key = key_of([part for launch in launches for part in (launch.source, launch.options)])
    prefixes = tuple(f"{OWN_NAMES}{text_key}_{number}_" for number in range(len(launches)))
    copies = [line for text, prefix in zip(texts, prefixes, strict=True) for line in text.copy(prefix)]
    lines = [*enabling(texts), *copies]
    return Merged("\n".join(lines), " ".join(texts[0].rest), prefixes)


def company(launch: Launch) -> tuple[str, ...] | None:
    """Return the options that launches of one program have in common; None if a launch is built alone."""
    text = text_of(launch.source, launch.options)
    return text.rest if isinstance(text, Text) and launch.entry in text.declared else None


def built_alone(launch: Launch) -> str:
    """Return why a launch shares no program with other launches; empty if it may share one."""
    text = text_of(launch.source, launch.options)
    if isinstance(text, str):
        return text
    return "" if launch.entry in text.declared else UNDECLARED


def key_of(parts: Iterable[str]) -> str:
    """Return what tells names made of these texts from those of other texts."""
    return sha256("\0".join(parts).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Text:
    """A source and its options, ready to be copied beside others."""

    source: str
    options: Mapping[str, str]
    """The macros that the build options define."""
    rest: tuple[str, ...]
    """All other options."""
    macros: frozenset[str]
    """What the source defines."""
    declared: frozenset[str]
    """Names of functions, types and variables."""
    extensions: frozenset[str] = frozenset()
    """The extensions that it enabled at its top; `source` has no such lines."""

    def copy(self, prefix: str, given: Mapping[str, str] = {}) -> Iterator[str]:
        """Yield the lines of one copy, whose declared names begin with prefix. given: more macros, by name; those with
        parameters begin with them: "(d) ((d) + 1)". Macros are saved and brought back, so that the next one finds what
        this one found."""
        own = self.declared.difference(given)
        changed = sorted(self.macros.union(self.options, own, given))
        yield from (f'#pragma push_macro("{name}")' for name in changed)
        for name in sorted(own.union(self.options)):  # the driver's come after a program's options, ours would not
            yield f"#ifdef {name}\n#error {name} is a macro of the driver\n#endif"
        yield from (f"#define {name} {value}" for name, value in self.options.items())
        yield from (f"#define {name} {prefix}{name}" for name in sorted(own))
        yield from (f"#undef {name}\n#define {name}{value}" for name, value in given.items())
        yield self.source
        yield from (f'#pragma pop_macro("{name}")' for name in changed)


def enabling(texts: Iterable[Text]) -> list[str]:
    """Return the lines that a program begins with to hold copies of these texts."""
    names = sorted({name for text in texts for name in text.extensions})
    return pragmas_for(names).splitlines()


def text_of(source: str, options: str) -> Text | str:
    """Return the text, or what in it might mean something else next to others."""
    source, extensions = _SPLICE.sub("", source), set()
    while enables := _ENABLES.match(source):
        extensions.add(enables[1])
        source = source[enables.end() :]
    if len(source) > TEXT_CHARACTERS or OWN_NAMES in source:
        return f"it is longer than {TEXT_CHARACTERS} characters, or has names that begin with {OWN_NAMES}"
    if others := extensions & _CHANGES_OTHERS:
        return f"it enables {min(others)}, which changes other texts"
    if refused := _REFUSED.search(source):
        return f"it has {[*_REASONS][(refused.lastindex or 1) - 1]}: {refused[0][:60]!r}"
    defined: dict[str, str] = {}
    rest = []
    for option in options.split():
        if not option.startswith("-D"):
            rest.append(option)
        elif (found := _DEFINE_OPTION.fullmatch(option)) is None or found[1] in defined:
            return f"its option {option[:60]} cannot become a line of text"
        else:
            defined[found[1]] = "1" if found[2] is None else found[2]
    macros = {found[1] for found in _DEFINED.finditer(source)}
    if None in macros:
        return "it has a macro without a name"
    declared = frozenset(_declared(source) - macros - defined.keys())
    return Text(source, defined, tuple(rest), frozenset(macros), declared, frozenset(extensions))


def _declared(source: str) -> set[str]:
    """Return names of functions, types and variables outside of all brackets, and perhaps others that stand where those
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

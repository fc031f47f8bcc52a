"""Refuse sources and options that would make a compiler read or write files, and inline assembly that is not allowed.

A compiler quotes what it reads in its errors, so an #include of any file of this machine would send its content to the
client that requested the build. Kernels need no other file, only harmless options, and of inline assembly only what
core/assembly.py lists.

Texts are examined as a preprocessor sees them: without line splices, with trigraphs and digraphs, with comments between
words, and with the words that macros can paste together. If implementations differ, as they do about trigraphs and
white space, the stricter reading counts. A kernel on a CPU device is native code, which can open a file when it runs;
this module guards against compilers only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from gputune.core.assembly import check_features, has_assembly, without_assembly
from gputune.core.errors import BuildFailed

LOG_CHARACTERS = 2000
Prove = Callable[[Collection[str]], Mapping[str, str]]
"""Returns for each of some features why a device does not prove it; empty if it does."""

_SPLICE = re.compile(r"\\[ \t\v\f\0]*(?:\r\n|\n\r|\n|\r)")
# Wherever a # stands, in a comment or a text too, since who removes those first can be deceived about where they end.
# What may stand between # and its word: white space, and whatever else a compiler could take for that. A comment there
# is refused for the same reason. A word is looked at to its end only once.
_DIRECTIVE = re.compile(r"(?:#|%:)[^\w!-~]*(?:(\w{0,32}(?:include|import|embed))|(/\*)|(pragma\b[^\n]{0,80}))")
# the rest of a pragma's line may be anything; what comes before has no comments, because nothing reads them there
_HARMLESS_PRAGMA = re.compile(
    r"pragma[ \t]+(?:OPENCL|STDC|unroll|nounroll|ivdep|push_macro|pop_macro"
    r"|GCC[ \t]+(?:ivdep|unroll|diagnostic)|clang[ \t]+(?:loop|fp|diagnostic))\b"
)
_WITH_TEXT = ("_Pragma", "__pragma", "asm", "__asm", "__asm__")  # operators that do nothing without a text
_OPERATORS = (*_WITH_TEXT, "__has_include", "__has_include_next", "__has_embed")
_OPERATOR = re.compile(rf"\b(?:{'|'.join(_OPERATORS)})\b")
_PASTE = re.compile(r"##|%:%:")
_TOKEN = re.compile(r"\w+")
_UNREAD = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?", re.DOTALL)
_STRINGIFY = re.compile(r"(?<![#%:])(?:#|%:)(?![#%:])")  # in a macro; where a line begins, a directive
# A whole line, since what stands around a part of one could look like a comment without it.
_MACRO_KEPT = re.compile(r"^#pragma (?:push|pop)_macro\(\"\w+\"\)$", re.MULTILINE)
_OPTION = re.compile(r"-D[A-Za-z_]\w*(?:=[\w.+*/()<>,:-]*)?|-cl-[\w.=+-]+|-w|-Werror", re.ASCII)
_ALONE = "is not allowed: a source must stand alone, without other files"


def unproven(features: Collection[str]) -> Mapping[str, str]:
    """Prove nothing, as a device of which nothing is known."""
    return dict.fromkeys(features, "nothing is known of it")


def refuse_files(source: str, options: str, prove: Prove = unproven) -> None:
    """Raise BuildFailed, with one line that names it, for anything that could make a compiler use a file, and for
    inline assembly that is not listed or that needs a feature which is not proved."""
    for option in options.split():
        if not _OPTION.fullmatch(option):
            allowed = "-DNAME=VALUE, -cl-..., -w and -Werror"
            raise BuildFailed(f"the build option {option[:40]!r} is not allowed; only {allowed} are")
    text = _SPLICE.sub("", source.replace("??=", "#").replace("??/", "\\"))
    for found in _DIRECTIVE.finditer(text):
        name, comment, pragma = found.groups()
        if comment:
            raise BuildFailed("a comment between # and its directive is not allowed; write the directive first")
        if name:
            raise BuildFailed(f"#{name} {_ALONE}")
        if not _HARMLESS_PRAGMA.match(pragma):
            raise BuildFailed(
                f"#{_shown(pragma)} is not allowed; only the pragmas OPENCL, STDC, unroll, nounroll, ivdep, "
                "push_macro, pop_macro, and of GCC and clang those about loops and diagnostics are"
            )
    if has_assembly(text):
        text, instructions = without_assembly(source, options)
        reasons = prove({each.feature for each in instructions})
        check_features(instructions, [name for name, reason in reasons.items() if not reason])
        text = source = text + '\n""'  # it has texts, for which macros could paste an operator together
    for where in (text, options):
        if operator := _OPERATOR.search(where):
            raise BuildFailed(f"{operator[0]} {_ALONE}")
    if _PASTE.search(text):
        _refuse_pasted([text, _SPLICE.sub("", source)], options)


def _refuse_pasted(readings: Collection[str], options: str) -> None:
    """Raise BuildFailed where macros could make an operator of what stands in one of these readings of a source."""
    read = [_UNREAD.sub(_shortened, _MACRO_KEPT.sub("", text)) for text in readings]
    tokens = {token for text in (*read, options) for token in _TOKEN.findall(text)}
    for word in _OPERATORS if any(map(_has_text, read)) else set(_OPERATORS) - set(_WITH_TEXT):
        if _can_be_pasted(word, tokens):
            raise BuildFailed(f"## next to tokens that could make {word} {_ALONE}; rename the tokens")


def _has_text(read: str) -> bool:
    """Return whether there is a text in the source, or something that makes one of a macro's argument."""
    return '"' in read or any(_STRINGIFY.search(line.lstrip(), 1) for line in read.split("\n"))


def _shortened(unread: re.Match[str]) -> str:
    return " " if unread[0].startswith("/") else unread[0][0] * 2


def _can_be_pasted(word: str, tokens: Collection[str]) -> bool:
    """Return whether some of these tokens, one behind the other, are the word."""
    reached = {0}  # how much of the word can be made
    for end in range(1, len(word) + 1):
        if any(word[start:end] in tokens for start in reached):
            reached.add(end)
    return len(word) in reached


def _shown(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text[:40]).rstrip()


def shortened_log(text: str) -> str:
    """Return a build log without empty lines and repeated headings, at most LOG_CHARACTERS long, errors first."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    first = next((place for place, line in enumerate(lines) if "error" in line.lower()), 0)
    log = "\n".join(lines[first:] or lines)
    return log if len(log) <= LOG_CHARACTERS else log[:LOG_CHARACTERS] + " ..."

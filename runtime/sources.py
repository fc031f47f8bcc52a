"""What is refused before a compiler sees it: sources and options that make it read or write files.

A compiler quotes what it reads in its errors, so an #include of any file of this machine would send its words to
whoever asked for the build. Kernels need no other file, and of the options only the harmless ones.

Names that a macro pastes together can still ask whether a file exists, and a kernel on a CPU device is native code
that can open it: this is about compilers only.
"""

from __future__ import annotations

import re

from gputune.runtime.errors import BuildFailed

_SPLICE = re.compile(r"\\[ \t\v\f\0]*(?:\r\n|\n\r|\n|\r)")
# Wherever a # stands, in a comment or a text too, since who removes those first can be deceived about where they end.
# A comment between the # and its word is refused for the same reason. A word is looked at to its end only once.
_DIRECTIVE = re.compile(r"(?:#|%:)[\s\0]*(?:(\w{0,32}(?:include|import|embed))|(/\*)|(pragma[\s\0]+(?:GCC|clang)\b.*))")
_WORD = re.compile(r"\b(__has_(?:include|embed)\w*|_Pragma|__pragma|(?:__)?asm(?:__)?)\b")
_HARMLESS_PRAGMA = re.compile(
    r"pragma[\s\0]+(?:GCC[\s\0]+(?:ivdep|unroll|diagnostic)|clang[\s\0]+(?:loop|fp|diagnostic))\b"
)
_OPTION = re.compile(r"-D[A-Za-z_]\w*(?:=[\w.+*/()<>,:-]*)?|-cl-[\w.=+-]+|-w|-Werror", re.ASCII)


def refuse_files(source: str, options: str) -> None:
    """Raises BuildFailed, with one line that names it, for anything that could make a compiler use a file."""
    for option in options.split():
        if not _OPTION.fullmatch(option):
            allowed = "-DNAME=VALUE, -cl-..., -w and -Werror"
            raise BuildFailed(f"the build option {option[:40]!r} is not allowed; only {allowed} are")
    text = _SPLICE.sub("", source.replace("??=", "#").replace("??/", "\\"))
    for found in _DIRECTIVE.finditer(text):
        name, comment, pragma = found.groups()
        if comment:
            raise BuildFailed("a comment between # and its directive is not allowed; write the directive first")
        if name or not _HARMLESS_PRAGMA.match(pragma):
            raise BuildFailed(
                f"#{(name or pragma)[:40]} is not allowed: a source must stand alone, without other files"
            )
    if word := _WORD.search(text):
        raise BuildFailed(f"{word[1]} is not allowed: a source must stand alone, without other files")

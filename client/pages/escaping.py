"""Escape foreign text for other syntaxes, with one function for each, so that a name from a file stays a name.

| syntax | function |
|---|---|
| terminal, log | gputune.core.logs.printable |
| JSON, traces in JSON | gputune.core.json_text.json_text |
| HTML, SVG | pages hold JSON, of which page.js makes text nodes; html.escape where there is no script |
| Markdown | markdown_code, markdown_text |
| a string of C | c_string |
| a cell of CSV | csv_cell |
| a word of a POSIX shell in a document | shell_word |
| a file's name | gputune.client.outputs.file_stem |
"""

import re
import shlex

from gputune.core.logs import printable

_PLAIN_CODE = re.compile(r"[A-Za-z0-9_./:-]+")
_FORMULA = ("=", "+", "-", "@")
"""Spreadsheets compute a cell that begins with one of these."""


def markdown_code(value: object) -> str:
    """Return a value as code within a line or a table's cell of Markdown."""
    text = printable(value)
    return f"`{text}`" if _PLAIN_CODE.fullmatch(text) else f"<code>{_referenced(text, ' ')}</code>"


def markdown_text(value: object) -> str:
    """Return a value as text within a line of Markdown, behind other text."""
    return _referenced(printable(value), " .,()-+")


def _referenced(text: str, plain: str) -> str:
    """Return a text whose ASCII marks are numeric references, which Markdown decodes and never parses; without
    `plain`."""
    return "".join(c if not c.isascii() or c.isalnum() or c in plain else f"&#{ord(c)};" for c in text)


def c_string(text: str) -> str:
    """Return a string literal of C, quotes included, that holds the UTF-8 of a text.

    Octal escapes have three digits at most, so what follows cannot become a part of them; `?` is one, because two of
    them begin a trigraph.
    """
    plain = set(range(0x20, 0x7F)) - set(b'"\\?')
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text.encode()) + '"'


def csv_cell(value: object) -> str:
    """Return a value as a cell of CSV: in quotes if it needs them, after an apostrophe if a spreadsheet would take it
    for a formula."""
    text = printable(value)
    if isinstance(value, str) and text.startswith(_FORMULA):
        text = f"'{text}"
    doubled = text.replace('"', '""')
    return f'"{doubled}"' if set(text) & set(',"') else text


def shell_word(value: object) -> str:
    """Return a value as one word of a POSIX shell, in one line."""
    return shlex.quote(printable(value))

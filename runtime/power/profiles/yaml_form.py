"""Read and write perf profiles as YAML files in the original's form: only sections of `KEY: value` lines."""

from __future__ import annotations

import re
from pathlib import Path

from gputune.core.files import open_file
from gputune.runtime.power.profiles.corner_names import shown
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.settings import SECTIONS, Plain, check_section, kind_of

MAX_BYTES = 64 * 1024


def read_yaml(path: Path | str) -> PerfProfile:
    """Return the profile of a file; what it leaves out is as in a new one. Keys may be indented below their section or
    not. Raises ValueError with path, line number and reason for whatever is not in the form, and OSError."""
    with open_file(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path}: a perf profile has at most {MAX_BYTES} bytes")
    try:
        return parse_yaml(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(f"{path}: line {line}: byte {content[error.start]:#04x} is not UTF-8") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def parse_yaml(text: str) -> PerfProfile:
    """Return the profile of a file's text. Raises ValueError with line number and reason."""
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), 1):
        try:
            reader.take(number, _COMMENT.sub("", line).rstrip(" \r"))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    reader.profile.check()
    return reader.profile


def write_yaml(profile: PerfProfile) -> str:
    """Return the text of a file. Raises ValueError where corners are not in the order min <= target <= max."""
    profile.check()
    lines = []
    for section, settings in profile.to_dict().items():
        lines += [f"{section}:", *(f"  {key}: {_text(value)}" for key, value in settings.items())]
    return "\n".join(lines) + "\n"


_COMMENT = re.compile(r"(?:^| +)#.*")
_LINE = re.compile(r"( *)(\w+):(?: +(\S.*))?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")


class _Reader:
    """The profile so far, the section, and in which line each setting and section is."""

    def __init__(self) -> None:
        self.profile = PerfProfile()
        self._section = ""
        self._indent: int | None = None
        self._lines: dict[tuple[str, str], int] = {}

    def take(self, number: int, line: str) -> None:
        """One more line, without its comment. Raises ValueError with a reason."""
        if "\t" in line:
            raise ValueError("there is a tab; indent with spaces")
        if not line:
            return
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"neither a section nor KEY: value, but {shown(line)}")
        indent, name, value = len(match[1]), match[2], match[3]
        if value is None and name != name.upper():
            self._begin(number, indent, name)
        else:
            self._set(number, indent, name, value)

    def _begin(self, number: int, indent: int, section: str) -> None:
        check_section(section)
        if indent:
            raise ValueError(f"section {section} is indented; sections begin at the start of a line")
        self._once(number, section, "")
        self._section, self._indent = section, None

    def _set(self, number: int, indent: int, key: str, value: str | None) -> None:
        if key in SECTIONS:
            raise ValueError(f"section {key} has a value; its settings are lines of their own")
        if not self._section:
            raise ValueError(f"{key} is before the first section; the sections are {', '.join(SECTIONS)}")
        kind_of(self._section, key)
        if value is None:
            raise ValueError(f"{key} has no value")
        if self._indent not in (None, indent):
            raise ValueError(f"{key} is indented by {indent}, the settings of {self._section} above by {self._indent}")
        self._indent = indent
        self._once(number, self._section, key)
        self.profile.set_value(self._section, key, _scalar(value))

    def _once(self, number: int, section: str, key: str) -> None:
        first = self._lines.setdefault((section, key), number)
        if first != number:
            raise ValueError(f"{f'{key} of ' if key else 'section '}{section} is already in line {first}")


def _scalar(text: str) -> Plain:
    """Return a value by its form: true, false, a decimal number or a word."""
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    return int(text) if _NUMBER.fullmatch(text) else text


def _text(value: Plain) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

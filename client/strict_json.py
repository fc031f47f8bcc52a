"""Read config files, which people write as JSON: every key is known, none occurs twice, and each value has its type."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from gputune.client.errors import ConfigError
from gputune.client.suggestions import near
from gputune.core.files import open_file
from gputune.core.json_text import json_value

LARGEST_BYTES = 1 << 20
_MOST_SHOWN = 80
"""Characters of a key or a value in a message."""

Kind = TypeVar("Kind")
Read = Callable[[Any, str], Any]
"""From a key's value and the words that name the key to what it means. Raises ConfigError, or another error that a user
can act on."""


def read_object(path: Path, example: str = "") -> dict[str, Any]:
    """Return the one object that a file of UTF-8 holds, of at most LARGEST_BYTES; an `example` shows in messages what
    belongs there. Raises ConfigError."""
    where = f"config file {path}"
    try:
        with open_file(path) as file:
            written = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from None
    if len(written) > LARGEST_BYTES:
        raise ConfigError(f"{where} has more than {LARGEST_BYTES} bytes, which is not allowed")
    try:
        content = json_value(written.decode("utf-8-sig"), object_pairs_hook=_no_twins, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} is not JSON: it is no text in UTF-8, by its byte {error.start}") from None
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from None
    return an_object(content, where, example)


def read_keys(content: Mapping[str, Any], known: Mapping[str, Read], where: str) -> dict[str, Any]:
    """Return the meaning of each key. Raises ConfigError for one that is not known, and what the readers raise."""
    for key in content:
        if key not in known:
            raise unknown_key(key, known, where)
    return {key: known[key](value, f"{where}: {key}") for key, value in content.items()}


def unknown_key(key: str, known: Iterable[str], where: str) -> ConfigError:
    """Return the error that says so, with the nearest of the known ones, or all of them where none is near."""
    shown, names = key[:_MOST_SHOWN], list(known)
    similar = near(shown, names)
    more = f"did you mean {similar!r}?" if similar else f"the keys are {', '.join(names)}"
    return ConfigError(f"{where}: unknown key {shown!r}; {more}")


def of_kind(kind: type[Kind], value: object, where: str, wanted: str) -> Kind:
    """Return the value, where it is of this type; `wanted` says in messages what is. Raises ConfigError."""
    if not isinstance(value, kind):
        raise wrong_kind(value, where, wanted)
    return value


def wrong_kind(value: object, where: str, wanted: str) -> ConfigError:
    """Return the error that says what must be there in place of this value."""
    return ConfigError(f"{where} must be {wanted}, not {_shown(value)}")


def an_object(value: object, where: str, example: str = "") -> dict[str, Any]:
    """Return a JSON object. Raises ConfigError for anything else."""
    return of_kind(dict, value, where, f"a JSON object, like {example}" if example else "a JSON object")


def a_flag(value: object, where: str) -> bool:
    """Return true or false. Raises ConfigError for anything else."""
    return of_kind(bool, value, where, "true or false")


def a_text(value: object, where: str) -> str:
    """Return a text that is not blank. Raises ConfigError for anything else."""
    text = of_kind(str, value, where, "a text")
    if not text.strip():
        raise ConfigError(f"{where} is empty")
    return text


def a_path(value: object, where: str) -> Path:
    """Return a file's or folder's path; ~ is the home folder. Raises ConfigError for anything else."""
    text = a_text(value, where)
    try:
        if b"\0" in os.fsencode(text):
            raise ValueError("it holds a character that no path may hold")
        return Path(text).expanduser()
    except (ValueError, RuntimeError) as error:  # RuntimeError: a home folder that is not there
        raise ConfigError(f"{where}: {_shown(text)} is no path: {error}") from None


def a_number(least: int, most: int) -> Read:
    """Return a reader of whole numbers in this range."""

    def read(value: object, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise wrong_kind(value, where, f"a whole number from {least} to {most}")
        return value

    return read


def one_of(*names: str) -> Read:
    """Return a reader of texts of which only these are allowed."""

    def read(value: object, where: str) -> str:
        if value not in names:
            raise wrong_kind(value, where, f"one of {', '.join(names)}")
        return str(value)

    return read


def _shown(value: object) -> str:
    """Return how a value begins as JSON. Written piece by piece, so that one that is too deep to be written whole is
    shown."""
    text = "".join(islice(json.JSONEncoder().iterencode(value), _MOST_SHOWN + 1))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key[:_MOST_SHOWN]!r} occurs twice")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")

"""JSON files that people write: every key is known, none occurs twice, and each value is of its kind."""

import difflib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gputune.client.errors import ConfigError

Read = Callable[[Any, str], Any]
"""From a key's value and the words that name the key to what it means. Raises ConfigError."""


def read_object(path: Path, what: str) -> dict[str, Any]:
    """The one object that a file holds; `what` names the file in messages. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what} {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        content = json.loads(text, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{what} {path} is not JSON: {error}") from None
    return an_object(content, f"{what} {path}")


def read_keys(content: Mapping[str, Any], known: Mapping[str, Read], where: str) -> dict[str, Any]:
    """The meaning of each key. Raises ConfigError, for an unknown key with the nearest known one."""
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.0)
            raise ConfigError(f"{where}: unknown key {key!r}; did you mean {near[0]!r}?")
    return {key: known[key](value, f"{where}: {key}") for key, value in content.items()}


def an_object(value: Any, where: str) -> dict[str, Any]:
    """Raises ConfigError for anything else."""
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be a JSON object, not {json.dumps(value)}")
    return value


def a_list(value: Any, where: str) -> list[Any]:
    """One with something in it. Raises ConfigError for anything else."""
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{where} must be a list that is not empty, not {json.dumps(value)}")
    return value


def a_text(value: Any, where: str) -> str:
    """One with something in it. Raises ConfigError for anything else."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where} must be a text that is not empty, not {json.dumps(value)}")
    return value


def a_path(value: Any, where: str) -> Path:
    """A path; ~ is the home folder. Raises ConfigError for anything else."""
    text = a_text(value, where)
    try:
        if b"\0" in os.fsencode(text):
            raise ValueError("it holds a character that no path may hold")
        return Path(text).expanduser()
    except (ValueError, RuntimeError) as error:  # RuntimeError: a home folder that is not there
        raise ConfigError(f"{where}: {json.dumps(text)} is no path: {error}") from None


def a_number(least: int, most: int) -> Read:
    """A reader of whole numbers in this range."""

    def read(value: Any, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f"{where} must be a whole number from {least} to {most}, not {json.dumps(value)}")
        return value

    return read


def one_of(*names: str) -> Read:
    """A reader of texts of which only these are allowed."""

    def read(value: Any, where: str) -> str:
        if value not in names:
            raise ConfigError(f"{where} must be one of {', '.join(names)}, not {json.dumps(value)}")
        return str(value)

    return read


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"key {name!r} occurs twice")
    return dict(pairs)

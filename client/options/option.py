"""Define an option: its name, how its values are read, and where users may give it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar, cast

Read = Callable[[Any, str], Any]
"""From a value and the words that name its place to what it means. Raises ConfigError that begins with the words."""
Record = TypeVar("Record")

MAIN, FILES, MODEL, DEVICE = "Main options", "Files", "Model", "Device"
CHECKS, TUNING, CACHE = "Checks", "Tuning", "Performance cache"
INFERENCES, PROFILE, OTHER = "Inferences", "Profile", "Other options"
ORIGINALS = "For users of other tools"
GROUPS = (MAIN, INFERENCES, FILES, PROFILE, MODEL, DEVICE, CHECKS, TUNING, CACHE, OTHER, ORIGINALS)
"""The headings of help, in their order."""


def as_it_is(value: Any, name: str) -> Any:
    """Return a value that needs no reading."""
    return value


@dataclass(frozen=True)
class Kind:
    """Read the values of an option. text: what click gives; json: what a config file has; python: what a program gives.

    click: what click.option takes besides the name; hint: the type of the argument for type checkers; nothing: the
    argument that asks for nothing; choices: all values, if they are few; value: how the table of keys describes values.
    """

    text: Read = as_it_is
    json: Read = as_it_is
    python: Read = as_it_is
    click: Mapping[str, Any] = field(default_factory=dict)
    hint: str = "str"
    nothing: Any = None
    choices: tuple[str, ...] = ()
    value: str = ""

    @property
    def annotation(self) -> str:
        """Return the type of the argument with what asks for nothing."""
        return f"{self.hint} | None" if self.nothing is None else self.hint


@dataclass(frozen=True)
class Option:
    """Define an option. name: on the command line, behind two dashes; help: what --help prints; group: one of GROUPS.

    key: its name in a config file, "" if it is none; sections: where it may stand there; needs: the key without which
    it has no effect; key_help: what is said of it, in place of the help; only_key: it is no option of a command line.
    argument: its name in Python, "" if it is none; python_help: what is said of it, in place of the help.
    of: the field of its record; decides: it decides what is measured. told: its name in the configuration that a
    context keeps; sparse: it is told only if it is given. shown: what a command gets without it, as help shows.
    click: what click.option takes besides; parameter: how a command calls it, if not by its name; declared: as click
    declares its names, if there are several.
    """

    name: str
    kind: Kind
    help: str = ""
    group: str = OTHER
    key: str = ""
    sections: tuple[str, ...] = ("file",)
    argument: str = ""
    of: str = ""
    needs: str = ""
    decides: bool = False
    told: str = ""
    sparse: bool = False
    key_help: str = ""
    python_help: str = ""
    only_key: bool = False
    parameter: str = ""
    declared: tuple[str, ...] = ()
    shown: Any = None
    click: Mapping[str, Any] = field(default_factory=dict)

    @property
    def told_key(self) -> str:
        """Return what the table of keys says of it."""
        return self.key_help or f"as `{self.words}`"

    @property
    def words(self) -> str:
        """Return the name as users write it on a command line."""
        return f"--{self.name}"

    def having(self, **changes: Any) -> Option:
        """Return the option as another command has it."""
        return replace(self, **changes)


def option(default: Any, kind: Kind, help: str = "", *, key: bool | str = False, **more: Any) -> Any:
    """Return a field of a record that is an option. It has the field's name unless `more`, attributes of Option, has
    another. key: whether a config file may have it, or what it is called there."""
    said = {"kind": kind, "help": help, "key": key, **more}
    return field(default_factory=default, metadata=said) if callable(default) else field(default=default, metadata=said)


def same(defined: Option, default: Any, **more: Any) -> Any:
    """Return a field of a record that is an option of several commands."""
    said = {each.name: getattr(defined, each.name) for each in fields(Option) if each.name not in ("key", "of", "told")}
    return option(default, **{**said, **more})


def options_of(record: type[Any]) -> tuple[Option, ...]:
    """Return the options of a record, in the order of its fields."""
    return tuple(_of(each.name, dict(each.metadata)) for each in fields(record) if "kind" in each.metadata)


def _of(field_name: str, said: dict[str, Any]) -> Option:
    name, key = said.pop("name", field_name), said.pop("key")
    key = name if key is True else key or ""
    return Option(name=name, key=key, of=field_name, **{"told": key, **said})


def over(record: Record, given: Mapping[str, Any]) -> Record:
    """Return a record with what is given, by the names that a command gets, in the place of its fields."""
    names = {each.of: each.parameter or each.name for each in options_of(type(record))}
    changes = {field_name: given[name] for field_name, name in names.items() if name in given}
    return cast(Record, replace(cast(Any, record), **changes))

"""Compare the forms by which C reads files with the dataclasses of Python: names, types, and what may be
missing."""

from __future__ import annotations

import re
import types
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import pytest

from gputune.core.bounds import IN_FILES, Stored
from gputune.core.dtypes import OPENCL_TYPES
from gputune.core.identity import DeviceIdentity
from gputune.runtime.context import memory_need, package, records

SOURCES = Path(__file__).parents[2] / "runtime" / "native" / "src"
TEXT = {name: (SOURCES / name).read_text(encoding="utf-8") for name in ("context.c", "package.c", "form.c")}
MOST_FIELDS = int(re.findall(r"MOST_FIELDS = (\d+)", TEXT["form.c"])[0])

NUMBERS = {"A_COUNT", "A_SIZE"}
OTHER_NAMES = {"arenas": "arena_bytes", "bound": "bound_bytes"}
"""C's names of a list's fields, which no file has."""


class Field(NamedTuple):
    """A row of a form. names: the choices of a text."""

    name: str
    kind: str
    optional: bool
    names: tuple[str, ...]


def form(file: str, name: str) -> tuple[list[Field], bool]:
    """The fields of a form in C, and whether it is closed."""
    text = TEXT[file]
    (body,) = re.findall(rf"^(?:static )?const form {name} = \{{(.*?)\{{0\}}\}}\}};", text, re.MULTILINE | re.DOTALL)
    _, rows = body.split("(const field[]){", 1)
    rows = re.sub(r"\bOF\((\w+), (\w+)\)", r'{"\2", \1, .names = DEVICE_TYPES}', rows)
    rows = re.sub(r'\bG\(("\w+", \w+), [\w.]+\)', r"{\1, .optional = true}", rows)
    rows = re.sub(r'\bGS\(("\w+", \w+)([^()]*)\)', r"{\1\2}", rows)
    found = []
    for field, kind, rest in re.findall(r'\{"(\w+)",\s+(\w+)([^{}]*)\}', rows):
        choices = re.search(r"\.names = (\w+)", rest)
        names = re.search(rf"{choices[1]}\[\] = \{{([^}}]*)NULL", text) if choices else None
        given = tuple(re.findall(r'"(\w+)"', names[1])) if names and kind in ("A_NAME", "A_CHOICE") else ()
        found.append(Field(field, kind, ".optional = true" in rest, given))
    return found, ".is_closed = true" in body


def kinds(hint: Any) -> tuple[set[str], tuple[str, ...]]:
    """The kinds of C that read what a hint says, and the choices of a text."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        stored = next((mark for mark in arguments[1:] if isinstance(mark, Stored)), None)
        if stored is not None and stored.hint is bytes:
            return {"A_DIGEST"}, ()
        return kinds(arguments[0] if stored is None else stored.hint)
    if origin is Literal:
        return {"A_NAME", "A_CHOICE"}, arguments
    if origin is tuple and arguments[1:] != (...,):
        return {"THREE"}, ()
    if origin is tuple:
        inner = kinds(arguments[0])[0]
        return {"SIZES", "DIMENSIONS"} if inner & NUMBERS else {"TEXTS"} if "A_TEXT" in inner else {"ROWS"}, ()
    if origin in (Union, types.UnionType) or (isinstance(hint, type) and issubclass(hint, tuple)):
        return {"ROWS"}, ()
    if is_dataclass(hint):
        return {"A_ROW"}, ()
    return {int: NUMBERS, str: {"A_TEXT"}, bool: {"A_FLAG"}}.get(hint, {"A_MAP"}), ()


@pytest.mark.parametrize(
    ("file", "name", "record"),
    [
        ("context.c", "IDENTITY", DeviceIdentity),
        ("context.c", "BUFFER", records.BufferRef),
        ("context.c", "LAUNCH", records.LaunchRecord),
        ("context.c", "GRAPH", records.GraphRecord),
        ("context.c", "PROGRAM", records.ProgramEntry),
        ("context.c", "SECTION", records.Section),
        ("context.c", "HEADER", records.ContextHeader),
        ("context.c", "NEED", memory_need.GraphNeed),
        ("context.c", "MEMORY", memory_need.MemoryNeed),
        ("package.c", "ENTRY", package.PackageEntry),
        ("package.c", "SECTION", package._Section),
        ("package.c", "INDEX", package._Index),
    ],
)
def test_c_reads_the_fields_that_python_reads(file: str, name: str, record: Any) -> None:
    fields, closed = form(file, name)
    hints = get_type_hints(record, include_extras=True)
    assert len(fields) <= MOST_FIELDS
    assert {OTHER_NAMES.get(field.name, field.name) for field in fields} == hints.keys()
    stored = getattr(record, IN_FILES, None)
    assert closed == (stored is not None and stored.closed)
    for field in fields:
        wanted, choices = kinds(hints[OTHER_NAMES.get(field.name, field.name)])
        if record is package._Section and field.name == "kind":
            wanted = NUMBERS  # the place of its name
        assert field.kind in wanted, field
        assert field.optional == (stored is not None and field.name in stored.later), field
        if choices:
            assert field.names == tuple(one for one in choices if one != "marks"), field


def test_c_knows_the_types_of_tensors_that_python_knows() -> None:
    tensor, _ = form("context.c", "TENSOR")
    dtype = next(field for field in tensor if field.name == "dtype")
    assert dtype.names == tuple(OPENCL_TYPES)
    typed, _ = form("context.c", "TYPED")
    assert {field.name for field in (*tensor, *typed)} == get_type_hints(records.TensorRecord).keys()

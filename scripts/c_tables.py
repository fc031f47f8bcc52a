"""Write the tables by which C reads files and messages, from the dataclasses by which Python reads them; and those by
which it knows the family of a device, from the rules of core/tier.py.

FORMS says what the dataclasses of files cannot say: which structure of C keeps a record, and in which of its members.
The structures of an agent's messages are written, too.
"""

import re
import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import pyopencl as cl

from gputune.core import tier
from gputune.core.bounds import IN_FILES, Blob, InFiles, Stored, Within
from gputune.core.dtypes import ELEMENT_TYPES
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import OFFSET_BYTES
from gputune.runtime.context import format, memory_need, package, records, states
from gputune.server.agent import message_parts, messages
from gputune.server.protocol.messages import Hello, Proof
from tables.c_patterns import c_pattern

PATH = "runtime/native/src/files/tables.c"
HEAD = """\
/* The fields of records that files have, and the numbers that bound them; the rules of device families. scripts/docs
 * writes this file from the dataclasses of Python and core/tier.py: change those or scripts/c_tables.py. */
#include "../devices/tier.h"
#include "reading.h"
"""
LAST_STATUS = -72
"""The last error code of OpenCL 3.0; extensions have the codes behind it."""
OTHER_STATUSES: Mapping[str, int] = {
    "INVALID_PROPERTY": -64,
    "PLATFORM_NOT_FOUND_KHR": -1001,
    "INVALID_COMMAND_BUFFER_KHR": -1138,
    "INVALID_SYNC_POINT_WAIT_LIST_KHR": -1139,
    "INCOMPATIBLE_COMMAND_QUEUE_KHR": -1140,
    "INVALID_MUTABLE_COMMAND_KHR": -1141,
}
"""Errors of extensions that a user may meet, and one of OpenCL that pyopencl has no name for."""
PIECE = 80
"""Characters of a pattern in a line."""
DIGEST_BYTES = 34
"""A digest takes so many bytes in MsgPack."""


@dataclass(frozen=True)
class Form:
    """How C keeps a record: in a `row`, a structure. what: how errors call it. members: for each field that has another
    name in C its member and, for a list, the member with its length. checks, reads: whether C has a function
    check_NAME for rows that were read, or a function read_NAME for values that may be no map."""

    name: str
    record: Any
    row: str
    what: str
    members: Mapping[str, str] = field(default_factory=dict)
    checks: bool = False
    reads: bool = False


_ENTRY = ("tier", "device", "computes", "head", "sections", "nbytes", "sha256")
FORMS = (
    Form("IDENTITY", DeviceIdentity, "identity", "device identity", checks=True),
    Form(
        "TENSOR",
        records.TensorRecord,
        "tensor_record",
        "tensor",
        {"name": "shown.name", "dtype": "shown.dtype", "shape": "shown.shape shown.rank"},
        checks=True,
    ),
    Form("ARGUMENT", records.BufferRef, "argument", "buffer", reads=True),
    Form(
        "LAUNCH",
        records.LaunchRecord,
        "launch",
        "launch",
        {"global_size": "global_size dimensions", "local_size": "local_size dimensions"},
    ),
    Form("STATE_PAIR", states.StatePair, "state_pair", "state"),
    Form("TOKEN_AXIS", states.TokenAxis, "token_axis", "tokens"),
    Form("STATES", states.StateRecord, "state_record", "states"),
    Form(
        "GRAPH",
        records.GraphRecord,
        "graph_record",
        "graph",
        {
            "name": "info.name",
            "inputs": "inputs info.input_count",
            "outputs": "outputs info.output_count",
            "launches": "launches info.launch_count",
            "arena_bytes": "arenas arena_count",
        },
        checks=True,
    ),
    Form("FILE_RECORD", records.FileRecord, "file_record", "file"),
    Form("MODEL", records.ModelRecord, "model_record", "model", {"weights": "weights weight_count"}),
    Form("PROGRAM", records.ProgramEntry, "program_entry", "program"),
    Form("SECTION", records.Section, "section", "section", {"length": "nbytes"}, checks=True),
    Form("REQUIREMENTS", records.Requirements, "context", "header", checks=True),
    Form("HEADER", records.ContextHeader, "context", "header"),
    Form(
        "NEED",
        memory_need.GraphNeed,
        "need",
        "memory block",
        {"arena_bytes": "arenas arena_count", "bound_bytes": "bound"},
    ),
    Form("MEMORY", memory_need.MemoryNeed, "memory", "memory block"),
    Form("ENTRY", package.PackageEntry, "part", "context", {name: f"packed.{name}" for name in _ENTRY}, checks=True),
    Form("PACKED_SECTION", package._Section, "section", "section", {"kind": "offset", "length": "nbytes"}),
    Form("INDEX", package._Index, "gputune_file", "package", {"contexts": "parts part_count"}),
)
SHARED = ("IDENTITY", "ARGUMENT", "REQUIREMENTS", "HEADER", "MEMORY", "INDEX")
"""What other files of C use, as reading.h says."""
NAMES: Mapping[str, tuple[str, ...]] = {
    "DTYPES": tuple(ELEMENT_TYPES),
    "SECTION_KINDS": package.KINDS,
    "FEATURES": records.FEATURES,
}
"""Lists of texts that no type hint has. The choices of a field are in the list that has its name."""
ENUMS = ("ARGUMENT_FORMS", "KINDS", "MEMORY_TYPES")
"""Choices that C keeps as the constants of an enum, which have the same names in capitals. It keeps others as texts."""
NUMBERS: Mapping[str, int] = {
    "FORMAT_VERSION": format.FORMAT_VERSION,
    "REQUIRING_VERSION": format.REQUIRING_VERSION,
    "LARGEST_HEADER_BYTES": format.LARGEST_HEADER_BYTES,
    "LARGEST_MEMORY_BLOCK_BYTES": format.LARGEST_MEMORY_BLOCK_BYTES,
    "LARGEST_ARENA_BYTES": records.LARGEST_ARENA_BYTES,
    "LARGEST_TENSOR_BYTES": records.LARGEST_TENSOR_BYTES,
    "COUNTER_BYTES": records.COUNTER_BYTES,
    "PACKAGE_VERSION": package.PACKAGE_VERSION,
    "MOST_CONTEXTS": package.MOST_CONTEXTS,
    "LARGEST_INDEX_BYTES": package.LARGEST_INDEX_BYTES,
    "LARGEST_SECTION_BYTES": package.LARGEST_SECTION_BYTES,
    "MOST_INFLATED": records.MOST_INFLATED,
    "LARGEST_CAPACITY": states.LARGEST_CAPACITY,
}
EQUAL: Mapping[str, int] = {
    "STATUS_BYTES": records.STATUS_BYTES,
    "FLAG": records.FLAG,
    "ROUNDS": records.ROUNDS,
    "LONGEST": records.LONGEST,
    "OFFSET_BYTES": OFFSET_BYTES,
    "GPUTUNE_MOST_DIMENSIONS": states.LARGEST_RANK,
    "FIXED": states.FIXED,
}
"""What C's headers have as numbers of their own, whose compilation fails where they differ."""


class _Field(NamedTuple):
    """How C reads a value. fixed: of how many items a list consists at most; more: what else its line says."""

    kind: str
    fixed: int = 0
    more: str = ""


AGENT_PATH = "runtime/native/agent/messages.c"
AGENT_HEADER_PATH = "runtime/native/agent/messages.h"
AGENT_HEAD = """\
/* What an agent and a target server say to each other. scripts/docs writes this file from the dataclasses of Python:
 * change those or scripts/c_tables.py, and not this file. */
"""
MESSAGES = (Hello, Proof, *messages.REPLIES, *dict.fromkeys(messages.REPLIES.values()), *messages.UNASKED)
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "GIVEN_VARIABLES": messages.GIVEN_VARIABLES,
    "TOLD_VARIABLES": messages.TOLD_VARIABLES,
}
"""Lists of names of environment variables, in which * stands for any characters."""
AGENT_RECORDS = (
    message_parts.Span,
    message_parts.Given,
    message_parts.Batch,
    message_parts.Guarded,
    message_parts.Expected,
    message_parts.Seen,
    message_parts.Found,
)
MEMBERS = {
    "A_TEXT": "const char *",
    "A_NAME": "const char *",
    "A_NUMBER": "uint64_t ",
    "A_SIGNED": "int64_t ",
    "A_FLAG": "bool ",
    "A_BLOB": "slice ",
    "SIZES": "const size_t *",
    "TEXTS": "const char *const *",
    "BLOBS": "const slice *",
}
"""By kind of a field, the type of a member."""


def agent_messages() -> str:
    """Return the forms of an agent's messages."""
    lines = [f'{AGENT_HEAD}#include "messages.h"']
    for form in AGENT_FORMS:
        hints = get_type_hints(form.record, include_extras=True)
        lines += ["", *(_names(_list_of(name), found) for name, hint in hints.items() if (found := _choices(hint)))]
        lines += _form(form, hints)
    lines += [""]
    for name, texts in VARIABLES.items():
        lines.append(_wrapped(f"const char *const {name}[] = {{{', '.join([*map(_quoted, texts), 'NULL'])}}};"))
    lines += ["", "const form *const MESSAGES[] = {"]
    lines += [f"    [{form.name}] = &{form.name}_FORM," for form in AGENT_FORMS if form.record in MESSAGES]
    return "\n".join([*lines, "};"]) + "\n"


def agent_header() -> str:
    """Return the structures of an agent's messages."""
    names = [form.name for form in AGENT_FORMS if form.record in MESSAGES]
    lines = [f"{AGENT_HEAD}#ifndef GPUTUNE_MESSAGES_H\n#define GPUTUNE_MESSAGES_H\n"]
    lines += ['#include "files/reading.h"\n', f"enum {{ AGENT_VERSION = {messages.AGENT_VERSION} }};"]
    lines.append(_wrapped(f"typedef enum message_kind {{ {', '.join(names)}, MESSAGE_KINDS }} message_kind;"))
    lines.append("extern const form *const MESSAGES[]; /* by message_kind */")
    lines.append(f"extern const char *const {', *const '.join(f'{name}[]' for name in VARIABLES)};")
    for form in AGENT_FORMS:
        lines += ["", f"typedef struct {form.row} {{"]
        hints = get_type_hints(form.record, include_extras=True)
        lines += [f"    {_member(name, *_field(name, hint))}" for name, hint in hints.items()]
        lines += [] if hints else ["    char nothing; /* a structure of C has a member */"]
        lines.append(f"}} {form.row};")
    return "\n".join([*lines, "\n#endif"]) + "\n"


def _agent_form(record: type) -> Form:
    """Return the form of a message or of a record in one. A list's length is the member NAME_count. Messages have long
    names, since READ and read are others' in C."""
    row = re.sub(r"(?<!^)(?=[A-Z])", "_", record.__name__).lower() + ("_message" if record in MESSAGES else "")
    lists = {name: f"{name} {name}_count" for name in get_type_hints(record)}
    return Form(row.upper(), record, row, record.__name__, lists)


AGENT_FORMS = tuple(map(_agent_form, (*AGENT_RECORDS, *MESSAGES)))


def _member(name: str, kind: str, fixed: int, more: str) -> str:
    if kind == "DIMENSIONS":
        return f"size_t {name}[{fixed}], {name}_count;"
    if kind == "ROWS":
        row = next(form.row for form in (*FORMS, *AGENT_FORMS) if more.endswith(f"&{_symbol(form)}"))
        return f"const {row} *{name};\n    size_t {name}_count;"
    counted = f"\n    size_t {name}_count;" if kind in ("SIZES", "TEXTS", "BLOBS") else ""
    return f"{MEMBERS[kind]}{name};{counted}"


def _symbol(form: Form) -> str:
    """Return the name of a form in C; those of messages are the constants of an enum."""
    return f"{form.name}_FORM" if form in AGENT_FORMS else form.name


def text() -> str:
    """Return the tables of files."""
    lines = [HEAD, *_numbers(), ""]
    lines += [_names(name, texts) for name, texts in NAMES.items()]
    lines.append(f"const uint8_t DTYPE_BYTES[] = {{{', '.join(str(each.nbytes) for each in ELEMENT_TYPES.values())}}};")
    lines += [*_statuses(), *_tiers()]
    for form in FORMS:
        hints = get_type_hints(form.record, include_extras=True)
        lines += ["", *(_names(_list_of(name), found) for name, hint in hints.items() if (found := _choices(hint)))]
        lines += _form(form, hints)
    return "\n".join(lines) + "\n"


def _statuses() -> Iterator[str]:
    """Yield the names of OpenCL's errors, with an end behind them."""
    yield "const status_name STATUS_NAMES[] = {"
    core = {name: number for name, number in vars(cl.status_code).items() if isinstance(number, int)}
    found = {number: name for name, number in core.items() if LAST_STATUS <= number < 0}
    found |= {number: name for name, number in OTHER_STATUSES.items()}
    yield from (f'    {{{number}, "CL_{found[number]}"}},' for number in sorted(found, reverse=True))
    yield "    {0, NULL}};"


def _tiers() -> Iterator[str]:
    """Yield the rules of families and vendors; those of processors say only one of them."""
    rules = {
        "GPU_RULES": [(rule.pattern, rule.vendor, rule.family) for rule in tier._GPU_RULES],
        "POCL_MARCHES": [(f"^(?:{marches})", "", family) for family, marches in tier._POCL_MARCHES],
        "CPU_VENDORS": [(words, vendor, "") for vendor, words in tier._CPU_VENDORS],
    }
    for name, rows in rules.items():
        yield f"const tier_rule {name}[] = {{"
        for pattern, *said in rows:
            vendor, family = (_quoted(text) if text else "NULL" for text in said)
            yield f"    {{{_pieces(c_pattern(pattern, ignores_case=True))}, {vendor}, {family}}},"
        yield "    {NULL, NULL, NULL}};"
    for name, pattern, ignores_case in (
        ("POCL_NAME", tier._POCL.pattern, False),
        ("CPU_NAME", tier._CPU, True),
        ("GRAPHICS_NAME", tier._GRAPHICS, False),
        ("INTEL_VENDOR", tier._INTEL_VENDOR, False),
        ("INTEL_RUNS_NAME", tier._INTEL_RUNS, False),
    ):
        yield f"const char {name}[] = {_pieces(c_pattern(pattern, ignores_case))};"


def _pieces(text: str) -> str:
    """Return a pattern as a text of C, in lines that are not too long."""
    pieces = [piece.replace("\\", "\\\\") for piece in re.findall(rf".{{1,{PIECE}}}(?=\||$)", text)]
    return "\n     ".join(map(_quoted, pieces))


def _numbers() -> Iterator[str]:
    for name, number in NUMBERS.items():
        yield f"const uint64_t {name} = {number};"
    equal = " && ".join(f"{name} == {number}" for name, number in EQUAL.items())
    yield _wrapped(f"typedef char numbers_are_equal[{equal} ? 1 : -1];")


def _names(name: str, texts: tuple[str, ...]) -> str:
    outside = "" if name in NAMES else "static "
    items = [f'[{text.upper()}] = "{text}"' if name in ENUMS else f'"{text}"' for text in texts]
    return _wrapped(f"{outside}const char *const {name}[] = {{{', '.join([*items, 'NULL'])}}};")


def _quoted(text: str) -> str:
    return f'"{text}"'


def _wrapped(line: str) -> str:
    return textwrap.fill(line, 120, subsequent_indent="    ", break_on_hyphens=False)


def _form(form: Form, hints: Mapping[str, Any]) -> Iterator[str]:
    yield f"{'' if form.name in SHARED else 'static '}const form {_symbol(form)} = {{"
    least = 1 if form.reads else _least(form.record)
    yield f'    .what = "{form.what}", .row_bytes = sizeof({form.row}), .least_bytes = {least},'
    stored: InFiles | None = getattr(form.record, IN_FILES, None)
    marks = {
        "is_list": stored is None and form.record not in MESSAGES,
        "is_closed": stored is not None and stored.closed,
    }
    said = [f".{name} = true," for name, is_so in marks.items() if is_so]
    functions = {"check": form.checks, "read": form.reads}
    said += [f".{name} = {name}_{form.name.lower()}," for name, there in functions.items() if there]
    if not hints:
        yield f"    {' '.join([*said, '.count = 0'])}}};"
        return
    yield f"    {' '.join([*said, f'.count = {len(hints)},'])} .fields = (const field[]){{"
    for name, hint in hints.items():
        kind, fixed, more = _field(name, hint)
        member, _, count = form.members.get(name, name).partition(" ")
        parts = [f'"{name}"', kind]
        if kind in ("SIZES", "TEXTS", "ROWS", "BLOBS"):
            parts.append(f"MANY({form.row}, {member}, {count or member.removesuffix('s') + '_count'})")
        elif fixed:
            parts.append(f"FEW({form.row}, {member}, {count}, {fixed})")
        elif kind != "A_MAP":
            parts.append(f"IN({form.row}, {member})")
        parts += [more] if more else []
        parts += [".optional = true"] if stored is not None and name in stored.later else []
        yield f"        {{{', '.join(parts)}}},"
    yield "    }};"


def _field(name: str, hint: Any) -> _Field:
    hint, within = _plain(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal or (hint is str and _list_of(name) in NAMES):
        return _Field("A_CHOICE" if _list_of(name) in ENUMS else "A_NAME", 0, f".names = {_list_of(name)}")
    if hint == Blob:
        return _Field("A_BLOB")
    if hint is int and within is not None and within.low < 0:
        return _Field("A_SIGNED")
    if origin is tuple and arguments[1:] != (...,):
        return _Field("THREE")
    if origin is tuple:
        inner = _plain(arguments[0])[0]
        if inner is int and within is not None and within.high <= states.LARGEST_RANK:
            return _Field("DIMENSIONS", int(within.high))
        if inner == Blob:
            return _Field("BLOBS")
        if inner in (int, str):
            return _Field("SIZES" if inner is int else "TEXTS")
        return _Field("ROWS", 0, f".form = &{_name_of(inner)}")
    if is_dataclass(hint):
        return _Field("A_ROW", 0, f".form = &{_name_of(hint)}")
    if origin is dict:
        return _Field("A_MAP", 0, f".most = {records.DEEPEST_CONFIGURATION if arguments[1] is Any else 0}")
    return _Field({int: "A_NUMBER", str: "A_TEXT", bool: "A_FLAG", bytes: "A_DIGEST"}[hint])


def _plain(hint: Any) -> tuple[Any, Within | None]:
    """Return the type of what a file has for a hint, and its bounds."""
    within = None
    while get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        for mark in marks:
            within = mark if isinstance(mark, Within) else within
            hint = mark.hint if isinstance(mark, Stored) else hint
    return hint, within


def _choices(hint: Any) -> tuple[str, ...]:
    plain = _plain(hint)[0]
    return get_args(plain) if get_origin(plain) is Literal else ()


def _list_of(name: str) -> str:
    return f"{name.upper()}S"


def _name_of(record: Any) -> str:
    """Return the name of a record's form; of a union, which is no map in each case, that of its map."""
    kinds = get_args(record) if get_origin(record) in (Union, types.UnionType) else (record,)
    return next(_symbol(form) for form in (*FORMS, *AGENT_FORMS) if form.record in kinds)


def _least(hint: Any) -> int:
    """Return the fewest bytes of MsgPack that a value has, which bounds how many of them a file can hold."""
    hint, _ = _plain(hint)
    if get_origin(hint) is Literal:
        return 1 + min(map(len, get_args(hint)))
    form = next((form for form in (*FORMS, *AGENT_FORMS) if form.record is hint), None)
    if form is None:
        return DIGEST_BYTES if hint is bytes else 1
    stored: InFiles | None = getattr(hint, IN_FILES, None)
    hints = get_type_hints(hint, include_extras=True)
    if stored is None:
        return 1 + sum(map(_least, hints.values()))
    return 1 + sum(1 + len(name) + _least(one) for name, one in hints.items() if name not in stored.later)

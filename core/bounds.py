"""Bound the values of records that travel between programs and lie in files: parts of their types, which decoder.py
checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, TypeVar


@dataclass(frozen=True)
class Within:
    """Bound a number, else a length; both bounds are included."""

    low: float
    high: float


Kind = TypeVar("Kind", bound=type)


@dataclass(frozen=True)
class NoZero:
    """Mark a text that has no character 0, because texts of C end there."""


@dataclass(frozen=True)
class Stored:
    """Mark a value that lies in files as another type: `hint` is that type, and `read` makes the value from it, or
    raises ValueError."""

    hint: Any
    read: Callable[[Any], Any]


@dataclass(frozen=True)
class InFiles:
    """Keep what in_files says of a record."""

    later: frozenset[str]
    closed: bool


IN_FILES = "_in_files"


def in_files(*later: str, closed: bool = False) -> Callable[[Kind], Kind]:
    """Mark a dataclass as a record of files, which must have all of its fields but the `later` ones: those have
    defaults, and older files lack them. Readers ignore unknown fields, which later versions add, unless it is
    closed."""

    def mark(kind: Kind) -> Kind:
        setattr(kind, IN_FILES, InFiles(frozenset(later), closed))
        return kind

    return mark


HOST_ONLY: Mapping[str, bool] = MappingProxyType({"host_only": True})
"""Metadata of a field that never travels and lies in no file: readers refuse it as unknown."""
LATER: Mapping[str, bool] = MappingProxyType({"later": True})
"""Metadata of a field that travels only if it differs from its default, so that older sides understand the rest."""

Count = Annotated[int, Within(0, 2**31 - 1)]
Bytes = Annotated[int, Within(0, 2**48)]
Size = Annotated[int, Within(1, 2**32)]
Sizes = Annotated[tuple[Size, ...], Within(1, 3)]
Int32 = Annotated[int, Within(-(2**31), 2**31 - 1)]
Nanoseconds = Annotated[int, Within(0, 10**18)]
Sample = Annotated[float, Within(0, 1e18)]  # nanoseconds; the mean of the launches in one sample
Samples = Annotated[tuple[Sample, ...], Within(0, 4096)]
Name = Annotated[str, Within(1, 200)]
Key = Annotated[str, Within(0, 1000)]
Text = Annotated[str, Within(0, 65536)]
CText = Annotated[str, NoZero()]  # what a file says, for readers in C too
Amount = Annotated[int, Within(0, 2**63 - 1)]
Sha256 = Annotated[str, Within(64, 64)]
Facts: TypeAlias = Mapping[Key, Any]
Amounts = Annotated[Mapping[Key, Bytes], Within(0, 1024)]  # by the name of a buffer, say
Scalar = Int32  # an argument of a kernel that is no buffer
Arguments = Annotated[tuple[Name | Scalar, ...], Within(0, 256)]  # buffers' names, and scalars
Blob: TypeAlias = bytes | bytearray | memoryview
Handle = Annotated[int, Within(1, 2**62)]
Handles = Annotated[dict[Key, Handle], Within(0, 1024)]  # by the name that a launch uses

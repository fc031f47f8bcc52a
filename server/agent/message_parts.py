"""Define what messages to and from an agent consist of: handles, and the records in lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gputune.core.bounds import Amount, Blob, Bytes, Count, CText, Int32, Within, in_files

Handle = Annotated[int, Within(1, 2**62)]
StateOrNone = Annotated[int, Within(0, 2**62)]
Handles = Annotated[tuple[Handle, ...], Within(0, 4096)]
Texts = Annotated[tuple[CText, ...], Within(0, 4096)]
Blobs = Annotated[tuple[Blob, ...], Within(0, 1024)]


@in_files(closed=True)
@dataclass(frozen=True)
class Span:
    """Name bytes of a buffer: so many from an offset."""

    buffer: Handle
    offset: Bytes
    nbytes: Bytes


@in_files(closed=True)
@dataclass(frozen=True)
class Given:
    """Give a kernel an argument: a span of a buffer, or the scalar where `buffer` is 0."""

    buffer: Annotated[int, Within(0, 2**62)]
    offset: Bytes
    nbytes: Bytes
    scalar: Int32


@in_files(closed=True)
@dataclass(frozen=True)
class Batch:
    """Launch kernels that are bound, in their order, together so many times. counted: whether they are measured, and
    not what passes other data through the caches before a batch that is."""

    bounds: Handles
    launches: Count
    counted: bool


@in_files(closed=True)
@dataclass(frozen=True)
class Guarded:
    """Name a span, of which `inside` bytes lie between two guards; the first has guard_bytes. summed: whether their
    checksum is wanted."""

    buffer: Handle
    offset: Bytes
    nbytes: Bytes
    guard_bytes: Bytes
    inside: Bytes
    summed: bool


@in_files(closed=True)
@dataclass(frozen=True)
class Expected:
    """Name kept data that have to lie between guards, and their type. bounds: limit, ordinary, relative and absolute of
    runtime/backends/answers.py, as four float64."""

    kept: Handle
    dtype: str
    bounds: Blob


@in_files(closed=True)
@dataclass(frozen=True)
class Seen:
    """Say what a guarded span shows: the CRC-32, and the guards as in answers.py."""

    crc32: Amount
    before: Bytes
    before_distance: Bytes
    after: Bytes
    after_distance: Bytes


@in_files(closed=True)
@dataclass(frozen=True)
class Found:
    """Say what is wrong, as answers.py does. maximum: a float64, or nothing."""

    wrong: Bytes
    poisoned: Bytes
    first: Bytes
    found: Blob
    maximum: Blob


Spans = Annotated[tuple[Span, ...], Within(0, 1024)]
Arguments = Annotated[tuple[Given, ...], Within(0, 256)]

"""Define bounds of values in records that travel between programs: part of their types, checked by readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias


@dataclass(frozen=True)
class Within:
    """Bounds, both included: of a number's value, else of a length."""

    low: float
    high: float


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
Sha256 = Annotated[str, Within(64, 64)]
Facts: TypeAlias = Mapping[Key, Any]
Amounts = Annotated[Mapping[Key, Bytes], Within(0, 1024)]  # by the name of a buffer, say
Arguments = Annotated[tuple[Name | Int32, ...], Within(0, 256)]  # buffers' names and 32-bit scalars

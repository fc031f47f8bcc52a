"""Define the element types that tensors may have, by numpy's names: what kernels and programs know of each."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ElementType:
    """Say how elements lie in memory, what kernels compute with them in, and how exact they are.

    `storage`, `arithmetic` and `sums` are types of OpenCL C. Tensors hold `storage`. A single element is computed in
    `arithmetic`. `sums` is what elements are added up in, and what a kernel keeps of them for itself. `resolution`
    is the largest relative error of rounding a number to a type of floats, and `largest` its largest number; tolerances
    for float32 grow for coarser types. `rounding` is the step of a chain (kernels/chain_functions.py) that rounds
    float32 to a shorter type, and `conversions` are the texts (kernels/ops) by which kernels load and store one: in
    front of a template, and behind its elements.cl.
    """

    name: str
    storage: str
    nbytes: int
    arithmetic: str
    sums: str
    is_float: bool = False
    resolution: float = 0.0
    largest: float = 0.0
    rounding: str = ""
    conversions: tuple[str, str] = ("", "")

    @property
    def converts(self) -> bool:
        """Return whether kernels convert elements where they read and write them."""
        return self.storage != self.arithmetic

    @property
    def sum_bytes(self) -> int:
        """Return the bytes of a number of `sums`."""
        return next(each.nbytes for each in ELEMENT_TYPES.values() if each.storage == self.sums)


def _whole(name: str, opencl: str, nbytes: int) -> ElementType:
    return ElementType(name, opencl, nbytes, arithmetic=opencl, sums=opencl)


def _float(
    name: str,
    opencl: str,
    nbytes: int,
    digits: int,
    exponents: int,
    rounding: str = "",
    conversions: tuple[str, str] = ("", ""),
) -> ElementType:
    """Return a type of floats of so many binary digits, the first one included, with so many bits for the exponent."""
    resolution = 2.0**-digits
    largest = 2.0**2 ** (exponents - 1) * (1 - resolution)
    return ElementType(name, opencl, nbytes, "float", "float", True, resolution, largest, rounding, conversions)


FLOAT = "float32"
"""The type of tensors that name none."""
HALF = "float16"
BFLOAT = "bfloat16"
HALF_EXTENSION = "cl_khr_fp16"
"""Name the extension of devices that compute in half."""
SUMS = FLOAT
"""The type in which floats of all types are added up."""

ELEMENT_TYPES: Mapping[str, ElementType] = {
    each.name: each
    for each in (
        _float(FLOAT, "float", 4, digits=24, exponents=8),
        _float(HALF, "half", 2, digits=11, exponents=5, rounding="half", conversions=("halves.cl", "")),
        _float(BFLOAT, "ushort", 2, digits=8, exponents=8, rounding="bfloat", conversions=("", "bfloats.cl")),
        _whole("int64", "long", 8),
        _whole("int32", "int", 4),
        _whole("int16", "short", 2),
        _whole("int8", "char", 1),
        _whole("uint64", "ulong", 8),
        _whole("uint32", "uint", 4),
        _whole("uint16", "ushort", 2),
        _whole("uint8", "uchar", 1),
        _whole("bool", "uchar", 1),
    )
}
"""A bool is a byte that is 0 or 1, as in numpy; kernels that write one must write nothing else."""


FLOATS = tuple(each.name for each in ELEMENT_TYPES.values() if each.is_float)
"""The types of floats."""
HALVES = tuple(name for name in FLOATS if name != FLOAT)
"""The types of floats that take two bytes, and are computed in float32."""
ANY = tuple(ELEMENT_TYPES)
"""All types: those of kernels that move, compare or count elements."""


def is_float(dtype: str) -> bool:
    """Return whether a name of numpy's is that of a type of floats, be it one of ELEMENT_TYPES or not."""
    return "float" in dtype


def stored_in(mode: str) -> str:
    """Return the type in which a plan of a precision mode (client/model/graph.py) stores floats."""
    return mode if mode in FLOATS else HALF


def check_dtype(op: str, *dtypes: str) -> None:
    """Raise a ValueError that names the first dtype which no kernel knows."""
    check_types(op, dtypes, ANY)


def check_types(op: str, dtypes: Collection[str], known: Collection[str]) -> None:
    """Raise a ValueError that names the first dtype which is not among those that an op's kernels know."""
    for dtype in dtypes:
        if dtype not in known:
            raise ValueError(f"{op} knows dtype {', '.join(known)}, not {dtype}")

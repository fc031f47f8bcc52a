"""Define the element types that tensors may have, by numpy's names: their sizes, and their names in OpenCL C."""

from collections.abc import Mapping

OPENCL_TYPES: Mapping[str, str] = {
    "float32": "float",
    "int64": "long",
    "int32": "int",
    "int16": "short",
    "int8": "char",
    "uint64": "ulong",
    "uint32": "uint",
    "uint16": "ushort",
    "uint8": "uchar",
    "bool": "uchar",
}
"""A bool is a byte that is 0 or 1, as in numpy; kernels that write one must write nothing else."""

ITEM_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("int64", "uint64"), 8),
    **dict.fromkeys(("int16", "uint16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool"), 1),
}


def check_dtype(op: str, *dtypes: str) -> None:
    """ValueError that names the first dtype which no kernel knows."""
    for dtype in dtypes:
        if dtype not in OPENCL_TYPES:
            raise ValueError(f"{op} knows {', '.join(OPENCL_TYPES)}, not {dtype}")

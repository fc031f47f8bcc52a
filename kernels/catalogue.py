"""The catalogue of kernel families: every module in ops/ that defines FAMILY."""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from gputune.kernels import ops
from gputune.kernels.family import KernelFamily


@cache
def families() -> Mapping[str, KernelFamily]:
    """All families by op name."""
    found: dict[str, KernelFamily] = {}
    for module in pkgutil.iter_modules(ops.__path__):
        family = getattr(importlib.import_module(f"{ops.__name__}.{module.name}"), "FAMILY", None)
        if isinstance(family, KernelFamily):
            found[family.op] = family
    return MappingProxyType(dict(sorted(found.items())))


def family_of(op: str) -> KernelFamily:
    """The family of an op name; KeyError names the ones there are."""
    try:
        return families()[op]
    except KeyError:
        raise KeyError(f"no kernel family for op {op!r}; there are {', '.join(families())}") from None

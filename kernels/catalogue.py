"""List the kernel families: every module in ops/ that defines FAMILY, and the families of op packages in use."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, ModuleType

from gputune.kernels import ops
from gputune.kernels.family import KernelFamily


@dataclass(frozen=True)
class Packaged:
    """A family of an op package, and the package's name and version: what it measures is another package's no more than
    another family's."""

    family: KernelFamily
    package: str


_in_use: Mapping[str, Packaged] = {}


def families() -> Mapping[str, KernelFamily]:
    """Return all families by op name; one of a package in use stands in the place of the stock one of its op."""
    if not _in_use:
        return _stock()
    return {**_stock(), **{op: packaged.family for op, packaged in _in_use.items()}}


def family_of(op: str) -> KernelFamily:
    """Return the family of an op name; KeyError names the ones there are."""
    if (packaged := _in_use.get(op)) is not None:
        return packaged.family
    try:
        return _stock()[op]
    except KeyError:
        raise KeyError(f"no kernel family for op {op!r}; there are {', '.join(families())}") from None


def identity_of(op: str) -> str:
    """Return what measurements know a family as: its op, and for one of a package "OP@NAME VERSION"."""
    packaged = _in_use.get(op)
    return op if packaged is None else f"{op}@{packaged.package}"


@contextmanager
def using(packaged: Mapping[str, Packaged]) -> Iterator[None]:
    """Has the process know these families by op, and no others of packages, in the block."""
    global _in_use
    before, _in_use = _in_use, dict(packaged)
    try:
        yield
    finally:
        _in_use = before


def families_in(package: ModuleType) -> Iterator[KernelFamily]:
    """Yield the families of all modules in a package, each module's FAMILY."""
    for module in pkgutil.iter_modules(package.__path__):
        family = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), "FAMILY", None)
        if isinstance(family, KernelFamily):
            yield family


@cache
def _stock() -> Mapping[str, KernelFamily]:
    return MappingProxyType({family.op: family for family in sorted(families_in(ops), key=lambda each: each.op)})

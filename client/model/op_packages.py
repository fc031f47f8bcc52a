"""Load op packages: kernel families and operators from outside gputune, in the form of kernels/ops.

An op package is a Python package with `__version__`, whose modules may define

* FAMILY: a KernelFamily with its template next to the module. It is for an op of its own, or replaces a stock op with
  a better implementation; then it takes the stock op's problems.
* LOWERINGS: functions of a Lowering and a Node by the operator's name, "com.example.Wave" for another domain.
* SHAPES: for each operator of another domain, the function that computes its outputs' shapes; see
  client/model/lowering/added.py.

You name a package by its folder, or by the entry point of the group `gputune.op_packages` that a distribution gives it.
Only named packages are imported: a package is code, and runs with the rights of the user that names it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from gputune.client.errors import ConfigError
from gputune.client.model.guarded_families import guarded_family, guarded_function
from gputune.client.model.lowering import added
from gputune.client.model.lowering.added import Added, Lower, Shape
from gputune.client.model.lowering.operators import LOWERINGS as STOCK_LOWERINGS
from gputune.client.model.passes.fuse_elementwise import ELEMENTWISE
from gputune.client.model.passes.one_form import ONE_FORM_OPS
from gputune.kernels import catalogue
from gputune.kernels.catalogue import Packaged, families_in
from gputune.kernels.family import KernelFamily

GROUP = "gputune.op_packages"


@dataclass(frozen=True)
class OpPackage:
    """What a package brings; `name` and `version` keep apart what is measured with it."""

    name: str
    version: str
    families: Mapping[str, KernelFamily]
    lowerings: Mapping[str, Lower]
    shapes: Mapping[str, Shape]

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"


def load_packages(references: Sequence[str]) -> tuple[OpPackage, ...]:
    """Return the packages of folders or entry points. Raises ConfigError for what is none, and for two that bring the
    same."""
    packages = tuple(_load(reference) for reference in dict.fromkeys(references))
    owners: dict[str, OpPackage] = {}
    for package in packages:
        for what in (*(f"family {op}" for op in package.families), *(f"lowering {op}" for op in package.lowerings)):
            if what in owners:
                both = f"{owners[what].title} and {package.title}"
                raise ConfigError(f"op packages {both} both have the {what}; give only one of them")
            owners[what] = package
    return packages


def folders_files(references: Sequence[str]) -> list[Path]:
    """Return all files of the packages that are folders."""
    folders = [Path(reference).expanduser() for reference in references]
    return [path for folder in folders if (folder / "__init__.py").is_file() for path in folder.rglob("*")]


@contextmanager
def in_use(packages: Sequence[OpPackage]) -> Iterator[None]:
    """Has importer, lowering and tuner know the packages in the block; the whole process does."""
    families = {
        op: Packaged(guarded_family(family, package.title), package.title)
        for package in packages
        for op, family in package.families.items()
    }
    lowerings, shapes = (
        {
            op: guarded_function(function, f"{table} of {op}", package.title)
            for package in packages
            for op, function in getattr(package, table).items()
        }
        for table in ("lowerings", "shapes")
    )
    with catalogue.using(families), added.using(Added(lowerings, shapes)):
        yield


def _load(reference: str) -> OpPackage:
    where = f"op package {reference}"
    path = Path(reference).expanduser()
    if path.exists():
        module, name, version = _from_folder(path, where), path.resolve().name, ""
    else:
        module, name, version = _from_entry_point(reference, where)
    version = version or getattr(module, "__version__", "")
    if not isinstance(version, str) or not version or not version.isprintable():
        raise ConfigError(f"{where} has no __version__, and measurements are stored by version")
    modules = [module, *_modules(module, where)]
    package = OpPackage(
        name,
        version,
        {family.op: family for family in families_in(module)},
        _table(modules, "LOWERINGS", where),
        _table(modules, "SHAPES", where),
    )
    _check(package, where)
    return package


def _from_folder(path: Path, where: str) -> ModuleType:
    """Return the package in a folder, imported under a name that only its path has."""
    start = path.resolve() / "__init__.py"
    if not start.is_file():
        raise ConfigError(f"{where} is no Python package: it has no __init__.py")
    name = f"gputune_op_package_{hashlib.sha256(str(start).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, start, submodule_search_locations=[str(start.parent)])
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a package's code raises
        del sys.modules[name]
        raise _broken(where, error) from error
    return module


def _from_entry_point(name: str, where: str) -> tuple[ModuleType, str, str]:
    """Return the package of an entry point, and its distribution's name and version."""
    there = {point.name: point for point in entry_points(group=GROUP)}
    if name not in there:
        known = ", ".join(sorted(there)) or "none"
        raise ConfigError(f"{where} is neither a folder nor an entry point of {GROUP}; there are {known}")
    try:
        module = there[name].load()
    except (Exception, SystemExit) as error:  # whatever a package's code raises
        raise _broken(where, error) from error
    if not isinstance(module, ModuleType) or not hasattr(module, "__path__"):
        raise ConfigError(f"{where}: its entry point names {there[name].value}, which is no Python package")
    distribution = there[name].dist
    return module, name, distribution.version if distribution is not None else ""


def _modules(package: ModuleType, where: str) -> list[ModuleType]:
    try:
        names = [f"{package.__name__}.{one.name}" for one in pkgutil.iter_modules(package.__path__)]
        return [importlib.import_module(name) for name in names]
    except (Exception, SystemExit) as error:  # whatever a package's code raises
        raise _broken(where, error) from error


def _table(modules: Sequence[ModuleType], name: str, where: str) -> dict[str, Any]:
    """Return the entries of all modules' tables of that name; a module may show another's by importing it."""
    found: dict[str, Any] = {}
    for module in modules:
        table = getattr(module, name, {})
        if not isinstance(table, Mapping) or not all(isinstance(op, str) and callable(f) for op, f in table.items()):
            raise ConfigError(f"{where}: {name} of {module.__name__} must map names of operators to functions")
        for op, function in table.items():
            if found.setdefault(op, function) is not function:
                raise ConfigError(f"{where}: two modules have {op} in {name}")
    return found


def _check(package: OpPackage, where: str) -> None:
    """Check that all that a package brings can have an effect."""
    if not package.families and not package.lowerings:
        raise ConfigError(f"{where} has no module with a FAMILY and no LOWERINGS")
    for op in package.lowerings:
        if "." in op and op not in package.shapes:
            raise ConfigError(f"{where} lowers {op} and has no function in SHAPES for it")
        if op in ELEMENTWISE or op in ONE_FORM_OPS - STOCK_LOWERINGS.keys():
            raise ConfigError(f"{where} lowers {op}, which another op replaces first; give that op a FAMILY")
    for op in package.shapes:
        if op not in package.lowerings or "." not in op:
            raise ConfigError(f"{where}: SHAPES is only for operators of other domains that it lowers, not for {op}")


def _broken(where: str, error: BaseException) -> ConfigError:
    return ConfigError(f"{where} cannot be imported: {type(error).__name__}: {error}")

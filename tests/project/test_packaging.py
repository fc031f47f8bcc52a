"""Test that the distribution holds every folder and template, and depends on exactly what the code imports."""

import ast
import fnmatch
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from .sources import ROOMS, ROOT, imports_of, python_files

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_package_list_equals_the_folders() -> None:
    folders = {
        "gputune." + ".".join(path.parent.relative_to(ROOT).parts)
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
    }
    folders = folders - {"gputune.core.api"} | {"gputune"}  # as package-dir says
    assert sorted(folders) == PROJECT["tool"]["setuptools"]["packages"]


def test_the_c_runtime_has_the_version_of_the_distribution() -> None:
    header = (ROOT / "runtime" / "native" / "include" / "gputune.h").read_text(encoding="utf-8")
    assert f'#define GPUTUNE_VERSION "{PROJECT["project"]["version"]}"\n' in header


def test_every_package_folder_has_an_init_with_a_docstring() -> None:
    for package in PROJECT["tool"]["setuptools"]["packages"]:
        init = ROOT.joinpath(*(package.split(".")[1:] or ("core", "api")), "__init__.py")
        assert init.is_file(), f"{package} has no __init__.py"
        assert ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))), f"{package} does not say what it is for"


def test_every_other_file_in_the_rooms_is_package_data() -> None:
    data = PROJECT["tool"]["setuptools"]["package-data"]
    packages = {name.removeprefix("gputune.").replace(".", "/"): patterns for name, patterns in data.items()}
    others = [
        path.relative_to(ROOT).as_posix()
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".md") and "__pycache__" not in path.parts
    ]
    everywhere = packages.pop("*")
    known = [f"{folder}/{pattern}" for folder, patterns in packages.items() for pattern in patterns]
    left = [path for path in others if not any(fnmatch.fnmatch(path, pattern) for pattern in known)]
    assert [path for path in left if not any(fnmatch.fnmatch(Path(path).name, name) for name in everywhere)] == []


def test_the_dependencies_are_exactly_what_the_code_imports() -> None:
    names = [name for path in python_files(*ROOMS) for _, name in imports_of(path.read_text(encoding="utf-8"))]
    outside = {name.partition(".")[0] for name in names if not name.startswith(".")}
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["verify"], *extras["compare"], *extras["farm"]]
    declared = {re.split(r"[^\w-]", line)[0] for line in lines}
    assert outside - set(sys.stdlib_module_names) - {"gputune"} == declared


def test_the_cache_package_is_not_ignored() -> None:
    assert "!/cache/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()

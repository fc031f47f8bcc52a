"""Templates: the .cl texts beside the families, and sizes handed to them as build options."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

BASE_OPTIONS = "-cl-std=CL1.2"


@cache
def template(name: str) -> str:
    """The text of ops/NAME."""
    return files("gputune.kernels.ops").joinpath(name).read_text(encoding="utf-8")


def build_options(macros: Mapping[str, int | str]) -> str:
    """Build options that define each macro, in the order of names: equal macros are equal options."""
    return " ".join([BASE_OPTIONS, *(f"-D{name}={value}" for name, value in sorted(macros.items()))])

"""Templates: the .cl texts beside the families, and sizes handed to them as build options."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

BASE_OPTIONS = "-cl-std=CL1.2"
_INCLUDE = re.compile(r'^#include "(?P<name>\w+\.cl)"\n', re.MULTILINE)


@cache
def template(name: str) -> str:
    """The text of ops/NAME, with the templates that it includes put in: a device gets one text and no folder."""
    text = files("gputune.kernels.ops").joinpath(name).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda include: template(include["name"]), text)


def build_options(macros: Mapping[str, int | str]) -> str:
    """Build options that define each macro, in the order of names: equal macros are equal options."""
    return " ".join([BASE_OPTIONS, *(f"-D{name}={value}" for name, value in sorted(macros.items()))])

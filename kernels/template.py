"""Read templates, the .cl texts next to the families, and pass sizes to them as build options."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

BASE_OPTIONS = "-cl-std=CL1.2"
_INCLUDE = re.compile(r'^#include "(?P<name>\w+\.cl)"\n', re.MULTILINE)


STOCK = "gputune.kernels.ops"
"""The package whose folder has the stock templates."""


@cache
def template(name: str, package: str = STOCK) -> str:
    """The text of the template NAME beside the modules of `package`, with the templates that it includes put in: a
    device gets one text and no folder. What an op package's template includes lies beside it, or is a stock one."""
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda include: template(include["name"], _home(include["name"], package)), text)


def _home(name: str, package: str) -> str:
    return package if files(package).joinpath(name).is_file() else STOCK


def build_options(macros: Mapping[str, int | str]) -> str:
    """Build options that define each macro, in the order of names: equal macros are equal options."""
    return " ".join([BASE_OPTIONS, *(f"-D{name}={value}" for name, value in sorted(macros.items()))])

"""Read templates, the .cl texts next to the families, and pass sizes to them as build options."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT

BASE_OPTIONS = "-cl-std=CL1.2"
_INCLUDE = re.compile(r'^#include "(?P<name>\w+\.cl)"\n', re.MULTILINE)


STOCK = "gputune.kernels.ops"
"""The package whose folder has the stock templates."""
ELEMENTS = "elements.cl"
FACTORS, QUANTISED_FACTORS = "factors.cl", "quantised_factors.cl"
"""How products read weights that are elements, and such that are numbers with scales."""


def template(name: str, package: str = STOCK, dtype: str = FLOAT, factors: str = FLOAT, quantised: bool = False) -> str:
    """Return the text of the template NAME for elements of a type.

    It lies next to the modules of `package`. The templates that it includes are put in: a device gets one text and no
    folder. What an op package's template includes lies next to it, or is a stock template. elements.cl has the type
    of tensors that name none; macros in front of the text say another type. factors: the type that products are
    multiplied in (factors.cl), float16 for elements of float16 only. quantised: whether packed weights are numbers with
    scales.
    """
    text = _text(name, package)
    if quantised:
        text = text.replace(_text(FACTORS, STOCK), _text(QUANTISED_FACTORS, STOCK))
    if dtype == FLOAT:
        return text
    known = ELEMENT_TYPES[dtype]
    multiplied = "#define HALF_FACTORS\n" if factors != FLOAT else ""
    converted = ""
    if known.converts:
        front, behind = (_text(name, STOCK) if name else "" for name in known.conversions)
        converted, elements = f"#define CONVERTED\n{front}", _text(ELEMENTS, STOCK)
        text = text.replace(elements, elements + behind)
    return f"#define TYPE {known.storage}\n#define SUM {known.sums}\n{multiplied}{converted}{text}"


@cache
def own_text(name: str) -> str:
    """Return what a stock template says behind all that it includes."""
    return _INCLUDE.split(files(STOCK).joinpath(name).read_text(encoding="utf-8"))[-1]


def moved(dtype: str) -> str:
    """Return the type as which kernels move elements of a type: what they convert is then a whole number and keeps its
    bits."""
    known = ELEMENT_TYPES[dtype]
    return f"uint{8 * known.nbytes}" if known.converts else dtype


@cache
def _text(name: str, package: str) -> str:
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda include: _text(include["name"], _home(include["name"], package)), text)


def _home(name: str, package: str) -> str:
    return package if files(package).joinpath(name).is_file() else STOCK


def defines(macros: Mapping[str, int | str]) -> str:
    """Return the lines that define each macro, for texts that are no build options."""
    return "".join(f"#define {name} {value}\n" for name, value in macros.items())


def build_options(macros: Mapping[str, int | str]) -> str:
    """Build options that define each macro, in the order of names: equal macros are equal options."""
    return " ".join([BASE_OPTIONS, *(f"-D{name}={value}" for name, value in sorted(macros.items()))])

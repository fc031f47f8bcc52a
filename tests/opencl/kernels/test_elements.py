"""Test that each template compiles alone, and that it leaves reading and writing elements to elements.cl."""

import re
from pathlib import Path

import pytest

from gputune.core.dtypes import HALF
from gputune.kernels import ops
from gputune.kernels.template import BASE_OPTIONS, template
from tests.opencl.conftest import KernelBench

TEXTS = {path.name: path.read_text("utf-8") for path in Path(next(iter(ops.__path__))).glob("*.cl")}
INCLUDED = {name for text in TEXTS.values() for name in re.findall(r'#include "(.+)"', text)}
TEMPLATES = sorted(name for name, text in TEXTS.items() if "__kernel" in text and name not in INCLUDED)
OF_SEVERAL_TYPES = {"typed_elements.cl"}
OF_ONE_WIDTH = {"attention_local.cl"}


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_template_compiles_alone(bench: KernelBench, name: str) -> None:
    bench.backend.build(template(name), f"{BASE_OPTIONS} {bench.options}")


@pytest.mark.parametrize("name", sorted(set(TEMPLATES) - OF_SEVERAL_TYPES))
@pytest.mark.parametrize("width", [4, 1])
def test_only_elements_cl_knows_how_elements_are_read_and_written(bench: KernelBench, name: str, width: int) -> None:
    text = template(name, dtype=HALF)
    if name not in OF_ONE_WIDTH:
        text = re.sub(r"#define (VW|VR|VC|IW) 4\b", rf"#define \1 {width}", text)
    bench.backend.build(text, f"{BASE_OPTIONS} {bench.options}")

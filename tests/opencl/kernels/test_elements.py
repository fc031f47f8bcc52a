"""Test that each template compiles alone, and that it leaves reading and writing elements to elements.cl."""

import re
from pathlib import Path

import pytest

from gputune.core.dtypes import HALF
from gputune.kernels import ops
from gputune.kernels.family import Launch
from gputune.kernels.template import BASE_OPTIONS, template
from gputune.runtime.backends.merging import merged
from tests.opencl.conftest import TOGETHER, KernelBench

TEXTS = {path.name: path.read_text("utf-8") for path in Path(next(iter(ops.__path__))).glob("*.cl")}
INCLUDED = {name for text in TEXTS.values() for name in re.findall(r'#include "(.+)"', text)}
TEMPLATES = sorted(name for name, text in TEXTS.items() if "__kernel" in text and name not in INCLUDED)
OF_SEVERAL_TYPES = {"typed_elements.cl"}
OF_ONE_WIDTH = {"attention_local.cl"}


def compile_all(bench: KernelBench, texts: list[str]) -> None:
    """Compile texts in few programs, in which no text sees another one's names."""
    entries = [re.search(r"__kernel\b.*?\bvoid (\w+)", text, re.DOTALL) for text in texts]
    assert all(entries)
    options = f"{BASE_OPTIONS} {bench.options}"
    launches = [
        Launch(text, each[1], options, (1,), (1,), ()) for text, each in zip(texts, entries, strict=True) if each
    ]
    for some in (launches[first : first + TOGETHER] for first in range(0, len(launches), TOGETHER)):
        together = merged(some)
        assert together, f"{[each.entry for each in some]} do not go together"
        bench.backend.build(together.source, together.options)


def test_each_template_compiles_alone(bench: KernelBench) -> None:
    compile_all(bench, [template(name) for name in TEMPLATES])


@pytest.mark.parametrize("width", [4, 1])
def test_only_elements_cl_knows_how_elements_are_read_and_written(bench: KernelBench, width: int) -> None:
    texts = {name: template(name, dtype=HALF) for name in sorted(set(TEMPLATES) - OF_SEVERAL_TYPES)}
    narrow = re.compile(r"#define (VW|VR|VC|IW) 4\b")
    compile_all(
        bench,
        [text if name in OF_ONE_WIDTH else narrow.sub(rf"#define \1 {width}", text) for name, text in texts.items()],
    )

"""Run kernels with pointers to vectors, as devices get them that are not CPUs, on the device of the tests."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputune.core.dtypes import HALF
from gputune.kernels.catalogue import family_of
from gputune.kernels.ops.reduce import ReduceProblem
from gputune.kernels.ops.transpose import TransposeProblem
from gputune.kernels.pointers import MOVING, POINTERS
from gputune.kernels.template import template
from tests.kernels.aligned_problems import ALIGNED
from tests.kernels.drawing import drawn
from tests.opencl.conftest import KernelBench

IN_HALF = ("Elementwise", "MatMul", "Resize", "Softmax")
PROBLEMS = [
    *((op, problem) for op, problem, widest in ALIGNED if widest > 1),
    *((op, replace(problem, dtype=HALF)) for op, problem, _ in ALIGNED if op in IN_HALF),
    ("Transpose", TransposeProblem(1, 3, 4, 8, "NCHW", "NHWC")),
    ("Transpose", TransposeProblem(2, 3, 4, 8, "NHWC", "NCHW")),
]
CHOICES = ("VW", "VR", "VC", "ALG", "PACK", "LANES", "STAGED")

ROUNDED = """
#define ALIGNED_BUFFER
#define ROUNDED(type, n, p, i) ((__global type *)((ulong)((p) + (i)) & ~(ulong)((n == 3 ? 1 : n) * sizeof(type) - 1)))
#undef LOAD_PACKED
#define LOAD_PACKED(n, p, i) LOAD_WIDE(n, ROUNDED(TYPE, n, p, i), 0)
#if ALIGNED_VECTORS
#undef LOAD_OF
#undef STORE_OF
#define LOAD_OF(type, n, p, i) CAT(vload, n)(0, ROUNDED(type, n, p, i))
#define STORE_OF(type, n, v, p, i) CAT(vstore, n)(v, 0, ROUNDED(type, n, p, i))
#ifdef CONVERTED
#undef LOAD_BITS
#undef STORE_BITS
#define LOAD_BITS(n, p, i) LOAD_OF(ushort, n, p, i)
#define STORE_BITS(n, v, p, i) STORE_OF(ushort, n, v, p, i)
#endif
#endif
"""
"""In the place of pointers. Each address becomes a multiple of the vector's size, so that a vector that is falsely
declared to be aligned is another vector."""


@pytest.fixture
def gpu(bench: KernelBench) -> KernelBench:
    """The bench as if its device were a GPU."""
    return replace(bench, limits=replace(bench.limits, device_type="gpu", preferred_float_width=1))


@pytest.fixture
def _rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets kernels round addresses where they have pointers."""
    texts = {"elements.cl": template("elements.cl"), POINTERS: ROUNDED, MOVING: template(MOVING)}
    monkeypatch.setattr("gputune.kernels.pointers.template", texts.__getitem__)


def check(bench: KernelBench, op: str, problem: Any, count: int) -> None:
    """Compare so many configurations with the reference, of those with aligned vectors: the widest vectors first."""
    family, limits = family_of(op), bench.limits
    known = [family.default(problem, limits), *family.starters(problem, limits)]
    every = [*known, *drawn(family, problem, limits, 200)]
    fitting = [one for one in every if family.render(problem, one).main.aligned]
    different = {tuple(one.get(name, 0) for name in CHOICES): one for one in reversed(fitting)}
    tried = [different[key] for key in sorted(different, reverse=True)][:count]
    bench.compare(family, problem, tried, family.sample_inputs(problem, np.random.default_rng(1)))


@pytest.mark.parametrize(("op", "problem"), dict(PROBLEMS).items(), ids=dict(PROBLEMS))
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.night)])
def test_kernels_with_pointers_are_right(gpu: KernelBench, op: str, problem: Any, count: int) -> None:
    check(gpu, op, problem, count)


@pytest.mark.usefixtures("_rounded")
@pytest.mark.parametrize(
    ("op", "problem"),
    [pytest.param(*each, marks=[pytest.mark.night] * (place % 3 > 0)) for place, each in enumerate(PROBLEMS)],
)
def test_vectors_begin_where_they_are_declared(gpu: KernelBench, op: str, problem: Any) -> None:
    check(gpu, op, problem, count=2)


@pytest.mark.usefixtures("_rounded")
def test_a_false_declaration_is_found(gpu: KernelBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputune.kernels.indexing.maps.aligned", lambda *_: True)
    with pytest.raises(AssertionError, match="ReduceProblem"):
        check(gpu, "Reduce", ReduceProblem("sum", (17, 37), (1,)), count=1)

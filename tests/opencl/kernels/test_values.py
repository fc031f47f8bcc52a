"""Test kernels on inputs that hurt: places outside, ties, NaN wherever it is, long sums, rows of one value."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pytest

from gputune.kernels.catalogue import family_of
from gputune.kernels.family import Array, Instance
from gputune.kernels.ops.arg import ArgProblem
from gputune.kernels.ops.gather import GatherProblem
from gputune.kernels.ops.grid_sample import PADDINGS, GridSampleProblem
from gputune.kernels.ops.normalise import NormaliseProblem
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.ops.pool_indices import PoolIndicesProblem
from gputune.kernels.ops.reduce import ReduceProblem
from gputune.kernels.ops.resample import ResampleProblem
from gputune.kernels.ops.scatter import at_points
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.ops.top import TopProblem
from gputune.kernels.ops.transpose import TransposeProblem
from tests.opencl.conftest import TOGETHER, KernelBench


@dataclass(frozen=True)
class Given:
    """A problem with inputs in place of samples. want: the result, else that of the reference; both are the same within
    the tolerance of each element. changes: of the default configuration, one after the other."""

    op: str
    problem: Any
    inputs: Mapping[str, Any]
    want: Any = None
    changes: Sequence[Mapping[str, int]] = ({},)
    relative: float = 0.0
    absolute: float = 0.0


HARD = (np.nan, np.inf, -np.inf)
NO_PADS = (0, 0, 0, 0)
NUMBERS = np.random.default_rng(5)
SHARED = {"LANES": 8, "DIMY": 2}


def normal(*shape: int) -> Array:
    return NUMBERS.standard_normal(shape).astype(np.float32)


def changed(value: Array, *changes: tuple[Any, Any]) -> Array:
    """A copy with other values at some places."""
    copy = value.copy()
    for place, other in changes:
        copy[place] = other
    return copy


def with_nan(shape: tuple[int, ...], axis: int) -> Array:
    """Whole numbers in rows of 61: NaN at another place in each, several in two of them, none in one."""
    value = NUMBERS.integers(-9, 9, shape).astype(np.float32)
    rows = np.moveaxis(value, axis, -1).reshape(-1, 61).copy()
    rows[np.arange(len(rows)), np.arange(len(rows)) % 61] = np.nan
    rows[3], rows[5, 7:], rows[9] = np.nan, np.nan, 2
    return np.moveaxis(rows.reshape(*np.delete(shape, axis), 61), -1, axis).copy()


def windows(hard: Sequence[float]) -> Array:
    """A map of which a tenth is hard values."""
    value, chosen = normal(1, 9, 8, 19), NUMBERS.random((1, 9, 8, 19))
    return changed(value, *((chosen < share, number) for share, number in zip((0.1, 0.06, 0.03), hard, strict=True)))


def ordered() -> tuple[dict[str, Array], Array]:
    """Updates of a line, and their sums: no other order gives the same."""
    data, indices = normal(256), NUMBERS.integers(0, 256, 4096)
    updates = (10.0 ** NUMBERS.uniform(-6, 6, 4096)).astype(np.float32)
    sums = data.copy()
    for index, update in zip(indices, updates, strict=True):
        sums[index] += update
    return {"data": data, "indices": indices, "updates": updates}, sums


def ties(problem: TopProblem) -> Array:
    """Many equal numbers; of floats one in nine is NaN."""
    floats = problem.dtype == "float32"
    value = NUMBERS.integers(0 if problem.dtype[0] == "u" else -4, 5, problem.shape).astype(problem.dtype)
    return np.where(value > 3, np.nan, value) if floats else value


NORMALISED = {
    "along": NormaliseProblem("deviation", (3, 37), (1,), (1,), True, True, 1e-5),
    "across": NormaliseProblem("deviation", (2, 33, 19), (1,), (2,), True, True, 1e-5),
    "groups": NormaliseProblem("deviation", (2, 9, 3, 5), (1, 3), (2, 3), True, True, 1e-5),
    "small-epsilon": NormaliseProblem("deviation", (3, 100), (1,), (1,), True, True, 1e-18),
}
AVERAGES = {
    "whole": PoolProblem("average", 1, 1024, 1024, 1, (1024, 1024), (1, 1), NO_PADS, (1, 1)),
    "whole-of-channels": PoolProblem("average", 1, 150, 200, 5, (150, 200), (1, 1), NO_PADS, (1, 1)),
    "windows": PoolProblem("average", 1, 400, 500, 3, (300, 480), (90, 7), (0, 3, 2, 0), (2, 4)),
    "dilated": PoolProblem("average", 1, 300, 301, 2, (150, 101), (2, 1), NO_PADS, (1, 101), dilations=(2, 2)),
}
WHOLE = PoolProblem("average", 1, 40, 50, 5, (40, 50), (1, 1), NO_PADS, (1, 1))
WINDOWS = ((3, 5), (2, 2), (0, 1, 1, 1), (4, 3))
ENDS = (-(2**63), -5, -4, 3, 4, 2**63 - 1)
FAR = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e9, -1e9, 0)
BLOCKS = ((4, 4, 16, 1), (4, 2, 4, 1), (4, 3, 8, 1), (2, 8, 4, 2), (1, 16, 2, 4), (3, 4, 1, 1))
STAGED = ((2, 4, 4, 2), (1, 1, 8, 8), (3, 2, 2, 8))


def blocks(sizes: Sequence[tuple[int, ...]], **others: int) -> list[dict[str, int]]:
    return [dict(zip(("VR", "VC", "DIMX", "DIMY"), each, strict=True)) | others for each in sizes]


GIVEN: dict[str, Given] = {
    "Gather: nothing is read from outside": Given(
        "Gather",
        GatherProblem(4, 6, (6,), (0,), (1,), (4,), (1,), 1),
        {"input": range(4), "indices": ENDS},
        [0, 0, 0, 3, 3, 3],
    ),
    **{
        f"Scatter: {reduction} in order, and nowhere else": Given(
            "Scatter",
            at_points((3,), (5, 1), reduction=reduction),
            {"data": [10, 2, 7], "indices": [1, 3, -2, -4, -(2**63)], "updates": [4, 99, 3, 99, 99]},
            [10, want, 7],
        )
        for reduction, want in (("none", 3), ("add", 9), ("mul", 24), ("max", 4), ("min", 2))
    },
    "Scatter: an index outside of its axis is nowhere even where the place is inside": Given(
        "Scatter",
        at_points((4, 3), (4, 2)),
        {"data": [0] * 12, "indices": [0, 5, 1, -4, -5, 2, 2, -1], "updates": [1, 2, 3, 4]},
        [0] * 8 + [4] + [0] * 3,
    ),
    "Scatter: sums are those of updates in their order, to the last bit": Given(
        "Scatter",
        at_points((256,), (4096, 1), reduction="add"),
        *ordered(),
        [{"PARTS": parts, "DIMX": 1, "DIMY": 1} for parts in (1, 4, 16, 256)],
    ),
    "Resample: the rest of the weights is outside, and no place is": Given(
        "Resample",
        ResampleProblem(1, 1, 3, 1, (1, 4), (1, 2), outside=-8.0),
        {
            "input": [1, 2, 4],
            "rows": [-7],
            "row_weights": [1],
            "columns": [0, 1, 2, 9, -5, 2, 1, 1],
            "column_weights": [0.5, 0.5, 0, 1, 0.25, 0.25, 0, 0],
        },
        [1.5, 4, 1.25 - 4, -8],
    ),
    **{
        f"TopK: ties and NaN of {problem.dtype} {problem.shape}": Given("TopK", problem, {"input": ties(problem)})
        for problem in (
            TopProblem(3, 101, 1, 7),
            TopProblem(2, 67, 5, 67, largest=False),
            TopProblem(2, 70, 3, 9, dtype="int8"),
            TopProblem(1, 33, 1, 33, largest=False, dtype="uint64"),
        )
    },
    **{
        f"Softmax: large numbers in shared rows of {shape}": Given(
            "Softmax",
            SoftmaxProblem(*shape),
            {"input": normal(*shape) * 1e4},
            changes=[{"VW": width, "KEEP": keep, "EXP": keep} | SHARED for keep in (0, 1)],
            relative=1e-5,
            absolute=1e-7,
        )
        for shape, width in (((3, 101, 1), 8), ((3, 21, 7), 4))
    },
    **{
        f"Softmax: masked rows of {shape} are zeros": Given(
            "Softmax",
            SoftmaxProblem(*shape, masked=True),
            {"input": changed(normal(*shape), (1, -np.inf), ((2, slice(1, None)), -np.inf))},
            changes=[{"KEEP": 0}, {"KEEP": 1}],
            relative=1e-5,
            absolute=1e-7,
        )
        for shape in ((3, 101, 1), (3, 21, 7))
    },
    **{
        f"Softmax: the lowest numbers in rows of {shape} have a maximum": Given(
            "Softmax",
            SoftmaxProblem(*shape),
            {"input": np.full(shape, -2e38)},
            np.full(shape, 1 / shape[1]),
            [{}, {"KEEP": 0, "EXP": 0}, {"KEEP": 1, "EXP": 1}, {"VW": 1, **SHARED}],
            relative=1e-6,
        )
        for shape in ((3, 101, 1), (2, 21, 7))
    },
    **{
        f"{op}: whole numbers in shared rows of {problem.shape}": Given(
            op,
            problem,
            {"input": NUMBERS.integers(-9, 9, problem.shape)},
            changes=[{"VW": width, "ACC": 1} | SHARED],
            relative=1e-5,
        )
        for op, problem, width in (
            ("Reduce", ReduceProblem("variance", (3, 1003), (1,)), 8),
            ("Reduce", ReduceProblem("log_sum_exp", (3, 101, 7), (1,)), 4),
            ("ArgMax", ArgProblem(3, 1003, 1, last=True), 4),
            ("ArgMax", ArgProblem(3, 101, 7, one_hot=True), 4),
        )
    },
    **{
        f"Reduce: rows of {value} in {shape} have no variance": Given(
            "Reduce", ReduceProblem("variance", shape, (1,)), {"input": np.full(shape, value)}, np.zeros((), np.float32)
        )
        for shape in ((3, 37), (2, 49, 19))
        for value in (1234.1, 7.3, 1e9)
    },
    **{
        f"{op}: NaN wherever it is {'along' if axis else 'across'}, {'largest' if largest else 'least'}": Given(
            op,
            ReduceProblem("max" if largest else "min", shape, (axis,))
            if op == "Reduce"
            else ArgProblem(*((70, 61, 1) if axis else (1, 61, 35)), largest, last=largest),
            {"input": with_nan(shape, axis)},
            changes=[{"VW": 4, "ACC": 1, "LANES": lanes, "DIMY": 1} for lanes in (1, 4)],
        )
        for op in ("Reduce", "ArgMax")
        for shape, axis in (((70, 61), 1), ((61, 5, 7), 0))
        for largest in (True, False)
    },
    "Reduce: a long sum loses no digits": Given(  # one after another in a lane, they would be off in the second
        "Reduce",
        ReduceProblem("sum", (1 << 20,), (0,)),
        {"input": np.full(1 << 20, 0.1)},
        (1 << 20) * 0.1,
        [{"VW": 1, "ACC": 1, "LANES": 1, "DIMY": 1}],
        relative=1e-5,
    ),
    "Normalise: a large mean leaves the variance its digits": Given(
        "Normalise",
        NormaliseProblem("deviation", (2, 64), (1,)),
        {"input": 1000 + normal(2, 64)},
        changes=[{"VW": 4, "ACC": 1, "LANES": 1, "DIMY": 1}],
        absolute=1e-3,
    ),
    **{
        f"Normalise: rows that lie close together in {shape}": Given(
            "Normalise",
            NormaliseProblem("deviation", shape, (1,), epsilon=1e-5),
            {"input": np.broadcast_to((1000 + np.arange(shape[1]) * 1e-3).reshape(-1, *[1] * (len(shape) - 2)), shape)},
            absolute=1e-5,
        )
        for shape in ((2, 16), (2, 257), (2, 50, 3))
    },
    **{
        f"Normalise: {hard} at {place} leaves other rows alone": Given(
            "Normalise",
            NORMALISED["along"],
            {"input": changed(normal(3, 37), ((1, place), hard))},
            relative=1e-5,
            absolute=1e-6,
        )
        for hard in HARD
        for place in (0, 5, 36)
    },
    **{
        f"Normalise: rows of {value} {name} are the bias": Given(
            "Normalise",
            problem,
            {"input": np.full(problem.shape, value), "bias": bias},
            bias.reshape(places),
            [{}, {"VW": 1, **SHARED}],
        )
        for name, problem in NORMALISED.items()
        for value in (1234.1, 7.3, 0.1, -8e6)
        for places in [[size if axis in problem.varies else 1 for axis, size in enumerate(problem.shape)]]
        for bias in [normal(math.prod(places))]
    },
    **{
        f"Pool: the maximum keeps {name}": Given(
            op,
            problem,
            {"input": windows((np.inf, -np.inf, np.nan))},
            changes=[{"VW": 1, **accumulators[0]}, {"VW": 8, **accumulators[1]}],
        )
        for name, op, problem, accumulators in (
            ("NaN", "Pool", PoolProblem("max", 1, 9, 8, 19, *WINDOWS), ({"ACC": 1}, {"ACC": 2})),
            ("its place", "PoolIndices", PoolIndicesProblem(1, 9, 8, 19, *WINDOWS), ({}, {})),
        )
    },
    **{
        f"Pool: averages of many keep their digits, {name} from {first} to {last}": Given(
            "Pool",
            problem,
            {"input": np.linspace(first, last, math.prod(problem.input_shape), dtype=np.float32)},
            changes=[{"ACC": 1}, {"ACC": 4}],
            relative=6 * 2.0**-24,
        )
        for name, problem in AVERAGES.items()
        for first, last in ((0.1, 0.1), (7.3, 7.3), (0.0, 1.0))
    },
    **{
        f"Pool: long sums keep {hard}": Given(
            "Pool",
            WHOLE,
            {
                "input": changed(
                    np.ones(WHOLE.input_shape, np.float32),
                    ((0, 3, 4, 1), hard),
                    ((0, 0, 0, 2), hard),
                    ((0, 39, 49, 2), -hard),
                )
            },
            [1, hard, np.nan, 1, 1],
        )
        for hard in HARD
    },
    **{
        f"Transpose: parts of several small maps of {dtype}": Given(
            "Transpose",
            TransposeProblem(23, 4, 1, 19, "NCHW", "NHWC", dtype),
            {"input": np.arange(23 * 4 * 19)},
            changes=blocks(BLOCKS, STAGED=0, PAD=0),
        )
        for dtype in ("float32", "int8", "int64")
    },
    "Transpose: blocks change hands in local memory": Given(
        "Transpose",
        TransposeProblem(2, 19, 7, 5, "NCHW", "NHWC"),
        {"input": np.arange(2 * 19 * 7 * 5)},
        changes=[*blocks(STAGED, STAGED=1, PAD=0), *blocks(STAGED, STAGED=1, PAD=1)],
    ),
}


def tried(bench: KernelBench, given: Given) -> list[dict[str, int]]:
    default = family_of(given.op).default(given.problem, bench.limits)
    return [default | dict(change) for change in given.changes]


def instances(bench: KernelBench, *names: str) -> Iterator[Instance]:
    for given in map(GIVEN.__getitem__, names):
        yield from (bench.instance(family_of(given.op), given.problem, one) for one in tried(bench, given))


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
@pytest.mark.parametrize("name", GIVEN, ids=[name.replace(" ", "-") for name in GIVEN])
def test_hard_inputs(bench: KernelBench, name: str) -> None:
    given = GIVEN[name]
    family, problem = family_of(given.op), given.problem
    inputs = family.sample_inputs(problem, np.random.default_rng(1))
    for each, value in given.inputs.items():
        inputs[each] = np.array(value).astype(inputs[each].dtype).reshape(inputs[each].shape)
    want = np.asarray(family.reference(problem, inputs))
    if given.want is not None:
        wanted, reference = np.array(given.want, want.dtype), want
        same = wanted.size == want.size
        want = wanted.reshape(want.shape) if same else np.broadcast_to(wanted, want.shape)
        np.testing.assert_allclose(reference, want, 1e-6)
    later = instances(bench, *list(GIVEN)[list(GIVEN).index(name) :])
    bench.build_together(instances(bench, name), islice(later, TOGETHER))
    for one in tried(bench, given):
        got, damage = bench.run(family, problem, one, inputs)
        assert not damage
        np.testing.assert_allclose(got, want, given.relative, given.absolute, err_msg=str(one))


@pytest.mark.parametrize("padding", PADDINGS)
def test_no_grid_reads_outside_of_the_map(bench: KernelBench, padding: str) -> None:
    family, problem = family_of("GridSample"), GridSampleProblem(1, 1, 1, 1, (1, 8), "cubic", padding, aligned=True)
    grid = np.array([[FAR, FAR]], np.float32).transpose(0, 2, 1).reshape(1, 1, 8, 2)
    inputs = {"input": np.full((1, 1, 1, 1), 3, np.float32), "grid": grid}
    got, damage = bench.run(family, problem, family.default(problem, bench.limits), inputs)
    assert set(got.ravel().round(5).tolist()) <= {0, 3}
    assert not damage

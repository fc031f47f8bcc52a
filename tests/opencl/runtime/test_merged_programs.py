"""Test variants that share a program on a real device: each computes and fails as alone, and reports its own cost."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputune.core.batches import Profiled
from gputune.core.launches import Launch, Variant
from gputune.kernels.catalogue import family_of
from gputune.kernels.ops.conv import ConvProblem
from gputune.runtime.backends import Backend, Buffer, Program, ProgramCache
from gputune.runtime.measuring.launching import compile_variant
from tests.kernels.one_of_each import ONE_OF_EACH
from tests.variants import measure_on, numbered

SIZE = 1024
QUICK: dict[str, Any] = {"samples": 2, "sample_ns": 100_000, "warm_up_ns": 1_000_000}
# `tile` is another type in each copy, the table another one, and `min` is a macro of PoCL's that the source takes away.
SOURCE = """
#define min(a, b) FACTOR
#if FACTOR > 2
typedef float2 tile;
#else
typedef float tile;
#endif
__constant int counted[2] = {FACTOR, sizeof(tile)};
static float helper(float a) { return min(a, 7) * a / counted[0] * 2; }
__kernel void twice(__global const float *x, __global float *output) {
    output[get_global_id(0)] = helper(x[get_global_id(0)]) + (WRONG);
}
"""


@pytest.fixture(autouse=True)
def _merges(programs: ProgramCache) -> None:
    if not programs.merges:
        pytest.skip("this driver gains nothing from programs that are shared")


@pytest.fixture
def built(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is given to the compiler."""
    seen: list[str] = []
    build = backend._build

    def note(source: str, options: str) -> Program:
        seen.append(source)
        return build(source, options)

    monkeypatch.setattr(backend, "_build", note)
    return seen


def variant(factor: int, source: str = SOURCE, wrong: str = "0", entry: str = "twice") -> Variant:
    options = f"-DFACTOR={factor} -DWRONG={wrong}"
    return Variant({"FACTOR": factor}, (), Launch(source, entry, options, (SIZE,), (16,), ("x", "output")), {})


def run(programs: ProgramCache, *variants: Variant, together: bool = True) -> Profiled:
    backend = programs.backend
    values = (np.arange(SIZE) % 16 / 8).astype(np.float32)
    buffers: dict[str, Buffer] = {"x": backend.upload(values)}
    reference = backend.upload(2 * values)
    return measure_on(programs, numbered(variants), buffers, reference, relative=1e-5, together=together, **QUICK)


def statuses(measured: Profiled) -> list[str]:
    return [trial.status for trial in measured.trials]


def unique(text: str) -> str:
    """A source that no test has built yet."""
    return f"// {random.random()}\n{text}"


def test_variants_of_one_source_are_built_at_once_and_the_winner_alone(
    backend: Backend, programs: ProgramCache, built: list[str]
) -> None:
    source = unique(SOURCE)
    measured = run(programs, *(variant(factor, source) for factor in range(1, 6)))
    assert statuses(measured) == ["ok"] * 5, measured.trials
    assert len(built) == 2 and built[0].count("static float helper") == 5 and built[1] == source
    shares = [trial.compile_ns for trial in measured.trials]
    assert min(shares) > 0 and len(set(shares)) == 1
    program = backend.load_binary(bytes(measured.binary))  # the winner's own, under its own name
    x, output = backend.upload(np.ones(SIZE, np.float32)), backend.allocate(4 * SIZE)
    backend.enqueue(backend.bind(program, "twice", (SIZE,), (16,), [x, output]))
    assert np.array_equal(backend.read(output).view(np.float32), np.full(SIZE, 2, np.float32))
    again = run(programs, *(variant(factor, source) for factor in range(1, 6)))
    assert [trial.compile_ns for trial in again.trials] == [0] * 5


def test_nothing_is_shared_unless_it_is_wished(programs: ProgramCache, built: list[str]) -> None:
    source = unique(SOURCE)
    assert statuses(run(programs, variant(1, source), variant(2, source), together=False)) == ["ok", "ok"]
    assert built == [source] * 2


@pytest.mark.parametrize(
    ("broken", "status"),
    [
        (variant(3, wrong="1"), "correctness"),
        (variant(3, wrong="absent"), "compile"),
        (variant(3, entry="absent"), "compile"),
        (replace(variant(3), main=replace(variant(3).main, arguments=("x",))), "runtime"),
        (
            replace(variant(3), main=replace(variant(3).main, local_size=(1 << 20,), global_size=(1 << 20,))),
            "device_limits",
        ),
    ],
)
def test_who_fails_beside_others_fails_as_it_does_alone(programs: ProgramCache, broken: Variant, status: str) -> None:
    alone = run(programs, broken, together=False)
    beside = run(programs, variant(1), variant(2), broken, variant(4))
    assert statuses(beside) == ["ok", "ok", status, "ok"]
    message, wanted = (re.sub(r"tempfile_\w+", "", each.message) for each in (beside.trials[2], alone.trials[0]))
    assert message == wanted
    assert beside.best != 2


def test_a_source_that_cannot_be_shared_costs_one_build_once(programs: ProgramCache, built: list[str]) -> None:
    source = unique(SOURCE.replace("__constant int counted[2]", "#define COUNTED __constant int counted[2]\nCOUNTED"))
    assert statuses(run(programs, variant(1, source), variant(2, source))) == ["ok", "ok"]
    assert len(built) == 3 and built[1:] == [source] * 2
    assert statuses(run(programs, variant(3, source), variant(4, source))) == ["ok", "ok"]
    assert built[3:] == [source] * 2


def test_a_variant_that_does_not_compile_keeps_others_apart_once_only(programs: ProgramCache, built: list[str]) -> None:
    source = unique(SOURCE)
    assert statuses(run(programs, variant(1, source), variant(2, source, wrong="absent"))) == ["ok", "compile"]
    del built[:]
    assert statuses(run(programs, variant(3, source), variant(4, source))) == ["ok", "ok"]
    assert built[0] != source


def test_a_compiled_variant_has_a_program_of_its_own(programs: ProgramCache) -> None:
    source = unique(SOURCE)
    one, other = variant(1, source), variant(2, source)
    run(programs, one, other)
    binary = compile_variant(programs, one, {"x": 4 * SIZE, "output": 4 * SIZE}).binary
    assert b"gputune_" not in binary and b"twice" in binary


@pytest.mark.parametrize("op", ["ArgMax", "Typed"])
def test_configurations_are_verified_in_one_program_whatever_type_they_write(
    bench: Any, programs: ProgramCache, built: list[str], op: str
) -> None:
    """Each family's own tests compare what it computes in shared programs with its reference."""
    family = family_of(op)
    check_together(bench, op, ONE_OF_EACH[op], list(family.space(ONE_OF_EACH[op], bench.limits).configurations()))
    assert sum(bool(re.search("gputune_.*_2_", source)) for source in built) == 1


def test_stages_find_their_kernels_in_a_program_of_several(bench: Any, built: list[str]) -> None:
    problem = ConvProblem(2, 9, 7, 16, 20, (3, 3), pads=(1, 1, 0, 1), bias=True)
    every = [each for each in family_of("Conv").space(problem, bench.limits).configurations() if each["ALG"] == 4]
    check_together(bench, "Conv", problem, every)
    assert sum(bool(re.search("gputune_.*_2_", source)) for source in built) == 1


def check_together(bench: Any, op: str, problem: Any, every: Sequence[Mapping[str, int]]) -> None:
    """Three of these configurations compute what the reference does."""
    family, backend = family_of(op), bench.backend
    instances = [family.render(problem, each) for each in random.Random(op).sample(every, min(3, len(every)))]
    inputs, dtype = family.sample_inputs(problem, np.random.default_rng(1)), family.output(problem).dtype
    want, tolerance = family.reference(problem, inputs), family.tolerance(problem)
    buffers = {name: backend.upload(np.ascontiguousarray(value)) for name, value in inputs.items()}
    variants = numbered(one.variant({}) for one in instances)
    reference = backend.upload(np.ascontiguousarray(want, dtype))
    bounds: dict[str, Any] = {"relative": tolerance.relative, "absolute": tolerance.absolute}
    measured = measure_on(bench.programs, variants, buffers, reference, together=True, dtype=dtype, **bounds, **QUICK)
    assert statuses(measured) == ["ok"] * 3

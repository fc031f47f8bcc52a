"""Test where a context's tensors and weights lie."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputune.client.context import builder
from gputune.client.context.builder import Built, Wanted, build, build_all
from gputune.client.errors import MemoryPlanError
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.plan import Operation, Plan, Task
from gputune.client.tuning.outcome import untuned
from gputune.client.tuning.search.task_search import device_limits, task_key
from gputune.core.batches import Compiled
from gputune.core.launches import Sharing
from gputune.kernels import catalogue
from gputune.kernels.catalogue import Packaged, family_of
from gputune.kernels.family import TensorSpec
from gputune.runtime.context.records import BufferRef
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.server.protocol.messages import CompileKernel, ExecuteKernel
from tests.asking_package.tenfold import FAMILY, FEATURE, TenfoldProblem
from tests.client import models


class FakeTarget:
    """A target with the null device's identity, changed; what it computes is zeros."""

    def __init__(self, **changes: int | str) -> None:
        assert NULL_REPORT.identity is not None
        self.device = replace(NULL_REPORT.identity, **changes).to_dict()  # type: ignore[arg-type]
        self.compiled: list[bytes] = []
        self.requests: list[CompileKernel] = []

    def upload(self, value: Any) -> int:
        return 1

    def execute_kernel(self, request: ExecuteKernel) -> dict[str, bytes]:
        return {name: bytes(nbytes) for name, nbytes in request.outputs.items()}

    def free(self, *handles: int) -> None:
        pass

    def compile_kernels(self, requests: Sequence[CompileKernel], compiled: Callable[[int, Compiled], object]) -> None:
        self.requests = list(requests)
        for place, request in enumerate(requests):
            self.compiled.append(f"binary of {request.variant.main.entry}".encode())
            compiled(place, Compiled(self.compiled[-1], 1, 1))


def wanted(folder: Path) -> Wanted:
    """A small network with configurations that need no device."""
    assert NULL_REPORT.identity is not None
    limits = device_limits(NULL_REPORT.identity)
    plan = lower(read_model(models.save(models.conv_relu_gemm(), folder)))
    outcomes: Any = {}
    for task in plan.tasks:
        family = family_of(task.op)
        outcomes[task_key(task).digest] = SimpleNamespace(configuration=family.default(task.problem, limits))
    return Wanted(plan, outcomes)


def built(folder: Path, growth: float | None = None, **changes: int) -> Built:
    """The same, built; with a growth as a compact context."""
    target: Any = FakeTarget(**changes)
    return build_all([wanted(folder)], target, compact=growth is not None, growth=growth or 0.0)


def refs(graph: Any) -> Iterator[BufferRef]:
    for launch in graph.launches:
        yield from (argument for argument in launch.arguments if isinstance(argument, BufferRef))


@pytest.mark.parametrize(("alignment", "multiple"), [(1, 4096), (128, 4096), (8192, 8192)])
def test_offsets_suit_devices_with_a_larger_alignment(tmp_path: Path, alignment: int, multiple: int) -> None:
    made = built(tmp_path, base_address_alignment_bytes=alignment)
    assert {ref.offset % multiple for ref in refs(made.graph)} == {0}
    for kind in ("arena", "weights"):
        assert any(ref.kind == kind and ref.offset for ref in refs(made.graph)), kind


def test_only_what_grows_is_packed_at_load(tmp_path: Path) -> None:
    """With zeros in place of packed weights, equal ones are kept once."""
    packed, everything, nothing = (built(tmp_path, growth) for growth in (None, 0.0, 1e9))
    assert packed.packing == nothing.packing == () and packed.weights == nothing.weights
    operations = {launch.operation for part in everything.packing for launch in part.launches}
    assert operations and len(everything.weights) > len(packed.weights)
    some = built(tmp_path, 1.3)
    assert {launch.operation for part in some.packing for launch in part.launches} < operations


def test_a_constant_that_no_allocation_holds_names_its_operation(tmp_path: Path) -> None:
    with pytest.raises(MemoryPlanError, match=r"a constant of operation 'Gemm_3' needs \d+ bytes; .* at most 1500 by"):
        built(tmp_path, max_allocation_bytes=1500)


@pytest.mark.parametrize("sharing", ["auto", "one"])
def test_launches_share_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sharing: Sharing) -> None:
    """Where the driver charges for each, or where it is asked for, whatever the driver. What is compiled together runs
    once on buffers of its own, and each launch finds its kernel."""
    assert NULL_REPORT.identity is not None
    limits = device_limits(NULL_REPORT.identity)
    plan = lower(read_model(models.save(models.residual_block(), tmp_path)))
    outcomes = {each.key: each for each in (untuned(task, limits) for task in plan.tasks)}

    def made(sharing: Sharing, **changes: int | str) -> tuple[Built, list[CompileKernel]]:
        target: Any = FakeTarget(**changes)
        wanted = [Wanted(plan, outcomes)]
        return build_all(wanted, target, sharing=sharing), target.requests

    pocl: Any = {"platform": "Portable Computing Language", "compute_units": 1}
    monkeypatch.setattr(builder, "PROGRAMS_PER_UNIT", 1)

    apart, requests = made("each", **pocl)
    another_driver = made(sharing)[0]
    assert another_driver == apart if sharing == "auto" else len(another_driver.programs) == 1
    together, fewer = made(sharing, **pocl)
    assert len(fewer) == len(together.programs) < len(requests) == len(apart.programs)
    assert sum(len(each.variant.main.sequence) for each in fewer) == sum(
        len(each.variant.main.sequence) for each in requests
    )
    for request in fewer:
        given = [each for kernel in request.variant.main.sequence for each in kernel.arguments if isinstance(each, str)]
        assert set(given) == request.buffers.keys() and min(request.buffers.values()) > 0
    for one, alone in zip(together.graph.launches, apart.graph.launches, strict=True):
        assert one.entry.endswith(f"_{alone.entry}")
        assert one.writes == alone.writes != ()
        assert together.programs[one.program].binary
        assert (one.global_size, one.local_size, one.arguments) == (
            alone.global_size,
            alone.local_size,
            alone.arguments,
        )


def test_tasks_that_run_the_same_launch_share_a_program(tmp_path: Path) -> None:
    """The parts at the beginning of two tensors of different sizes are taken alike."""
    assert NULL_REPORT.identity is not None
    limits = device_limits(NULL_REPORT.identity)
    bounds = {"begin": models.integers(0), "end": models.integers(8), "axis": models.integers(0)}
    parts = "p = Slice(a, begin, end, axis)\n q = Slice(b, begin, end, axis)\n r = Exp(a)"
    signature = "(float[16,8] a, float[32,8] b) => (float[8,8] p, float[8,8] q, float[16,8] r)"
    model = models.build(signature, parts, bounds)
    plan = lower(read_model(models.save(model, tmp_path)))
    moves = plan.tasks[:2]
    assert moves[0].op == moves[1].op != plan.tasks[2].op
    outcomes = {each.key: each for each in (untuned(task, limits) for task in plan.tasks)}
    target: Any = FakeTarget()
    made = build(plan, outcomes, target)
    first, second, other = made.graph.launches
    assert first.program == second.program != other.program
    assert len(made.programs) == 2
    assert sorted(each.binary for each in made.programs) == sorted(target.compiled)


@pytest.mark.parametrize("share", ["each", "auto"])
def test_programs_name_the_features_of_all_their_kernels(monkeypatch: pytest.MonkeyPatch, share: Sharing) -> None:
    """Also programs that launches share, and those of persistent kernels."""
    monkeypatch.setattr(builder, "PROGRAMS_PER_UNIT", 1)
    names, fast = "abcdef", (1, 0, 0, 0, 0, 0)
    tensors = {name: TensorSpec(name, (64 * place,)) for place, name in enumerate(names, start=1)}
    tensors |= {f"{name}10": replace(each, name=f"{name}10") for name, each in tensors.items()}
    with catalogue.using({"Tenfold": Packaged(FAMILY, "asking_package 1.0")}):
        tasks = [Task("Tenfold", TenfoldProblem(tensors[name].shape[0]), 1) for name in names]
        operations = tuple(
            Operation(name, task, {"input": name}, f"{name}10") for name, task in zip(names, tasks, strict=True)
        )
        inputs, outputs = (tuple(tensors[name + end] for name in names) for end in ("", "10"))
        plan = Plan("six", inputs, outputs, operations, tensors, {}, aliases={})
        outcomes: Any = {
            task_key(task).digest: SimpleNamespace(configuration={"FAST": each})
            for task, each in zip(tasks, fast, strict=True)
        }
        target: Any = FakeTarget(platform="Portable Computing Language", name="pthread-x", compute_units=2)
        found = build_all([Wanted(plan, outcomes, persistent=True)], target, sharing=share)
    graph = found.graph
    assert [found.programs[launch.program].needs for launch in graph.launches] == (
        [(FEATURE,)] * 3 + [()] * 3 if share == "auto" else [(FEATURE,), *[()] * 5]
    )
    (launch,) = graph.persistent
    assert found.programs[launch.program].needs == (FEATURE,)

"""Where a context's tensors and weights lie."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputune.client.context.builder import Built, build
from gputune.client.errors import MemoryPlanError
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.tuning.search.task_search import device_limits, task_key
from gputune.kernels.catalogue import family_of
from gputune.runtime.context.records import BufferRef
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.server.protocol.messages import ExecuteKernel
from tests.client import models


class FakeTarget:
    """A target with the null device's identity, changed; what it computes is zeros."""

    def __init__(self, **changes: int) -> None:
        assert NULL_REPORT.identity is not None
        self.device = replace(NULL_REPORT.identity, **changes).to_dict()  # type: ignore[arg-type]

    def upload(self, value: Any) -> int:
        return 1

    def execute_kernel(self, request: ExecuteKernel) -> dict[str, bytes]:
        return {name: bytes(nbytes) for name, nbytes in request.outputs.items()}

    def free(self, *handles: int) -> None:
        pass


def built(folder: Path, **changes: int) -> Built:
    """A small network, built from configurations that need no device."""
    assert NULL_REPORT.identity is not None
    limits = device_limits(NULL_REPORT.identity)
    plan = lower(read_model(models.save(models.conv_relu_gemm(), folder)))
    target: Any = FakeTarget(**changes)
    outcomes: Any = {}
    for task in plan.tasks:
        family = family_of(task.op)
        outcomes[task_key(task).digest] = SimpleNamespace(
            configuration=family.default(task.problem, limits), binary=b"binary"
        )
    return build(plan, outcomes, target, lambda task, outcome: None)


def refs(graph: Any) -> Iterator[BufferRef]:
    for launch in graph.launches:
        yield from (argument for argument in launch.arguments if isinstance(argument, BufferRef))


@pytest.mark.parametrize(("alignment", "multiple"), [(1, 4096), (128, 4096), (8192, 8192)])
def test_offsets_suit_devices_with_a_larger_alignment(tmp_path: Path, alignment: int, multiple: int) -> None:
    made = built(tmp_path, base_address_alignment_bytes=alignment)
    assert {ref.offset % multiple for ref in refs(made.graph)} == {0}
    for kind in ("arena", "weights"):
        assert any(ref.kind == kind and ref.offset for ref in refs(made.graph)), kind


def test_a_constant_that_no_allocation_holds_names_its_operation(tmp_path: Path) -> None:
    with pytest.raises(MemoryPlanError, match=r"a constant of operation 'Gemm_3' needs \d+ bytes; .* at most 1500 by"):
        built(tmp_path, max_allocation_bytes=1500)

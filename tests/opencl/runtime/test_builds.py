"""Test programs that several processes have compiled: a context loads them without source and computes correctly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.cache import PerformanceCache
from gputune.client.context import builder
from gputune.client.context.kernel_repository import KernelRepository
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.reference import evaluate
from gputune.client.tuning.outcome import untuned
from gputune.client.tuning.search.task_search import device_limits
from gputune.core.identity import DeviceIdentity
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import Context
from gputune.runtime.loading.executors import executor_on
from gputune.server.workers.pool import most_compilers
from tests.client.model.test_alternatives import two_blocks
from tests.client.models import save
from tests.shared_server import SharedServer


def workers(server: SharedServer) -> int:
    return len(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split())


@pytest.mark.night
def test_a_context_that_several_processes_have_compiled(server: SharedServer, backend: Backend, tmp_path: Path) -> None:
    plan = lower(read_model(save(two_blocks(), tmp_path)))
    seen: list[int] = []

    class Watched(KernelRepository):
        def compile_kernels(self, requests: Any, compiled: Any) -> None:
            def heard(place: int, reply: Any) -> None:
                seen.append(workers(server))
                compiled(place, reply)

            super().compile_kernels(requests, heard)

    with (
        server.connect() as client,
        PerformanceCache.open(tmp_path / "cache.sqlite", secret=b"s" * 32) as cache,
    ):
        identity = DeviceIdentity.from_dict(client.device)
        outcomes = {one.key: one for one in (untuned(task, device_limits(identity)) for task in plan.tasks)}
        repository = Watched(client, [cache], {})
        built = builder.build(plan, outcomes, repository, persistent=True)
        again = builder.build(plan, outcomes, repository, persistent=True)
        assert client.requests["compile"] == len(built.programs) == len(seen) // 2, "nothing is compiled twice"
    assert again.programs == built.programs and again.weights == built.weights
    if identity.device_type == "cpu" and most_compilers() > 1:
        assert 1 < max(seen) <= most_compilers()
    path = tmp_path / "model.bin"
    write_context(path, Context((built.graph,), built.programs, built.weights, identity.to_dict(), "test", {}, {}))
    with open_context(path) as file:
        executor = executor_on(backend, file, None, strict=True)
    assert not executor.warnings
    inputs = {t.name: np.ones(t.shape, t.dtype) for t in executor.graph.inputs}
    (want,), (got,) = evaluate(plan, inputs).values(), executor.run(inputs).values()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())

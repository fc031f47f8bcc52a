"""Run the contenders of `scripts/bench kernels` and `scripts/bench models`, as gputune.client.compare.contender does.

    python -m benchmarks.peers.contenders

Only a process of contenders imports this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from benchmarks.peers import limits
from benchmarks.peers.chain import Chain
from benchmarks.peers.rivals import MnnEngine, NumpyEngine, OnnxRuntimeNodes, OpenVinoNodes
from gputune.client.compare import contender, engines
from gputune.client.compare.engines import Arrays, Engine, block
from gputune.runtime.application.made_up_inputs import random_inputs
from gputune.runtime.backends import Backend, open_backend
from gputune.runtime.context.format import open_context
from gputune.runtime.devices.discovery import find, wanted_device

BATCH_NS = 20e6
"""How long a batch of launches lasts that is timed as a whole."""


def opened(device: str | None, profiling: bool = True) -> Backend:
    """Return a device as an application opens it. Raises DeviceNotFound."""
    return open_backend(find(wanted_device(device)).report, profiling=profiling)


class ChainEngine(Engine):
    """A context's launches alone, less conversions of layout, as networks run them: the host's clock over a batch."""

    def __init__(self, context: str, device: str | None) -> None:
        backend = opened(device, profiling=False)
        self._chain = Chain(backend, open_context(context))
        self.outputs()
        self._batch = self._chain.repeated(BATCH_NS)
        self.facts: Mapping[str, Any] = {
            "computes": backend.computes,
            "inputs": [asdict(tensor) for tensor in self._chain.graph.inputs],
        }

    def block_ns(self, seconds: float) -> list[float]:
        return block(self._batch, seconds)

    def outputs(self, draw: int = 0) -> Arrays:
        return self._chain.run(random_inputs(self._chain.graph.inputs, draw))


KINDS = {
    **engines.ENGINES,
    "chain": ChainEngine,
    "fma": lambda device: limits.FmaLimit(opened(device)),
    "memory": lambda device: limits.Bandwidth(opened(device)),
    "mnn": MnnEngine,
    "numpy": NumpyEngine,
    "onnxruntime nodes": OnnxRuntimeNodes,
    "openvino nodes": OpenVinoNodes,
}


if __name__ == "__main__":
    contender.main(KINDS)

"""Start the contenders of `scripts/bench kernels` and `scripts/bench models`, each in a process of its own (see
turns.py):

    python contenders.py KIND ARGUMENTS     reads questions from its input and answers each, line by line, in JSON

The first line it writes, when it is ready, holds facts about itself. A kind is a class that is made from its arguments
and runs the same thing over and over: `block` says how many nanoseconds each run took, `outputs` what it computes, and
`facts` whether it computes anything.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from benchmarks.peers.inputs import Arrays, inputs_in
from benchmarks.peers.rivals import MnnKind, NumpyKind, OnnxRuntimeKind, OpenVinoKind, TinygradKind
from gputune.client.compare.contender import block, end_with_parent

BATCH_NS = 20e6
"""How long a batch of launches lasts that is timed as a whole."""


class ContextKind:
    """A context binary in its executor, as an application runs it: inputs and outputs are copied."""

    def __init__(self, context: str, inputs: str, device: str | None) -> None:
        from gputune import runtime

        self._executor = runtime.load(context, device)
        self._inputs = inputs_in(inputs)
        self.facts = {"computes": self._executor.computes}

    def block(self, seconds: float, most: int) -> list[float]:
        return block(lambda: self._executor.run_timed(self._inputs)[1], seconds, most)

    def outputs(self) -> Arrays:
        return self._executor.run(self._inputs)


class ChainKind:
    """A context's launches alone, less conversions of layout, as networks run them: the host's clock over a batch."""

    def __init__(self, context: str, inputs: str, device: str | None) -> None:
        from benchmarks.peers.chain import Chain
        from gputune.runtime.backends import open_backend
        from gputune.runtime.context.format import open_context
        from gputune.runtime.devices.discovery import find, wanted_device

        backend = open_backend(find(wanted_device(device)).report, profiling=False)
        self._inputs = inputs_in(inputs)
        self._chain = Chain(backend, open_context(context))
        self._chain.run(self._inputs)
        self._repeated = self._chain.repeated(BATCH_NS)
        self.facts = {"computes": backend.computes}

    def block(self, seconds: float, most: int) -> list[float]:
        return block(self._repeated, seconds, most)

    def outputs(self) -> Arrays:
        return self._chain.run(self._inputs)


class NaiveKind:
    """Naive kernels one after the other."""

    def __init__(self, launches: list[tuple[str, dict[str, int]]], device: str | None) -> None:
        from benchmarks.peers import naive
        from gputune.runtime.backends import open_backend
        from gputune.runtime.devices.discovery import find, wanted_device

        self._backend = open_backend(find(wanted_device(device)).report)
        self._bound = naive.bound(self._backend, launches)
        self.facts = {"computes": False}

    def block(self, seconds: float, most: int) -> list[float]:
        return block(lambda: self._backend.time(self._bound, 1).wall_ns, seconds, most)

    def outputs(self) -> Arrays:
        return {}


class LimitKind:
    """What the device can reach: a question for "limits" is answered with both."""

    def __init__(self, device: str | None) -> None:
        from benchmarks.peers import limits
        from gputune.runtime.backends import open_backend
        from gputune.runtime.devices.discovery import find, wanted_device

        backend = open_backend(find(wanted_device(device)).report)
        self._fma, self._bandwidth = limits.FmaLimit.calibrated(backend), limits.Bandwidth(backend)
        self.facts = {"computes": False}

    def limit(self, bandwidth: bool) -> dict[str, float]:
        """GFLOP/s, and gigabytes a second where that is asked."""
        found = {"fma_gflops": self._fma.gflops()}
        return found | ({"gigabytes": self._bandwidth.gigabytes()} if bandwidth else {})


KINDS: Mapping[str, Callable[..., Any]] = {
    "chain": ChainKind,
    "context": ContextKind,
    "limit": LimitKind,
    "mnn": MnnKind,
    "naive": NaiveKind,
    "numpy": NumpyKind,
    "onnxruntime": OnnxRuntimeKind,
    "openvino": OpenVinoKind,
    "tinygrad": TinygradKind,
}


def answer(contender: Any, question: dict[str, Any]) -> dict[str, Any]:
    """The answer to {"do": "block", "seconds", "most"}, {"do": "outputs", "file"} or {"do": "limit", "bandwidth"}."""
    match question.pop("do"):
        case "block":
            return {"samples_ns": [round(sample) for sample in contender.block(**question)]}
        case "outputs":
            np.savez(question["file"], **contender.outputs())
            return {}
        case "limit":
            found: dict[str, float] = contender.limit(**question)
            return found
        case other:
            raise ValueError(f"there is no answer to {other!r}")


def main() -> None:
    end_with_parent()
    # Libraries write where they like: what this process has to say goes out by a way of its own.
    with os.fdopen(os.dup(1), "w") as out, suppress(BrokenPipeError):
        os.dup2(2, 1)

        def say(facts: Mapping[str, Any]) -> None:
            out.write(json.dumps(facts) + "\n")
            out.flush()

        contender = KINDS[sys.argv[1]](**json.loads(sys.argv[2]))
        say(contender.facts)
        for line in sys.stdin:
            say(answer(contender, json.loads(line)))


if __name__ == "__main__":
    main()

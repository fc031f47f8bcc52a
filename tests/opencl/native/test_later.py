"""Test asynchronous inferences of the C runtime on a real device."""

import threading
from pathlib import Path
from typing import Any

import numpy as np

from gputune.runtime.backends import Backend
from gputune.runtime.native.binding import Native
from gputune.runtime.native.declarations import CALLBACK
from gputune.runtime.native.memory import values
from tests.opencl.contexts import contexts, plan

__all__ = ["plan"]

INFERENCES = 20


def test_they_end_in_their_order_and_before_unloading(
    native: Native, backend: Backend, plan: Any, tmp_path: Path
) -> None:
    generator, ended, lock = np.random.default_rng(1), list[tuple[int, str]](), threading.Lock()
    path = contexts(backend, plan, tmp_path / "model.bin")
    with native.open(path) as file, native.device(file) as device, device.load(file) as graph:
        inputs = [
            {tensor.name: generator.standard_normal(tensor.shape).astype(tensor.dtype) for tensor in graph.info.inputs}
            for _ in range(INFERENCES)
        ]
        wanted = [graph.run(each) for each in inputs]
        outputs = [graph.outputs() for _ in inputs]

        def asked(number: int) -> Any:
            def done(user: object, code: int, error: object) -> None:
                with lock:
                    ended.append((number, native.code_name(code)))

            given, taken, callback = values(inputs[number]), values(outputs[number]), CALLBACK(done)
            native.checked("run_async", graph.pointer, given, len(given), taken, len(taken), callback, None)
            return given, taken, callback

        kept = [asked(number) for number in range(INFERENCES)]
    assert ended == [(number, "ok") for number in range(INFERENCES)]
    assert len(kept) == INFERENCES
    for want, got in zip(wanted, outputs, strict=True):
        assert all((want[name] == got[name]).all() for name in want)

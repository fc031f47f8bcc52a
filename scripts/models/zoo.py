"""Run models with default configurations and compare them with onnxruntime.

Each model goes the whole way: context-binary-generator with effort none on an embedded server, net-run on the result,
and a comparison of the outputs with onnxruntime's for the same seeded inputs. A model is right if each output is off by
at most 1e-3 of its largest value, and has its largest value in the same place. The exit code is 1 if a model is wrong
or fails.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

import tool
from gputune.client.outputs import file_stem
from models.zoo_models import ENTRIES, Entry, Shape, sample

Arrays = Mapping[str, npt.NDArray[Any]]

WORK = tool.ROOT / "build" / "zoo"
MOST_DEVIATION = 1e-3
SEED = 6


@dataclass(frozen=True)
class Result:
    """What became of a model. deviation: max|a-b| / max|b|, of its worst output, b being onnxruntime's; cosine: of the
    angle between the outputs, likewise. seconds: of the generation; inference_ms: of one run. failure: why there is
    nothing else, "" where there is."""

    model: str
    nodes: int = 0
    tasks: int = 0
    deviation: float = float("nan")
    same_place: bool = False
    cosine: float = float("nan")
    seconds: float = float("nan")
    inference_ms: float = float("nan")
    failure: str = ""

    @property
    def right(self) -> bool:
        return not self.failure and self.same_place and self.deviation <= MOST_DEVIATION


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/models/zoo", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="NAME|FILE", help=f"of {', '.join(ENTRIES)}, or ONNX files")
    parser.add_argument(
        "--input_dimensions", action="append", default=[], metavar="NAME=D0,D1,...", help="of the files' open inputs"
    )
    parser.add_argument("--device", help="of the embedded server, as the generator takes it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    options = parser.parse_args()
    entries = {name: entry_of(parser.error, name, options.input_dimensions) for name in options.models or ENTRIES}
    results = []
    for name, entry in entries.items():
        results.append(_result(name, entry, options.device))
        print(_described(results[-1]), flush=True)
    print(f"\n{_table(results)}")
    if options.json:
        rows = [{key: value for key, value in asdict(one).items() if value == value} for one in results]  # without NaN
        told = [row | {"right": one.right} for row, one in zip(rows, results, strict=True)]
        options.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    wrong = [one.model for one in results if not one.right]
    print(f"\n{len(results) - len(wrong)} of {len(results)} agree with onnxruntime {onnxruntime.__version__}")
    sys.exit(1 if wrong else 0)


def entry_of(refuse: Callable[[str], Any], name: str, given: Sequence[str]) -> Entry:
    """The entry of that name, or one for a file with these dimensions (NAME=D0,D1,...). `refuse` is told what is wrong
    with either, and does not come back."""
    if name in ENTRIES:
        return ENTRIES[name]
    path = Path(name)
    if not path.is_file():
        refuse(f"{name!r} is neither a file nor one of {', '.join(ENTRIES)}")
    dimensions: dict[str, Shape] = {}
    for text in given:
        tensor, _, sizes = text.rpartition("=")
        try:
            dimensions[tensor] = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            refuse(f"--input_dimensions {text}: it takes NAME=D0,D1,...")
    return Entry(lambda: path, dimensions)


def _result(name: str, entry: Entry, device: str | None) -> Result:
    folder = WORK / file_stem(name)
    try:
        return _run(name, entry, folder, device)
    except SystemExit as ended:  # what a command or a download ends with
        return Result(name, failure=str(ended.code))
    finally:
        for written in folder.glob("context/*.bin"):  # as large as the model
            written.unlink()


def _run(name: str, entry: Entry, folder: Path, device: str | None) -> Result:
    model = entry.file()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    inputs = inputs_of(session, entry)
    wanted = dict(zip([one.name for one in session.get_outputs()], session.run(None, inputs), strict=True))
    del session  # large models need the memory for the next steps
    arguments: list[str | Path] = ["--model", model, "--binary_file", "context", "--tuning_effort", "none"]
    arguments += entry.arguments
    arguments += ["--device", device] if device else []
    generated = tool.gputune(folder / "context", "context-binary-generator", *arguments, quiet=True)
    given = {key: value for key, value in inputs.items() if key not in entry.values}
    ran = tool.net_run(folder / "results", generated.context, _written(folder, given), 1, quiet=True)
    got = {key: np.frombuffer(ran.result(0, key), value.dtype).reshape(value.shape) for key, value in wanted.items()}
    return Result(
        model=name,
        nodes=len(onnx.load(model, load_external_data=False).graph.node),
        tasks=generated.summary["totals"]["tasks"],
        deviation=float(np.max([deviation_of(got[key], value) for key, value in wanted.items()])),  # NaN stays
        same_place=all(np.argmax(got[key]) == np.argmax(value) for key, value in wanted.items()),
        cosine=float(np.min([_cosine(got[key], value) for key, value in wanted.items()])),
        seconds=generated.seconds,
        inference_ms=ran.summary["inference_ns"][0] / 1e6,
    )


def inputs_of(session: onnxruntime.InferenceSession, entry: Entry) -> dict[str, npt.NDArray[Any]]:
    """Return seeded inputs. Ends the program if a shape is open."""
    numbers = np.random.default_rng(SEED)
    inputs = {}
    for one in session.get_inputs():
        shape = entry.dimensions.get(one.name, tuple(one.shape))
        if not all(isinstance(size, int) for size in shape):
            sys.exit(f"its input {one.name!r} has open dimensions {one.shape}; give them with --input_dimensions")
        dtype = {"float": "float32", "double": "float64"}.get(kind := one.type[len("tensor(") : -1], kind)
        value = entry.values.get(one.name)
        drawn = sample(entry, one.name, shape, dtype, numbers) if value is None else np.full(shape, value, dtype)
        inputs[one.name] = drawn
    return inputs


def _written(folder: Path, inputs: Arrays) -> Path:
    """The inputs as files, and the list that names them."""
    words = []
    for number, (name, value) in enumerate(inputs.items()):
        np.save(folder / f"input_{number}.npy", value)
        words.append(f"{name}:={folder / f'input_{number}.npy'}")
    path = folder / "inputs.txt"
    path.write_text(" ".join(words) + "\n", encoding="utf-8")
    return path


def deviation_of(got: npt.NDArray[Any], want: npt.NDArray[Any]) -> float:
    """Return max|a-b| / max|b|, b being what is wanted."""
    size = float(np.abs(want.astype(np.float64)).max())
    return float(np.abs(got.astype(np.float64) - want).max()) / (size or 1.0)


def _cosine(got: npt.NDArray[Any], want: npt.NDArray[Any]) -> float:
    a, b = (value.astype(np.float64).ravel() for value in (got, want))
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else float(np.array_equal(a, b))


def _described(one: Result) -> str:
    return f"{one.model}: {one.failure or ('right' if one.right else f'wrong, off by {one.deviation:.2e}')}"


def _table(results: Sequence[Result]) -> str:
    head = ("model", "nodes", "tasks", "deviation", "arg-max", "cosine", "generated s", "inference ms")
    rows = [
        (one.model, "-", "-", "failed", "-", "-", "-", "-")
        if one.failure
        else (
            one.model,
            str(one.nodes),
            str(one.tasks),
            f"{one.deviation:.1e}",
            "same" if one.same_place else "OTHER",
            f"{one.cosine:.6f}",
            f"{one.seconds:.1f}",
            f"{one.inference_ms:.1f}",
        )
        for one in results
    ]
    return tool.table(head, rows)


if __name__ == "__main__":
    main()

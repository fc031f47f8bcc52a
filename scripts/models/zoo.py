"""Run models with default configurations and compare them with onnxruntime.

Each model goes the whole way: context-binary-generator with effort none on an embedded server, and `--verify` on seeded
inputs. The exit code is 1 if an output of a model is not onnxruntime's, or if a model fails.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

import tool
from gputune.client.outputs import file_stem
from models.zoo_models import ENTRIES, Entry, Shape, sample

WORK = tool.ROOT / "build" / "zoo"
SEED = 6
FAILED = "failed"
HEAD = ("model", "tasks", "deviation", "generated s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/models/zoo", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="NAME|FILE", help=f"of {', '.join(ENTRIES)}, or ONNX files")
    parser.add_argument(
        "--input_dimensions", action="append", default=[], metavar="NAME=D0,D1,...", help="of the files' open inputs"
    )
    parser.add_argument("--device", help="of the embedded server, as the generator takes it")
    options = parser.parse_args()
    entries = {name: entry_of(parser.error, name, options.input_dimensions) for name in options.models or ENTRIES}
    rows = []
    for name, entry in entries.items():
        rows.append(_row(name, entry, options.device))
        print(*rows[-1], sep=", ", flush=True)
    print(f"\n{tool.table(HEAD, rows)}")
    wrong = [row[0] for row in rows if row[2] == FAILED]
    print(f"\n{len(rows) - len(wrong)} of {len(rows)} agree with onnxruntime {onnxruntime.__version__}")
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


def _row(name: str, entry: Entry, device: str | None) -> tuple[str, ...]:
    """What became of a model. Its deviation is max|a-b| / max|b| of its worst output, b being onnxruntime's."""
    folder = WORK / file_stem(name)
    try:
        generated = _generated(folder, entry, device)
    except SystemExit as ended:  # what a command or a download ends with
        print(ended.code, file=sys.stderr)
        return name, "-", FAILED, "-"
    finally:
        for written in folder.glob("context/*.bin"):  # as large as the model
            written.unlink()
    worst = max(error for graph in generated.summary["verified"].values() for error in graph.values())
    return name, str(generated.summary["totals"]["tasks"]), f"{worst:.1e}", f"{generated.seconds:.1f}"


def _generated(folder: Path, entry: Entry, device: str | None) -> tool.Run:
    model = entry.file()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    inputs = inputs_of(session, entry)
    del session  # large models need the memory for the next step
    folder.mkdir(parents=True, exist_ok=True)
    given = _written(folder, {key: value for key, value in inputs.items() if key not in entry.values})
    arguments: list[str | Path] = ["--model", model, "--binary_file", "context", "--tuning_effort", "none"]
    arguments += ["--verify", "--input_list", given, *entry.arguments]
    arguments += ["--device", device] if device else []
    return tool.gputune(folder / "context", "context-binary-generator", *arguments, quiet=True)


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


def _written(folder: Path, inputs: Mapping[str, npt.NDArray[Any]]) -> Path:
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


if __name__ == "__main__":
    main()

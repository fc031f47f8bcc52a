"""Run models with default configurations and compare them with onnxruntime.

Each model goes the whole way: context-binary-generator with effort none on an embedded server, and `--verify` on seeded
inputs. With --in_onnxruntime onnxruntime runs it with gputune's plugin, as in_onnxruntime/zoo.py says. The exit code is
1 if an output of a model is not onnxruntime's, or if a model fails.
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
from models import zoo_models
from models.in_onnxruntime import entries as parts
from models.in_onnxruntime import zoo as in_onnxruntime
from models.zoo_models import Entry, Shape, inputs_of

WORK = tool.ROOT / "build" / "zoo"
HEAD = ("model", "tasks", "deviation", "generated s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/models/zoo", description=__doc__)
    names = f"{', '.join(zoo_models.ENTRIES)}; with --in_onnxruntime {', '.join(parts.ENTRIES)}"
    parser.add_argument("models", nargs="*", metavar="NAME|FILE", help=f"of {names}; or ONNX files")
    parser.add_argument(
        "--input_dimensions", action="append", default=[], metavar="NAME=D0,D1,...", help="of the files' open inputs"
    )
    parser.add_argument("--device", help="of the embedded server, as the generator takes it")
    parser.add_argument("--in_onnxruntime", action="store_true", help="run in onnxruntime with gputune's plugin")
    parser.add_argument("--write", action="store_true", help="write the nodes that run where to nodes.json")
    options = parser.parse_args()
    known = parts.ENTRIES if options.in_onnxruntime else zoo_models.ENTRIES
    run, head = (in_onnxruntime.row, in_onnxruntime.HEAD) if options.in_onnxruntime else (row, HEAD)
    given = options.input_dimensions
    entries = {name: entry_of(parser.error, known, name, given) for name in options.models or known}
    rows, wrong = [], []
    for name, entry in entries.items():
        try:
            cells, right = run(name, entry, options.device)
        except SystemExit as ended:  # what a command or a download ends with
            print(ended.code, file=sys.stderr)
            cells, right = ["failed"], False
        rows.append([name, *cells, *[""] * (len(head) - 1 - len(cells))])
        wrong += [] if right else [name]
        print("right" if right else "WRONG", *rows[-1], sep=", ", flush=True)
    if options.write:
        parts.write_table()
    print(f"\n{tool.table(head, rows)}")
    agree = f"{len(rows) - len(wrong)} of {len(rows)} agree with onnxruntime {onnxruntime.__version__}"
    print(f"\n{agree}{'; wrong: ' if wrong else ''}{', '.join(wrong)}")
    sys.exit(1 if wrong else 0)


def entry_of(refuse: Callable[[str], Any], known: Mapping[str, Entry], name: str, given: Sequence[str]) -> Entry:
    """The entry of that name, or one for a file with these dimensions (NAME=D0,D1,...). `refuse` is told what is wrong
    with either, and does not come back."""
    if name in known:
        return known[name]
    path = Path(name)
    if not path.is_file():
        refuse(f"{name!r} is neither a file nor one of {', '.join(known)}")
    dimensions: dict[str, Shape] = {}
    for text in given:
        tensor, _, sizes = text.rpartition("=")
        try:
            dimensions[tensor] = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            refuse(f"--input_dimensions {text}: it takes NAME=D0,D1,...")
    return Entry(lambda: path, dimensions)


def row(name: str, entry: Entry, device: str | None) -> tuple[list[str], bool]:
    """Return the cells of a model, and that its outputs are right. Its deviation is max|a-b| / max|b| of its worst
    output, b being onnxruntime's. Ends the program otherwise."""
    folder = WORK / file_stem(name)
    model = entry.file()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    inputs = inputs_of(session, entry)
    del session  # large models need the memory for the next step
    folder.mkdir(parents=True, exist_ok=True)
    given = _written(folder, {key: value for key, value in inputs.items() if key not in entry.values})
    more: list[str | Path] = ["--verify", "--input_list", given, *entry.arguments]
    try:
        made = tool.generate(folder / "context", model, "", "none", *more, device=device, quiet=True)
    finally:
        (folder / "context" / "context.bin").unlink(missing_ok=True)  # as large as the model
    worst = max(error for graph in made.summary["verified"].values() for error in graph.values())
    return [str(made.summary["totals"]["tasks"]), f"{worst:.1e}", f"{made.seconds:.1f}"], True


def _written(folder: Path, inputs: Mapping[str, npt.NDArray[Any]]) -> Path:
    """The inputs as files, and the list that names them."""
    words = []
    for number, (name, value) in enumerate(inputs.items()):
        np.save(folder / f"input_{number}.npy", value)
        words.append(f"{name}:={folder / f'input_{number}.npy'}")
    path = folder / "inputs.txt"
    path.write_text(" ".join(words) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    main()

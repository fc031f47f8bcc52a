"""Run models by this gputune and by another, and compare every bit.

The other one makes the files with effort none, because a newer gputune reads what an older one writes: a context of
each kind, an ONNX file and a package. Both run them as beside_worker.py does. The exit code is 1 if any bit differs.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

import tool
from gputune.client.outputs import file_stem
from gputune.core.launches import ARGUMENT_FORMS
from models import zoo_models
from models.in_onnxruntime import entries
from models.zoo_models import Entry, inputs_of

WORK = tool.ROOT / "build" / "beside"
WORKER = Path(__file__).with_name("beside_worker.py")
GIVEN = 4
"""Inputs, of which the worker uses as many."""
MOST_SAID = 8
"""Outputs of a model that differ."""
WHOLE, PARTS = "float32", "parts"
KINDS: Mapping[str, Mapping[str, str]] = {
    WHOLE: {},
    "float16": {"precision_mode": "float16_storage"},
    "compact": {"weights": "compact"},
    **{form: {"argument_form": form} for form in ARGUMENT_FORMS[1:]},
    PARTS: {"unsupported": "host"},
}
"""The settings of each kind of context. Arguments have the first form unless it says another one."""
IN_PARTS = {name: entry for name, entry in entries.ENTRIES.items() if entries.NODES[name]["parts"]}
ENTRIES: Mapping[str, Entry] = {**IN_PARTS, **zoo_models.ENTRIES}
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass
class Way:
    """Count what was compared of one way of running a kind of files."""

    models: set[str] = field(default_factory=set)
    forms: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    bits: int = 0

    def row(self, wrong: int) -> tuple[str, ...]:
        """Return the cells of a table. wrong: so many outputs differ."""
        forms = (", ".join(f"{form} {count}" for form, count in sorted(one.items())) for one in self.forms)
        return str(len(self.models)), *forms, f"{self.bits:,}", f"{wrong} outputs differ" if wrong else "equal"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/models/beside", description=__doc__)
    parser.add_argument("python", type=Path, help="a Python that has another gputune")
    parser.add_argument("models", nargs="*", metavar="NAME", help=f"of {', '.join(ENTRIES)}")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="KIND,...", help="default: %(default)s")
    parser.add_argument("--device", help="to generate for and to run on, as the generator takes it")
    options = parser.parse_intermixed_args()
    if unknown := {*options.models} - {*ENTRIES} | {*options.kinds.split(",")} - {*KINDS}:
        parser.error(f"{sorted(unknown)[0]!r} is none of {', '.join([*ENTRIES, *KINDS])}")
    ways: dict[str, Way] = {}
    wrong: list[str] = []
    for name in options.models or ENTRIES:
        kinds = [kind for kind in options.kinds.split(",") if (kind == PARTS) == (name not in zoo_models.ENTRIES)]
        if kinds:
            folder = _files(options.python, name, kinds, options.device)
            other, mine = (_ran(python, folder, options.device) for python in (options.python, sys.executable))
            found = compare(ways, name, mine, other)
            wrong += found
            print(name, "differs" if found else "equal", *found[:MOST_SAID], sep=", ", flush=True)
    head = ("files, way", "models", "this one's inferences", "the other's", "bits", "")
    counts = Counter(key.partition("|")[0] for key in wrong)
    print("\n" + tool.table(head, [(way, *found.row(counts[way])) for way, found in ways.items()]))
    sys.exit(1 if wrong else 0)


def _files(python: Path, name: str, kinds: list[str], device: str | None) -> Path:
    """Return a folder with the files of a model, made once for a device, and with inputs."""
    entry = ENTRIES[name]
    folder = WORK / (device or "default") / file_stem(name)
    folder.mkdir(parents=True, exist_ok=True)
    session = onnxruntime.InferenceSession(entry.file(), providers=["CPUExecutionProvider"])
    given: dict[str, Any] = {}
    for key, value in inputs_of(session, entry).items():
        given |= {f"{number} {key}": np.roll(value, number) for number in range(GIVEN)}
    np.savez(folder / "inputs.npz", **given)
    for kind in (kind for kind in kinds if not (folder / f"{kind}.bin").exists()):
        config = folder / f"{kind}.json"
        settings = {**KINDS[kind], "kernel_repo_path": str(folder.parent / "programs")}
        config.write_text(json.dumps(settings), encoding="utf-8")
        arguments: list[str | Path] = ["--model", entry.file(), "--binary_file", kind, "--output_dir", folder]
        arguments += ["--config_file", config, "--tuning_effort", "none", "--log_level", "warn", *entry.arguments]
        arguments += ["--ep_context", folder / f"{WHOLE}.onnx"] if kind == WHOLE else []
        arguments += ["--device", device] if device else []
        _called(python, "-m", "gputune", "context-binary-generator", *arguments)
        if kind == WHOLE:
            package = folder / f"{WHOLE}.gtpkg"
            _called(python, "-m", "gputune", "package", folder / f"{WHOLE}.bin", "--output", package)
    return folder


def _ran(python: Path | str, folder: Path, device: str | None) -> Arrays:
    """Return the results of the worker."""
    results = folder / "results.npz"
    _called(python, WORKER, folder, results, *([device] if device else []))
    with np.load(results) as found:
        return dict(found)


def _called(*command: str | Path) -> None:
    """Run a program. Ends this one if it fails."""
    if code := subprocess.run(command, cwd=tool.ROOT).returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with exit code {code}")


def compare(ways: dict[str, Way], model: str, mine: Arrays, other: Arrays) -> list[str]:
    """Add the results of a model to their ways; return the outputs that differ, or that only one has."""
    wrong = sorted({*mine} ^ {*other})
    for key in sorted({*mine} & {*other}):
        name, _, output = key.partition("|")
        way, both = ways.setdefault(name, Way()), (mine[key], other[key])
        way.models.add(model)
        if output:
            way.bits += 8 * other[key].nbytes
            first, second = ((one.dtype, one.shape, one.tobytes()) for one in both)
            wrong += [key] if first != second else []
        else:
            for forms, found in zip(way.forms, both, strict=True):
                forms.update(found.tolist())
    return wrong


if __name__ == "__main__":
    main()

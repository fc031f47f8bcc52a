"""Run models by the C runtime and by Python's, and compare every bit and every count of copies.

Each is generated with effort none, or given as a context binary, and runs on the same seeded inputs through the same
interface of Python. It runs with its persistent kernels, if it has any, and launch by launch; on arrays, on memory
handles and in a group. The exit code is 1 if anything differs.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import numpy as np

import tool
from gputune.client.outputs import file_stem
from gputune.runtime import Executor, load
from gputune.runtime.context.format import read_header
from gputune.runtime.context.records import TensorRecord
from gputune.runtime.contexts.device import RUNTIME
from gputune.runtime.loading.groups import load_group
from gputune.runtime.values import Array
from models.zoo_models import ENTRIES, Entry, sample, untuned_context

SEED, INFERENCES = 6, 3
FORMS = ("persistent", "one by one", "handles", "group")
T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/models/zoo_native", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="NAME|FILE", help=f"of {', '.join(ENTRIES)}, or context binaries")
    parser.add_argument("--device", help="to generate for and to run on, as the generator takes it")
    options = parser.parse_args()
    known = {file_stem(title): entry for title, entry in ENTRIES.items()}
    rows, wrong = [], 0
    for name in options.models or ENTRIES:
        context = Path(name) if name not in ENTRIES else untuned_context(name, options.device)
        found = dict(_compared(context, known.get(context.stem, Entry(Path)), options.device))
        rows.append((context.stem, str(len(read_header(context).graphs[0].launches)), *(found[form] for form in FORMS)))
        wrong += any(said not in ("equal", "none here") for said in found.values())
        print(*rows[-1], sep=", ", flush=True)
    print("\n" + tool.table(["model", "launches", *FORMS], rows))
    sys.exit(1 if wrong else 0)


def _compared(context: Path, entry: Entry, device: str | None) -> Iterator[tuple[str, str]]:
    """By form whether all is equal, or what is not."""
    numbers = np.random.default_rng(SEED)
    with ExitStack() as open_now:
        both = [open_now.enter_context(one) for one in _in_both(lambda: load(context, device))]
        tensors = both[0].graph.inputs
        given = [_inputs(entry, tensors, numbers) for _ in range(INFERENCES)]
        yield "persistent", _on_arrays(both, given, persistent=True) if both[0].graph.persistent else "none here"
        yield "one by one", _on_arrays(both, given, persistent=False)
        yield "handles", _on_handles(both, given)
    with ExitStack() as open_now:
        groups = [open_now.enter_context(one) for one in _in_both(lambda: load_group([context], device))]
        yield "group", _on_arrays([group[context.stem] for group in groups], given, persistent=False)


def _in_both(opened: Callable[[], T]) -> list[T]:
    """Return what is opened in Python's runtime and in C."""
    found = []
    for runtime in ("python", "c"):
        os.environ[RUNTIME] = runtime
        found.append(opened())
    return found


def _inputs(entry: Entry, tensors: tuple[TensorRecord, ...], numbers: np.random.Generator) -> dict[str, Array]:
    values = {one.name: sample(entry, one.name, one.shape, one.dtype, numbers) for one in tensors}
    return {name: np.ascontiguousarray(value) for name, value in values.items()}


def _on_arrays(both: Sequence[Executor], given: Sequence[Mapping[str, Array]], persistent: bool) -> str:
    for executor in both:
        executor.persistent_kernels = persistent
    return _first(_difference(both, [executor.run(one) for executor in both]) for one in given)


def _on_handles(both: Sequence[Executor], given: Sequence[Mapping[str, Array]]) -> str:
    inputs, outputs = both[0].graph.inputs, both[0].graph.outputs
    handles = [{tensor.name: one.allocate_for(tensor) for tensor in (*inputs, *outputs)} for one in both]

    def results(values: Mapping[str, Array]) -> Iterator[Mapping[str, Array]]:
        for executor, own in zip(both, handles, strict=True):
            for tensor in inputs:
                own[tensor.name].view(tensor.dtype, tensor.shape)[...] = values[tensor.name]
            yield executor.run(
                {one.name: own[one.name] for one in inputs}, {one.name: own[one.name] for one in outputs}
            )

    return _first(_difference(both, list(results(values))) for values in given)


def _difference(both: Sequence[Executor], results: Sequence[Mapping[str, Array]]) -> str:
    """Return what differs in an inference of both: bits, or what was copied for a tensor."""
    wanted, got = results
    theirs, ours = (executor.counters.last for executor in both)
    if other := [name for name, one in wanted.items() if one.tobytes() != got[name].tobytes()]:
        return f"other bits of {other[0]!r}"
    return next((f"{name}: {ours[name]}, Python's {one}" for name, one in theirs.items() if one != ours[name]), "")


def _first(differences: Iterator[str]) -> str:
    return next(filter(None, differences), "equal")


if __name__ == "__main__":
    main()

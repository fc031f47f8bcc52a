"""Run models by the C runtime and by Python's, and compare every bit and every count of copies.

Each is generated with effort none, or given as a context binary, and runs on the same seeded inputs. It runs with its
persistent kernels, if it has any, and launch by launch; on arrays, on memory handles and in a group. The exit code is 1
if anything differs.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

import tool
from gputune.client.outputs import file_stem
from gputune.runtime import Executor, load
from gputune.runtime.context.format import read_header
from gputune.runtime.context.records import TensorRecord
from models.zoo_models import ENTRIES, Entry, sample, untuned_context

sys.path.append(str(tool.ROOT))
from gputune.runtime.native.binding import Device, File, Graph, Native
from gputune.runtime.native.memory import Array, Memory
from tests.native.compiling import library, opencl_library

SEED, INFERENCES = 6, 3
COUNTED = ("bytes_copied", "writes", "reads", "maps", "allocations")
FORMS = ("persistent", "one by one", "handles", "group")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/models/zoo_native", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="NAME|FILE", help=f"of {', '.join(ENTRIES)}, or context binaries")
    parser.add_argument("--device", help="to generate for and to run on, as the generator takes it")
    options = parser.parse_args()
    os.environ |= {**opencl_library(), **os.environ}
    known = {file_stem(title): entry for title, entry in ENTRIES.items()}
    native, rows, wrong = Native(library()), [], 0
    for name in options.models or ENTRIES:
        context = Path(name) if name not in ENTRIES else untuned_context(name, options.device)
        entry = known.get(context.stem, Entry(Path))
        found = dict(_compared(native, context, entry, options.device))
        rows.append((context.stem, str(len(read_header(context).graphs[0].launches)), *(found[form] for form in FORMS)))
        wrong += any(said not in ("equal", "none here") for said in found.values())
        print(*rows[-1], sep=", ", flush=True)
    print("\n" + tool.table(["model", "launches", *FORMS], rows))
    sys.exit(1 if wrong else 0)


def _compared(native: Native, context: Path, entry: Entry, device: str | None) -> Iterator[tuple[str, str]]:
    """By form whether all is equal, or what is not."""
    numbers = np.random.default_rng(SEED)
    with (
        load(context, device) as executor,
        native.open(context) as file,
        native.device(file, executor.device.name) as opened,
    ):
        tensors = executor.graph.inputs
        given = [_inputs(entry, tensors, numbers) for _ in range(INFERENCES)]
        executor.persistent_kernels = True
        yield "persistent", _on_arrays(executor, opened, file, given) if executor.graph.persistent else "none here"
        executor.persistent_kernels = False
        yield "one by one", _on_arrays(executor, opened, file, given)
        yield "handles", _on_handles(executor, opened, file, given)
        with opened.group([file]) as group, opened.load(file, group=group, one_by_one=True) as graph:
            yield "group", _first(_difference(executor.run(one), graph.run(one)) for one in given)


def _inputs(entry: Entry, tensors: tuple[TensorRecord, ...], numbers: np.random.Generator) -> dict[str, Array]:
    values = {one.name: sample(entry, one.name, one.shape, one.dtype, numbers) for one in tensors}
    return {name: np.ascontiguousarray(value) for name, value in values.items()}


def _on_arrays(executor: Executor, device: Device, file: File, given: list[dict[str, Array]]) -> str:
    with device.load(file, one_by_one=not executor.persistent_kernels) as graph:
        differences = (_difference(executor.run(one), graph.run(one)) or _counts(executor, graph) for one in given)
        return _first(differences)


def _on_handles(executor: Executor, device: Device, file: File, given: list[dict[str, Array]]) -> str:
    inputs, outputs = executor.graph.inputs, executor.graph.outputs
    theirs = {tensor.name: executor.allocate_for(tensor) for tensor in (*inputs, *outputs)}
    ours = {tensor.name: device.allocate(tensor.nbytes) for tensor in (*inputs, *outputs)}
    with device.load(file, one_by_one=True) as graph:

        def difference(values: Mapping[str, Array]) -> str:
            for tensor in inputs:
                theirs[tensor.name].view(tensor.dtype, tensor.shape)[...] = values[tensor.name]
                ours[tensor.name].array(tensor.dtype, tensor.shape)[...] = values[tensor.name]
            named: list[dict[str, Memory]] = [{one.name: ours[one.name] for one in some} for some in (inputs, outputs)]
            wanted = executor.run(
                {one.name: theirs[one.name] for one in inputs}, {one.name: theirs[one.name] for one in outputs}
            )
            graph.run(*named)
            got = {one.name: ours[one.name].array(one.dtype, one.shape) for one in outputs}
            return _difference(wanted, got) or _counts(executor, graph)

        said = _first(map(difference, given))
    for memory in ours.values():
        memory.close()
    return said


def _difference(wanted: Mapping[str, Array], got: Mapping[str, Array]) -> str:
    return next((f"other bits of {name!r}" for name, one in wanted.items() if one.tobytes() != got[name].tobytes()), "")


def _counts(executor: Executor, graph: Graph) -> str:
    """What the last inference of either has copied, if it is not the same."""
    last = executor.counters.last.values()
    theirs = {name: sum(getattr(tensor, name) for tensor in last) for name in COUNTED}
    ours = {name: count for name, count in graph.counters()[1].items() if name in COUNTED}
    return "" if ours == theirs else f"counts {ours}, Python's {theirs}"


def _first(differences: Iterator[str]) -> str:
    return next(filter(None, differences), "equal")


if __name__ == "__main__":
    main()

"""Run the files of a folder on its inputs in all ways, and keep the outputs: beside_worker FOLDER RESULTS [DEVICE]

The keys of RESULTS are "WAY|NUMBER OUTPUT" for outputs and what was copied, and WAY for the forms of its inferences. It
uses what all versions of gputune have.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import gputune
from gputune.runtime import load_group

Values = Mapping[str, npt.NDArray[Any]]
folder, results = map(Path, sys.argv[1:3])
device = sys.argv[3] if sys.argv[3:] else None
kept: dict[str, Any] = {}
INFERENCES = 4
"""The first in which forms take turns: two of them may be recorded."""
with np.load(folder / "inputs.npz") as file:
    given = dict(file)


def keep(way: str, runner: Any, tensors: Any, run: Callable[[Values], Values]) -> None:
    """Keep the outputs of an inference on each of the inputs, what it copied and its form, behind those that there
    are."""
    forms = list(kept.get(way, ()))
    for number in range(INFERENCES):
        found = run({one.name: given[f"{number} {one.name}"] for one in tensors})
        kept.update({f"{way}|{len(forms)} {name}": np.array(value) for name, value in found.items()})
        copied = runner.counters.last if hasattr(runner, "counters") else {}
        kept[f"{way}|{len(forms)} bytes copied"] = np.array([copied[label].bytes_copied for label in sorted(copied)])
        forms.append(getattr(runner, "last_form", "onnxruntime"))
    kept[way] = np.array(forms)


def keep_executor(path: Path, executor: Any) -> None:
    """Keep inferences on arrays, of a context alone also on handles and in place, in all of its forms."""
    graph = executor.graph
    inputs = {one.name: executor.allocate_for(one) for one in graph.inputs}
    outputs = {one.name: executor.allocate_for(one) for one in graph.outputs}

    def on_handles(values: Values) -> Values:
        for one in graph.inputs:
            inputs[one.name].view(one.dtype, one.shape)[...] = values[one.name]
        found: Values = executor.run(inputs, outputs)
        return found

    def in_place(values: Values) -> Values:
        for name, array in executor.shared_inputs.items():
            array[...] = values[name]
        executor.run_in_place()
        found: Values = executor.shared_outputs
        return found

    ways = {"arrays": executor.run}
    if path in contexts:
        ways |= {"handles": on_handles} | ({"in place": in_place} if executor.shared_inputs else {})
    for persistent in (True, False) if executor.has_persistent else (False,):
        executor.persistent_kernels = persistent
        for name, run in ways.items():
            keep(f"{path.name}, {name}", executor, graph.inputs, run)


contexts = [path for path in sorted(folder.glob("*.bin")) if path.stem != "parts"]
for path in [*contexts, *sorted(folder.glob("*.onnx")), *sorted(folder.glob("*.gtpkg"))]:
    with gputune.load(path, device) as context:
        for executor in context.executors.values():
            keep_executor(path, executor)
        if not context.executors:  # onnxruntime runs a model in parts
            keep(path.name, context, context.inputs, context.run)
if contexts:
    with load_group(contexts, device) as group:
        for path in (*contexts, *contexts):  # in turns
            keep(f"{path.name}, group", group[path.stem], group[path.stem].graph.inputs, group[path.stem].run)
np.savez(results, **kept)

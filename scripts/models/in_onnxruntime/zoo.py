"""Run real models in onnxruntime with gputune's plugin, and count the nodes per provider.

Each model goes the whole way: context-binary-generator --unsupported host with effort none, and a session of
onnxruntime. A model is right if each output is off by at most 1e-4 of its largest value from onnxruntime's CPU
provider, or by what onnxruntime itself is off without its optimizations, if that is more, as in quantised models. Nodes
per provider have to be those of nodes.json, which `scripts/models/zoo --in_onnxruntime --write` writes.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnxruntime

import gputune
import tool
from gputune.client.context.verifying.distance import distance
from gputune.client.outputs import file_stem
from models.in_onnxruntime.entries import NODES, cut_of, nodes_of
from models.zoo_models import Entry, inputs_of

WORK = tool.ROOT / "build" / "zoo_in_onnxruntime"
HEAD = ("model", "share", "deviation", "onnxruntime's own", "nodes")
MOST_DEVIATION = 1e-4
ERRORS_ONLY = 3
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Result:
    """What became of a model. deviation: of its worst output; own: of onnxruntime without optimizations. providers: how
    many nodes run in each. failure: what else is wrong."""

    share: float
    deviation: float
    own: float
    providers: Mapping[str, Counter[str]]
    failure: str

    @property
    def right(self) -> bool:
        return not self.failure and self.deviation <= max(MOST_DEVIATION, self.own)

    @property
    def cells(self) -> list[str]:
        """Return what a table says of it."""
        counts = [f"{op} {count}" for ops in self.providers.values() for op, count in ops.most_common(6)]
        numbers = f"{100 * self.share:.1f}%", f"{self.deviation:.1e}", f"{self.own:.1e}"
        return [*numbers, ", ".join([self.failure] if self.failure else counts)]


def row(name: str, entry: Entry, device: str | None) -> tuple[list[str], bool]:
    """Return the cells of a model, and whether it is right; its nodes are in NODES then. Ends the program if it cannot
    be run."""
    model, cut = entry.file(), cut_of(entry)
    before, NODES[name] = NODES.get(name), nodes_of(cut)
    more = ("--unsupported", "host", *entry.arguments)
    made = tool.generate(WORK / file_stem(name), model, "", "none", *more, device=device, quiet=True)
    plain = {optimized: _session(model, optimized) for optimized in (True, False)}
    inputs = inputs_of(plain[True], entry)
    wanted, others = (_run(session, inputs) for session in plain.values())
    session = _session(made.folder / "context_ctx.onnx", True, device)
    got = _run(session, inputs)
    providers: dict[str, Counter[str]] = {}
    for group in session.get_provider_graph_assignment_info():
        providers.setdefault(group.ep_name, Counter()).update(node.op_type for node in group.get_nodes())
    ours = providers.get(gputune.onnxruntime.ep_name(), Counter())
    failure = "other nodes than nodes.json says" if before not in (None, NODES[name]) else ""
    if ours != Counter({"EPContext": len(cut.parts)} if cut.parts else {}):
        failure = f"gputune runs {dict(ours)}, and {len(cut.parts)} parts were cut"
    result = Result(cut.share, _deviation(got, wanted), _deviation(others, wanted), providers, failure)
    return result.cells, result.right


def _session(path: Path, optimized: bool, device: str | None = None) -> onnxruntime.InferenceSession:
    """A session, with gputune's plugin if the file is a cut one."""
    options, levels = onnxruntime.SessionOptions(), onnxruntime.GraphOptimizationLevel
    options.log_severity_level = ERRORS_ONLY
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    if not path.stem.endswith("_ctx"):
        return onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    gputune.onnxruntime.register()
    options.add_provider_for_devices(gputune.onnxruntime.devices(), {"device": device} if device else {})
    return onnxruntime.InferenceSession(path, options)


def _run(session: onnxruntime.InferenceSession, inputs: Arrays) -> dict[str, npt.NDArray[Any]]:
    names = [one.name for one in session.get_outputs()]
    taken = {one.name for one in session.get_inputs()}
    found = session.run(names, {name: value for name, value in inputs.items() if name in taken})
    return dict(zip(names, found, strict=True))


def _deviation(got: Arrays, wanted: Arrays) -> float:
    return max(distance(got[key], value) for key, value in wanted.items())

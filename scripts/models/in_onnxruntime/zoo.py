"""Run real models in onnxruntime with gputune's plugin, and count the nodes per provider.

Each model goes the whole way: context-binary-generator --unsupported host with effort none, and a session of
onnxruntime. A model is right if each output is off by at most 1e-4 of its largest value from onnxruntime's CPU
provider, or by what onnxruntime itself is off without its optimizations, if that is more, as in quantised models. Nodes
per provider have to be those of nodes.json, which --write writes. The exit code is 1 if a model is wrong.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

import gputune
import tool
from gputune.client.outputs import file_stem
from models.in_onnxruntime.entries import ENTRIES, NODES, TABLE, cut_of, nodes_of
from models.zoo import deviation_of, inputs_of
from models.zoo_models import Entry

WORK = tool.ROOT / "build" / "zoo_in_onnxruntime"
MOST_DEVIATION = 1e-4
ERRORS_ONLY = 3
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Result:
    """What became of a model. deviation: of its worst output; own: of onnxruntime without optimizations. providers: how
    many nodes run in each. failure: what else is wrong."""

    model: str
    share: float = 0.0
    deviation: float = float("nan")
    own: float = float("nan")
    providers: Mapping[str, Counter[str]] | None = None
    failure: str = ""

    @property
    def right(self) -> bool:
        return not self.failure and self.deviation <= max(MOST_DEVIATION, self.own)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/models/in_onnxruntime/zoo", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="NAME", help=f"of {', '.join(ENTRIES)}")
    parser.add_argument("--device", help="to generate for and to run on, as the generator takes it")
    parser.add_argument("--write", action="store_true", help="write the nodes of these models to the table")
    options = parser.parse_args()
    if unknown := [name for name in options.models if name not in ENTRIES]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(ENTRIES)}")
    results, table = [], dict(NODES)
    for name in options.models or ENTRIES:
        results.append(_result(name, ENTRIES[name], table, options.device))
        print(_described(results[-1]), flush=True)
    print(f"\n{_table(results)}")
    if options.write:
        rows = {name: table[name] for name in ENTRIES if name in table}
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(nodes)}" for name, nodes in rows.items())
        TABLE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    wrong = [one.model for one in results if not one.right]
    print(f"\n{len(results) - len(wrong)} of {len(results)} agree with onnxruntime {onnxruntime.__version__}")
    sys.exit(1 if wrong else 0)


def _result(name: str, entry: Entry, table: dict[str, Any], device: str | None) -> Result:
    folder = WORK / file_stem(name)
    try:
        model, cut = entry.file(), cut_of(entry)
        before, table[name] = table.get(name), nodes_of(cut)
        file = _generated(folder, model, entry, device)
        plain = {optimized: _session(model, optimized) for optimized in (True, False)}
        inputs = inputs_of(plain[True], entry)
        wanted, others = (_run(session, inputs) for session in plain.values())
        session = _session(file, True, device)
        got = _run(session, inputs)
    except SystemExit as ended:  # what a command or a download ends with
        return Result(name, failure=str(ended.code))
    providers: dict[str, Counter[str]] = {}
    for group in session.get_provider_graph_assignment_info():
        providers.setdefault(group.ep_name, Counter()).update(node.op_type for node in group.get_nodes())
    ours = providers.get(gputune.onnxruntime.ep_name(), Counter())
    failure = "other nodes than nodes.json says" if before not in (None, table[name]) else ""
    if ours != Counter({"EPContext": len(cut.parts)} if cut.parts else {}):
        failure = f"gputune runs {dict(ours)}, and {len(cut.parts)} parts were cut"
    if any(one[key].shape != value.shape for one in (got, others) for key, value in wanted.items()):
        return Result(name, failure="an output has another shape")
    return Result(name, cut.share, _deviation(got, wanted), _deviation(others, wanted), providers, failure)


def _generated(folder: Path, model: Path, entry: Entry, device: str | None) -> Path:
    arguments: list[str | Path] = ["--model", model, "--binary_file", "context", "--tuning_effort", "none"]
    arguments += ["--unsupported", "host", *entry.arguments]
    arguments += ["--device", device] if device else []
    return tool.gputune(folder, "context-binary-generator", *arguments, quiet=True).folder / "context_ctx.onnx"


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
    sized = [(got[key], value) for key, value in wanted.items() if value.size]
    return float(np.max([deviation_of(one, other) for one, other in sized]))  # NaN stays


def _described(one: Result) -> str:
    return f"{one.model}: {one.failure or ('right' if one.right else f'wrong, off by {one.deviation:.2e}')}"


def _table(results: Sequence[Result]) -> str:
    rows = []
    for one in results:
        counts = [f"{op} {count}" for ops in (one.providers or {}).values() for op, count in ops.most_common(6)]
        numbers = (f"{100 * one.share:.1f}%", f"{one.deviation:.1e}", f"{one.own:.1e}")
        rows.append((one.model, *numbers, ", ".join(counts)))
    return tool.table(("model", "share", "deviation", "onnxruntime's own", "nodes"), rows)


if __name__ == "__main__":
    main()

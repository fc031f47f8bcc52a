"""Compare random ONNX models with onnxruntime: through the references of the lowered plan, or on a device.

    scripts/fuzz graphs [--seed N] [--count 1000] [--jobs 2] [--device [NAME]] [--kind KIND] [--json FILE]

Each model has a seed of its own, the next whole number, so a range of seeds continues where another one ended. What
becomes of a model: it agrees; gputune refuses it, by an error that names what is not supported; it differs for a reason
in differences.py; or it fails. A failure is printed with the command that repeats it, the node that fails alone, if one
does, and the model, kept in build/fuzz. The exit code is 1 when one has failed.
"""

import argparse
import json
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import onnx

import tool
from gputune.client.errors import GputuneError
from gputune.client.model.graph import Array, Graph
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.reference import evaluate
from gputune.client.run.local_device import LocalDevice
from gputune.runtime.backends import open_backend
from gputune.runtime.devices.discovery import choose, discover, wanted_device
from stress.graphs import random_casts, random_functions
from stress.graphs.differences import difference
from stress.graphs.random_casts import Run
from stress.graphs.random_graphs import Made, Maker, session, single
from stress.graphs.random_nodes import DRAWS

FOLDER = tool.ROOT / "build" / "fuzz"
AGREES, REFUSED, DIFFERS, FAILED = "agrees", "refused", "documented difference", "failed"
ALLOWED = 2e-4
"""Of the largest value and 1: gputune's references are float64, onnxruntime adds in float32 and any order."""
CHUNK = 20
"""Seeds that a process takes at once."""
SHOWN_EVERY = 10.0

USUAL = "usual"


class RefusedWhole(Exception):
    """Say that onnxruntime computes each node of a model, but not the model."""


@dataclass(frozen=True)
class Kind:
    """Describe a kind of models. make: gives the model of a seed; wrong: says what is wrong with it; of_single_nodes:
    whether its nodes can be tried alone."""

    help: str
    make: Callable[[int], Made]
    wrong: Callable[[Made, Run], str]
    of_single_nodes: bool = True


@dataclass(frozen=True)
class Outcome:
    """What became of the model of a seed; `detail` says why, `node` what fails alone."""

    seed: int
    kind: str
    detail: str = ""
    node: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `scripts/fuzz graphs`."""
    parser.add_argument(
        "--count", type=int, default=1000, help="models, of this seed and the next (default: %(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument(
        "--device", nargs="?", const="", metavar="NAME",
        help="run on this OpenCL device (default: the one that GPUTUNE_DEVICE names, or the best) with effort none",
    )  # fmt: skip
    told = "; ".join(f"{name}: {kind.help}" for name, kind in KINDS.items())
    parser.add_argument("--kind", choices=KINDS, default=USUAL, help=f"of models (default: %(default)s): {told}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes counts, refusals and failures there")


def run(options: argparse.Namespace) -> int:
    """Runs all seeds and returns the exit code."""
    if options.count < 1 or options.jobs < 1:
        raise ValueError("--count and --jobs are at least 1")
    seeds = range(options.seed, options.seed + options.count)
    tally = Tally(seeds, options)
    try:
        for outcome in outcomes(seeds, options.jobs, options.device, options.kind):
            tally.add(outcome)
    finally:
        tally.end()
    return 1 if tally.kinds[FAILED] else 0


class Tally:
    """Counts outcomes, prints failures and progress, and writes the summary."""

    def __init__(self, seeds: range, options: argparse.Namespace) -> None:
        self.kinds: Counter[str] = Counter()
        self._options, self._seeds = options, seeds
        self._found: list[Outcome] = []
        self._began = self._shown = time.monotonic()

    def add(self, outcome: Outcome) -> None:
        """Counts one more."""
        if not self.kinds:
            self._shown = time.monotonic()  # an estimate from the first one would count what starting takes
        self.kinds[outcome.kind] += 1
        if outcome.kind != AGREES:
            self._found.append(outcome)
        if outcome.kind == FAILED:
            print(
                f"{outcome.detail}{outcome.node and f'; alone: {outcome.node}'}\n  {self._repeating(outcome)}",
                flush=True,
            )
        if time.monotonic() - self._shown >= SHOWN_EVERY:
            self._shown = time.monotonic()
            print(self._progress(), flush=True)

    def end(self) -> None:
        """The counts, how to go on where the run was interrupted, and --json."""
        done = self.kinds.total()
        print(f"{done} of {len(self._seeds)} models: {self._counts()}; {time.monotonic() - self._began:.0f} s")
        reasons = Counter(outcome.detail for outcome in self._found if outcome.kind in (REFUSED, DIFFERS))
        for reason, count in reasons.most_common():
            print(f"{count:>6}  {reason}")
        if done < len(self._seeds):
            print(f"continue with: scripts/fuzz graphs --seed {self._seeds[done]} --count {len(self._seeds) - done}")
        if self._options.json:
            content = {
                "seeds": [self._seeds.start, self._seeds.start + done],
                "device": self._options.device,
                "counts": dict(self.kinds),
                "found": [asdict(outcome) for outcome in self._found],
            }
            self._options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def _progress(self) -> str:
        done = self.kinds.total()
        left = (time.monotonic() - self._began) / done * (len(self._seeds) - done)
        return f"{done} of {len(self._seeds)}: {self._counts()}; {left:.0f} s left"

    def _counts(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items())) or "none"

    def _repeating(self, outcome: Outcome) -> str:
        device = self._options.device
        chosen = "" if device is None else f" --device {device}".rstrip()
        chosen += f" --kind {self._options.kind}" if self._options.kind != USUAL else ""
        again = f"scripts/fuzz graphs --seed {outcome.seed} --count 1 --jobs 1{chosen}"
        return f"{again}   ({os.path.relpath(_kept(outcome.seed))})"


def outcomes(seeds: range, jobs: int, device: str | None, kind: str) -> Iterator[Outcome]:
    """The outcomes in the order of seeds. Raises RuntimeError where a process dies, with the seeds it may have been."""
    chunks = [seeds[first : first + CHUNK] for first in range(0, len(seeds), CHUNK)]
    if jobs == 1:
        chunks = [seeds[first : first + 1] for first in range(len(seeds))]
        for chunk in chunks:
            yield from several(chunk, device, kind)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        done = 0
        try:
            for found in _in_order(pool, chunks, device, kind, 2 * jobs):
                yield from found
                done += len(found)
        except BrokenProcessPool:
            end = min(done + 2 * jobs * CHUNK, len(seeds))
            raise RuntimeError(f"a process has died, at one of the seeds {seeds[done]} to {seeds[end - 1]}") from None


def _in_order(
    pool: Executor, chunks: list[range], device: str | None, kind: str, ahead: int
) -> Iterator[list[Outcome]]:
    """What `several` returns for each chunk, so many of which are handed out before they are asked for."""
    waiting = [pool.submit(several, chunk, device, kind) for chunk in chunks[:ahead]]
    for place in range(len(chunks)):
        yield waiting[place].result()
        if place + ahead < len(chunks):
            waiting.append(pool.submit(several, chunks[place + ahead], device, kind))


_runs: dict[str | None, Run] = {}


def several(seeds: range, device: str | None, kind: str) -> list[Outcome]:
    """The outcomes of some seeds, in this process, which opens the device once."""
    if device not in _runs:
        _runs[device] = by_references if device is None else on_device(device)
    return [outcome_of(seed, _runs[device], kind) for seed in seeds]


def by_references(graph: Graph, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """Computes a graph by the references of its plan."""
    with np.errstate(all="ignore"):
        return evaluate(lower(graph), inputs)


def on_device(name: str) -> Run:
    """Computes graphs on a device, with default configurations. Raises RuntimeError where there is none."""
    local = LocalDevice(open_backend(choose(discover(), wanted_device(name or None)).report))
    return lambda graph, inputs: local.load(graph).run(inputs)


def outcome_of(seed: int, compute: Run, kind: str = USUAL) -> Outcome:
    """What becomes of one model; a failed one is kept in FOLDER."""
    made = KINDS[kind].make(seed)
    try:
        wrong = KINDS[kind].wrong(made, compute)
    except RefusedWhole as error:
        return Outcome(seed, AGREES, f"onnxruntime refuses the whole of what it runs in parts: {error}")
    except GputuneError as error:
        return Outcome(seed, REFUSED, _general(str(error)))
    except Exception as error:  # whatever a model brings about is what is looked for
        wrong = f"{type(error).__name__}: {error}"
    if not wrong:
        return Outcome(seed, AGREES)
    node = culprit(made, compute) if KINDS[kind].of_single_nodes else None
    if node is not None and (reason := difference(node, {**made.values, **made.weights})):
        return Outcome(seed, DIFFERS, f"{node.op_type}: {reason}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    onnx.save(made.model, str(_kept(seed)))
    return Outcome(seed, FAILED, f"seed {seed}: {wrong}", "" if node is None else _words(node, made))


def _outputs_differ(made: Made, compute: Run) -> str:
    """Say what is wrong with the outputs of a model. Raises RefusedWhole."""
    try:
        names = [output.name for output in made.model.graph.output]
        want = dict(zip(names, session(made.model).run(None, dict(made.inputs)), strict=True))
    except Exception as error:  # onnxruntime's errors have no class of their own
        raise RefusedWhole(str(error)) from error
    return differing(compute(imported(made.model, made.dimensions), made.inputs), want)


def imported(model: onnx.ModelProto, dimensions: Mapping[str, tuple[int, ...]]) -> Graph:
    """The model as gputune reads it from a file. Raises GputuneError."""
    with tempfile.TemporaryDirectory(prefix="gputune-fuzz-") as folder:
        path = Path(folder) / "random.onnx"
        path.write_bytes(model.SerializeToString())
        return read_model(path, dimensions)


def differing(got: Mapping[str, Array], want: Mapping[str, Array]) -> str:
    """What is wrong with outputs; empty when they are right."""
    for name, value in want.items():
        mine = got[name]
        if mine.shape != value.shape or mine.dtype != value.dtype:
            return f"output {name!r} is {mine.dtype}{mine.shape} instead of {value.dtype}{value.shape}"
        if value.dtype != np.float32:
            if not np.array_equal(mine, value):
                return f"output {name!r} has {np.count_nonzero(mine != value)} other values of {value.size}"
            continue
        allowed = ALLOWED * (1 + np.abs(value).max(initial=0, where=np.isfinite(value)))
        if not np.allclose(mine, value, 0, allowed, equal_nan=True):
            with np.errstate(invalid="ignore"):
                off = np.nanmax(np.abs(mine.astype(np.float64) - value), initial=0)
            return f"output {name!r} is off by {off:.3g}, allowed {allowed:.3g}"
    return ""


def culprit(made: Made, compute: Run) -> onnx.NodeProto | None:
    """The first node that is wrong by itself, in a model of its own; None where they are only wrong together."""
    nodes, opset = [*made.model.graph.node], made.model.opset_import[0].version
    bodies = {each.name: each.node[0] for each in made.model.functions}
    for call in nodes:
        node = onnx.NodeProto()
        node.CopyFrom(bodies.get(call.op_type, call))
        del node.input[:], node.output[:]
        node.input.extend(call.input)
        node.output.extend(call.output)
        if node.op_type == "Constant":
            continue
        inputs = {name: made.values[name] for name in node.input if name in made.values}
        constants = {name: made.weights[name] for name in node.input if name in made.weights}
        model = single(node, inputs, constants, opset)
        for info, name in zip(model.graph.output, node.output, strict=True):
            info.CopyFrom(_typed(name, made.values[name]))
        want = {name: made.values[name] for name in node.output}
        try:
            if differing(compute(imported(model, {}), inputs), want):
                return node
        except GputuneError:
            continue
        except Exception:  # as in outcome_of
            return node
    return None


def _typed(name: str, value: Array) -> onnx.ValueInfoProto:
    kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    return onnx.helper.make_tensor_value_info(name, kind, value.shape)


def _words(node: onnx.NodeProto, made: Made) -> str:
    known = {**made.values, **made.weights}
    shapes = ", ".join(f"{known[name].dtype}{list(known[name].shape)}" if name else "none" for name in node.input)
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    return f"{node.op_type}-{made.model.opset_import[0].version}({shapes}) {attributes}"


def _general(message: str) -> str:
    """A refusal without the names of the model, so that equal ones can be counted."""
    message = re.sub(r"\S*random.onnx", "...", message)
    return re.sub(r"'[^']*'", "'...'", re.sub(r"\d+", "N", message))[:200]


def _kept(seed: int) -> Path:
    return FOLDER / f"graph-{seed}.onnx"


KINDS: Mapping[str, Kind] = {
    USUAL: Kind("whatever runs", lambda seed: Maker(seed, DRAWS).make(), _outputs_differ),
    "hard": Kind(
        "one to five nodes, with infinite, NaN, huge and tiny values",
        lambda seed: Maker(seed, DRAWS, hard=True).make(),
        _outputs_differ,
    ),
    "functions": Kind(
        "functions that call functions, with default attributes",
        random_functions.made,
        _outputs_differ,
        of_single_nodes=False,
    ),
    "casts": Kind(
        "casts among six types, compared bit by bit",
        random_casts.made,
        lambda made, compute: random_casts.wrong(made, compute, lambda model: imported(model, {})),
        of_single_nodes=False,
    ),
}

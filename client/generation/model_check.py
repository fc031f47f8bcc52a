"""Describe a model before any tuning: what runs, what it costs, and how long tuning may take."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from gputune.client.context.memory.weights import read_again, weight_bytes
from gputune.client.errors import ConfigError, ModelError, Refusal, UnsupportedNodes
from gputune.client.generation.precision import check_quantised
from gputune.client.model.alternatives import Alternatives
from gputune.client.model.graph import Precision
from gputune.client.model.importer import Value, import_nodes, load, told_value
from gputune.client.model.lowering import refusals_of
from gputune.client.model.model_files import ModelFile, StateChoice, combined, with_states
from gputune.client.model.nearest import nearest_form
from gputune.client.model.op_packages import in_use, load_packages
from gputune.client.model.parts import Cut, cut_of, described
from gputune.client.model.plan import Plan, Task
from gputune.client.model.state import Decoder, Stateful, with_state
from gputune.client.report.problems import words
from gputune.client.target.connecting import choose_target
from gputune.client.tuning.measuring.peaks import Peaks, measured
from gputune.client.tuning.search.effort import EFFORTS, Effort, finalists_for, trials_for
from gputune.client.tuning.search.task_search import device_limits, task_key
from gputune.core.dtypes import FLOAT
from gputune.core.identity import DeviceIdentity
from gputune.core.precision import EXACT
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits, Work
from gputune.runtime.devices.discovery import NULL_REPORT

TRIAL_SECONDS = 0.3
"""What a trial takes, compiling included, by what tuning has taken with PoCL on two cores. Kernels that run for
milliseconds take longer."""
PROGRAM_SECONDS = 0.6
"""What it takes to compile a program of a context, with its part of a persistent kernel, by the same."""

CONTEXTS = 2
"""The untuned context and a tuned one at least are made, with all of their programs, to be compared."""

COUNTED = 2000
"""A space is counted so far; more configurations change no effort but full."""

ASSUMES = (
    f"{TRIAL_SECONDS} s for each trial, compiling included, {PROGRAM_SECONDS} s for each program of the untuned "
    "context, as much for a tuned context, and all of the effort's --compare_seconds",
    "an empty performance cache and no --tuning_budget",
    "the roofline: every operation at the peaks, each tensor read or written once, in memory and not in caches, "
    "but a weight of several operations once in all",
)


@dataclass(frozen=True)
class Checked:
    """What is known of a model. `refusals` are the nodes that cannot run; there is a model only where there are none.

    `nodes` is how many the model has once constants are folded, as far as they were looked at.
    """

    path: Path
    input_dimensions: Mapping[str, tuple[int, ...]]
    input_values: Mapping[str, Value]
    nodes: int
    node_ops: Mapping[str, str]
    """The operator of each node that runs, by the node's name."""
    refusals: tuple[Refusal, ...] = ()
    model: Alternatives | None = None
    mode: str = FLOAT
    """The precision mode; a device that cannot multiply in float16 has float16_storage in the place of float16."""
    cut: Cut | str = ""
    """The parts that can run, or why they are not known; empty for a whole model."""
    decoder: Decoder | None = None
    """The model with its state, where it is to have one."""

    @property
    def runs_wholly(self) -> bool:
        return self.model is not None


def check_model(
    path: Path,
    input_dimensions: Mapping[str, tuple[int, ...]],
    input_values: Mapping[str, Value] | None = None,
    precision: Precision = Precision(),  # noqa: B008 - it does not change
    narrow: bool = False,
    state: StateChoice | None = None,
) -> Checked:
    """Import and lower a model in a precision. narrow: with float32 in the place of float64. state: what it is to
    remember. Raises ModelError for what is wrong with the model and not with single nodes, ConfigError for a wish that
    has no effect."""
    values, model, decoder, cut = input_values or {}, load(path, narrow), None, partial(_made, _not_cut)
    try:
        if state is None:
            imported = import_nodes(model, path, input_dimensions, values)
            cut = partial(_made, partial(cut_of, model, path, input_dimensions, values, imported))
        else:
            given = Stateful(model, path, input_dimensions, values, state)
            decoder = with_state(given)
            imported = decoder.imported(given)
        graph = imported.whole()
    except UnsupportedNodes as error:
        mode = precision.mode or FLOAT
        return Checked(path, input_dimensions, values, error.looked_at, {}, error.refusals, mode=mode, cut=cut())
    check_quantised(precision.quantised, [graph])
    graph = replace(graph, precision=precision)
    mode = precision.mode or graph.mode
    checked = Checked(path, input_dimensions, values, len(graph.node_ops), dict(graph.node_ops), mode=mode)
    try:
        return replace(checked, model=Alternatives(graph), decoder=decoder)
    except UnsupportedNodes:
        return replace(checked, refusals=refusals_of(graph), cut=cut())


def _not_cut() -> Cut:
    raise ConfigError("a model with a state stays whole; drop --state")


def _made(cut: Callable[[], Cut]) -> Cut | str:
    """Return the parts, or why they are not known."""
    try:
        return cut()
    except (ConfigError, ModelError) as error:  # onnxruntime is not installed, or cannot open the model
        return str(error)


def any_limits() -> DeviceLimits:
    """Return the limits of a device with room for everything, where none is named."""
    assert NULL_REPORT.identity is not None
    return device_limits(NULL_REPORT.identity)


def measured_peaks(device: str) -> tuple[Peaks, DeviceLimits]:
    """Return the peaks of this machine's device of that name or number, measured by an embedded server, and its limits.
    Raises TargetError."""
    with choose_target(None, os.environ, device) as target, target.connect() as client:
        return measured(client), device_limits(DeviceIdentity.from_dict(client.device))


def told(model: Path, given: Mapping[str, Any], peaks: Peaks, limits: DeviceLimits) -> dict[str, Any]:
    """Return the content of --json for what options ask, given by their names. Raises ConfigError, and as `check_model`
    does."""
    choices = [ModelFile(model, combined(given.get("input_dimensions", ())))]
    (file,) = with_states(choices, given.get("state", ()), given.get("state_capacity", ()))
    if len(file.graphs) > 1:
        raise ConfigError(
            "--input_dimensions: a model is checked for one shape and one capacity of a state at a "
            "time; give one of each"
        )
    with in_use(load_packages(given.get("op_packages", ()))):
        precision = Precision(given.get("precision_mode", ""), quantised=given.get("quantised", EXACT))
        narrow = given.get("float64") == FLOAT
        shapes, state = file.graphs[0]
        checked = check_model(model, shapes, given.get("input_value", {}), precision, narrow, state)
        return describe(checked, peaks, limits)


def describe(checked: Checked, peaks: Peaks, limits: DeviceLimits) -> dict[str, Any]:
    """Return the content of --json; `limits` are those of the device whose tuning spaces are counted."""
    refused = {refusal.node for refusal in checked.refusals}
    content: dict[str, Any] = {
        "model": str(checked.path),
        "input_dimensions": {name: list(shape) for name, shape in checked.input_dimensions.items()},
        "input_values": {name: told_value(value) for name, value in checked.input_values.items()},
        "precision_mode": checked.mode,
        "runs_wholly": checked.runs_wholly,
        "nodes": checked.nodes,
        "unsupported": [
            {"node": one.node, "op": one.op, "why": one.why, "nearest": nearest_form(one)} for one in checked.refusals
        ],
    }
    if checked.model is None:
        content["supported"] = [{"node": n, "op": op} for n, op in checked.node_ops.items() if n not in refused]
        if isinstance(checked.cut, str):
            return content | {"in_parts": None, "why_no_parts": checked.cut}
        return content | {"in_parts": described(checked.cut), "why_no_parts": None}
    plan = checked.model.plan
    runs_as = {node: operation.name for operation in plan.operations for node in operation.nodes}
    content["supported"] = [
        {"node": node, "op": op, "operation": runs_as.get(node)} for node, op in checked.node_ops.items()
    ]
    content["state"] = None if checked.decoder is None else checked.decoder.told()
    exactness, outputs = plan.exactness, [spec.name for spec in plan.outputs]
    content["quantised"] = None if exactness is None else exactness.told(outputs)
    return content | _costs(plan, peaks) | _tuning(checked.model, limits) | {"assumes": list(ASSUMES)}


def _costs(plan: Plan, peaks: Peaks) -> dict[str, Any]:
    works = {task: family_of(task.op).work(task.problem) for task in plan.tasks}
    runs: dict[Task, list[Work]] = {task: [] for task in plan.tasks}
    for operation, again in zip(plan.operations, read_again(plan), strict=True):
        work = works[operation.task]
        runs[operation.task].append(Work(work.flops, max(work.bytes - again, 0)))
    every = [work for several in runs.values() for work in several]
    total_ns = {task: sum(map(peaks.roofline_ns, several)) for task, several in runs.items()}
    return {
        "operations": len(plan.operations),
        "tasks": [_task(task, work, peaks) | {"total_ns": total_ns[task]} for task, work in works.items()],
        "flops": sum(work.flops for work in every),
        "bytes": sum(work.bytes for work in every),
        "constant_bytes": weight_bytes([plan]),
        "peaks": {"gflops": peaks.gflops, "gbps": peaks.gbps, "origin": peaks.origin},
        "roofline_ns": sum(total_ns.values()),
    }


def _task(task: Task, work: Work, peaks: Peaks) -> dict[str, Any]:
    key = task_key(task)
    return {
        "key": key.digest,
        "op": task.op,
        "problem": words(task.op, key.problem),
        "weight": task.weight,
        "flops": work.flops,
        "bytes": work.bytes,
        "roofline_ns": peaks.roofline_ns(work),
    }


def _tuning(model: Alternatives, limits: DeviceLimits) -> dict[str, Any]:
    """Trials and seconds by effort; optional fusion is tuned beside what it replaces."""
    sizes = {task: _size(task, limits) for task in model.tasks}
    efforts = {name: _effort(effort, sizes, len(model.plan.tasks)) for name, effort in EFFORTS.items()}
    return {"tuned_tasks": len(model.tasks), "tuning": efforts}


def _effort(effort: Effort, sizes: Mapping[Task, int], programs: int) -> dict[str, Any]:
    trials = sum(
        trials_for(effort, family_of(task.op).heavy, size) + finalists_for(effort, size) for task, size in sizes.items()
    )
    compiling = programs * PROGRAM_SECONDS * (CONTEXTS if trials else 1)
    return {
        "trials": trials,
        "seconds": trials * TRIAL_SECONDS + compiling + effort.compare_seconds,
        "compiling_seconds": compiling,
        "compare_seconds": effort.compare_seconds,
        "at_least": effort.trials is None and max(sizes.values(), default=0) >= COUNTED,
    }


def _size(task: Task, limits: DeviceLimits) -> int:
    """Return how many configurations the task's space has, COUNTED where they are more."""
    return sum(1 for _ in islice(family_of(task.op).space(task.problem, limits).configurations(), COUNTED))

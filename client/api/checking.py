"""Implement `gputune.check`: return as records what `gputune model-check` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gputune.client.api.shapes import InputValues, Shapes, pairs_of, values_of
from gputune.client.generation.model_check import any_limits, measured_peaks, told
from gputune.client.options.python import as_arguments
from gputune.client.tuning.measuring.peaks import ASSUMED


@dataclass(frozen=True)
class UnsupportedNode:
    """Describe a node that cannot run: its name and operator, the reason, and the nearest form that can run."""

    node: str
    op: str
    why: str
    instead: str


@dataclass(frozen=True)
class ModelPart:
    """Describe a part that unsupported="host" runs on the device: its graph, its share of the model's multiply-adds,
    how many of the model's nodes it has, of which operators, and the bytes that an inference hands over."""

    graph: str
    share: float
    nodes: int
    ops: Mapping[str, int]
    inputs: Sequence[str]
    outputs: Sequence[str]
    crossing_bytes: int


@dataclass(frozen=True)
class CheckedTask:
    """Describe a kernel to be tuned. weight: how often an inference runs it; roofline_ns: the time of one run at the
    device's peaks; total_ns: that of all runs, in which a weight that was read before costs nothing."""

    key: str
    op: str
    problem: str
    weight: int
    flops: int
    bytes: int
    roofline_ns: float
    total_ns: float


@dataclass(frozen=True)
class TuningEstimate:
    """Estimate the cost of an effort. seconds: of the whole generation, compiling_seconds and compare_seconds of whole
    contexts included; at_least: the space is so large that it was not counted to its end."""

    trials: int
    seconds: float
    compiling_seconds: float
    compare_seconds: float
    at_least: bool


@dataclass(frozen=True)
class NotExact:
    """Describe a node of a quantised model that multiplies floats: its name and operator, and the reason."""

    node: str
    op: str
    why: str


@dataclass(frozen=True)
class QuantisedNodes:
    """Describe how quantised nodes are computed. rules: exact, mixed if there are exceptions, or float; whole_numbers:
    how many nodes of each operator whole numbers compute; steps: by the names of outputs that floats are rounded to,
    how far apart two of their numbers are."""

    rules: str
    whole_numbers: Mapping[str, int]
    exceptions: tuple[NotExact, ...]
    steps: Mapping[str, float]


@dataclass(frozen=True)
class ModelCheck:
    """Describe a model before any tuning. If the model cannot run, costs are zero and tasks are empty; then parts are
    the parts that can run, and host_ops counts the nodes that stay in onnxruntime, if that is installed; could_run
    counts those of them that could run, by the reason why they stay.

    flops, bytes: per inference; constant_bytes: size of the weights; roofline_ns: time of an inference at the device's
    peaks, which are assumed unless a device was named; tuning: estimates by effort; quantised: None for other models;
    state: what the model would keep, if it is asked to.
    """

    model: Path
    runs: bool
    nodes: int
    unsupported: tuple[UnsupportedNode, ...]
    parts: tuple[ModelPart, ...] = field(default=(), repr=False)
    host_ops: Mapping[str, int] = field(default_factory=dict)
    could_run: Mapping[str, int] = field(default_factory=dict, repr=False)
    tasks: tuple[CheckedTask, ...] = field(default=(), repr=False)
    flops: int = 0
    bytes: int = 0
    constant_bytes: int = 0
    roofline_ns: float = 0.0
    tuning: Mapping[str, TuningEstimate] = field(default_factory=dict)
    quantised: QuantisedNodes | None = None
    state: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"model": str(self.model)}


def check(
    model: Path | str,
    shapes: Shapes | None = None,
    *,
    input_values: InputValues | None = None,
    given: Mapping[str, Any],
) -> ModelCheck:
    """Report which nodes of an ONNX model run, what an inference costs, and about how long tuning takes.

    Nothing is tuned. Arguments are the options of `gputune model-check`. Raises ModelError if the whole model is wrong,
    not only single nodes; ConfigError for a wrong argument; TargetError if the device cannot be measured.
    """
    peaks, limits = measured_peaks(given["device"]) if "device" in given else (ASSUMED, any_limits())
    asked = {"input_dimensions": pairs_of(shapes, [Path(model)]), "input_value": values_of(input_values)}
    return _record(Path(model), told(Path(model), {**given, **asked}, peaks, limits))


def _record(model: Path, content: Mapping[str, Any]) -> ModelCheck:
    nodes = tuple(
        UnsupportedNode(one["node"], one["op"], one["why"], as_arguments(one["nearest"]))
        for one in content["unsupported"]
    )
    if not content["runs_wholly"]:
        cut: Mapping[str, Any] = content["in_parts"] or {"parts": (), "host_ops": {}, "could_run": {}}
        parts = tuple(ModelPart(**part) for part in cut["parts"])
        return ModelCheck(model, False, content["nodes"], nodes, parts, cut["host_ops"], cut["could_run"])
    return ModelCheck(
        model,
        True,
        content["nodes"],
        nodes,
        tasks=tuple(CheckedTask(**task) for task in content["tasks"]),
        flops=content["flops"],
        bytes=content["bytes"],
        constant_bytes=content["constant_bytes"],
        roofline_ns=content["roofline_ns"],
        tuning={name: TuningEstimate(**effort) for name, effort in content["tuning"].items()},
        quantised=_quantised(content["quantised"]),
        state=content["state"],
    )


def _quantised(nodes: Mapping[str, Any] | None) -> QuantisedNodes | None:
    if nodes is None:
        return None
    return QuantisedNodes(**{**nodes, "exceptions": tuple(NotExact(**one) for one in nodes["exceptions"])})

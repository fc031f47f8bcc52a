"""Compare whole networks, tuned and with defaults, with other engines, in turns.

Copies to and from the device are part of an inference.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence

import onnx

from benchmarks.options import chosen
from benchmarks.peers.comparing import BEST, beside_best, compare, deviation_cell, mean_speed, shown
from benchmarks.peers.comparing import add_arguments as add_arguments
from benchmarks.peers.comparison import (
    DEFAULTS,
    ENGINES,
    PEER,
    TUNED,
    Case,
    Measured,
    Settings,
)
from benchmarks.peers.entrants import entries_of, flops_of
from benchmarks.result import Result, Table
from models import classic_models, material, tune_models
from models.tune_models import Model
from models.zoo_models import ENTRIES

DETECTOR_SIDE = 640


def detector() -> Model:
    """The whole text detector for maps of one size, in a file that says so."""

    def fixed() -> onnx.ModelProto:
        model = onnx.load(material.detector_model())
        batch = model.graph.input[0].type.tensor_type.shape.dim
        for dimension, size in zip(batch, (1, 3, DETECTOR_SIDE, DETECTOR_SIDE), strict=True):
            dimension.dim_value = size
        return model

    return tune_models.saved(f"PP-OCRv4 detector {DETECTOR_SIDE}", f"detector_{DETECTOR_SIDE}", fixed)


def minilm() -> Model:
    """The sentence embedding of 128 tokens."""
    entry = ENTRIES["MiniLM-L6"]
    return Model("MiniLM-L6 128", entry.file(), entry.dimensions)


FIRST, OTHER = "the first eight", "the others"
MARKS: Mapping[str, tuple[float, float]] = {FIRST: (1.4, 1.15), OTHER: (1.2, 1.0)}
"""The geometric mean and the least that are to be reached, by groups of networks."""
MODELS: Mapping[str, tuple[Callable[[], Model], str]] = {
    "ResNet-18": (classic_models.resnet18, FIRST),
    "ResNet-50": (classic_models.resnet50, FIRST),
    "EfficientNet-Lite0": (tune_models.classifier, FIRST),
    "MobileNetV2": (classic_models.mobilenet_v2, FIRST),
    "MobileNetV2-0.5 160": (lambda: classic_models.mobilenet_v2(0.5, 160), FIRST),
    "PP-OCRv4 detector 640": (detector, FIRST),
    "page orientation": (tune_models.demo, FIRST),
    "SqueezeNet": (classic_models.squeezenet, FIRST),
    "ResNet-50 320": (lambda: classic_models.resnet50_of(320), OTHER),
    "DenseNet-121": (lambda: classic_models.light("DenseNet-121"), OTHER),
    "MiniLM-L6 128": (minilm, OTHER),
    "MobileNetV3-Large": (classic_models.mobilenet_v3_large, OTHER),
    "YOLOv3-tiny 416": (classic_models.yolo_tiny, OTHER),
}
QUICK: Mapping[str, tuple[Callable[[], Model], str]] = {"a small model": (tune_models.small, OTHER)}


def wanted(options: argparse.Namespace) -> Mapping[str, tuple[Callable[[], Model], str]]:
    """Return the networks that --only and --quick ask for, by name, with their groups."""
    if options.quick:
        return QUICK
    return {name: MODELS[name] for name in chosen(list(MODELS), options.only)}


def run(options: argparse.Namespace) -> Result:
    """Measure the networks that the options ask for. Raises GputuneError, ValueError."""

    def make(settings: Settings) -> list[Case]:
        cases = []
        for name, (opened, group) in wanted(options).items():
            model = opened()
            plan = model.plan()
            entries = entries_of(model, plan, settings, options.work, options.prepare, kernels=False)
            cases.append(Case(name, group, entries, flops_of(plan)))
        return cases

    return compare("models", options, make, tell)


def tell(cases: Sequence[Case], measured: Sequence[Measured]) -> tuple[Table, list[str]]:
    """The table, and what follows from it."""
    engines = [name for name in ENGINES if any(name in one.rounds for one in measured)]
    head = (
        *("network", "tuned ms", "defaults ms", *(f"{name} ms" for name in engines)),
        *(BEST, "best engine", *(f"x {name}" for name in (*engines, DEFAULTS))),
        *("defaults x onnxruntime", "deviation", "deviation, defaults"),
    )
    rows = []
    for case, one in zip(cases, measured, strict=True):
        times = (TUNED, DEFAULTS, *engines)
        rows.append(
            (
                *(case.name, *(f"{one.median_ns(name) / 1e6:.3f}" if name in one.rounds else "" for name in times)),
                *(shown(one.speed(TUNED, one.best), interval=True), one.best),
                *(shown(one.speed(TUNED, other)) for other in (*engines, DEFAULTS)),
                *(shown(one.speed(DEFAULTS, PEER)), *(deviation_cell(one, name) for name in (TUNED, DEFAULTS))),
            )
        )
    return (head, rows), conclusions_of(cases, measured)


def conclusions_of(cases: Sequence[Case], measured: Sequence[Measured]) -> list[str]:
    """One line for each mark."""
    lines = []
    for group, marks in MARKS.items():
        own = [(case, one) for case, one in zip(cases, measured, strict=True) if case.group == group]
        lines += [f"{group}: {beside_best(own, *marks)}"] if own else []
    found = [(case, one.speed(DEFAULTS, PEER)) for case, one in zip(cases, measured, strict=True)]
    engines = {name for one in measured for name in ENGINES if name in one.rounds}
    absent = [f"{name}: {one.name}" for one in measured for name in ENGINES if name in engines - one.rounds.keys()]
    slow = [f"{case.name} ({speed.median:.2f})" for case, speed in found if speed is not None and speed.median < 1]
    means = [mean_speed([(one.speed(TUNED, other), 1) for one in measured], other) for other in (PEER, DEFAULTS)]
    return [
        *lines,
        *([f"engines that could not run a network: {'; '.join(absent)}"] if absent else []),
        f"defaults below onnxruntime: {', '.join(slow) or 'none'}",
        f"all: {', '.join(means)}",
    ]

"""`scripts/bench models`: whole networks, tuned and with defaults, beside onnxruntime; copies to and from the device
are part of an inference."""

import argparse
from collections.abc import Callable, Mapping, Sequence

import onnx

from benchmarks.peers.comparing import Table, chosen, compare, deviation_cell, geomean, shown
from benchmarks.peers.comparing import add_arguments as add_arguments
from benchmarks.peers.comparison import DEFAULTS, NAIVE, PEER, PEER_ALONE, TINYGRAD, TUNED, Case, Measured, Settings
from benchmarks.peers.entrants import entries_of, flops_of
from models import classic_models, material, tune_models
from models.tune_models import Model


def detector() -> Model:
    """The whole text detector for maps of one size, in a file that says so."""
    side = tune_models.DETECTOR_SIDE

    def fixed() -> onnx.ModelProto:
        model = onnx.load(material.detector_model())
        batch = model.graph.input[0].type.tensor_type.shape.dim
        for dimension, size in zip(batch, (1, 3, side, side), strict=True):
            dimension.dim_value = size
        return model

    return classic_models.saved(f"PP-OCRv4 detector {side}", f"detector_{side}", fixed)


MODELS: Mapping[str, tuple[Callable[[], Model], float, float]] = {  # and the speed promised on PoCL, on Intel's runtime
    "ResNet-18": (classic_models.resnet18, 1.15, 1.15),
    "ResNet-50": (classic_models.resnet50, 1.05, 1.05),
    "EfficientNet-Lite0": (tune_models.classifier, 1.0, 1.0),
    "MobileNetV2": (classic_models.mobilenet_v2, 1.0, 1.0),
    "MobileNetV2-0.5 160": (lambda: classic_models.mobilenet_v2(0.5, 160), 0.9, 1.1),
    "PP-OCRv4 detector 640": (detector, 1.1, 1.1),
    "page orientation": (tune_models.demo, 1.0, 1.0),
    "SqueezeNet": (classic_models.squeezenet, 1.1, 1.1),
}
QUICK: Mapping[str, tuple[Callable[[], Model], float, float]] = {"a small model": (tune_models.small, 1.0, 1.0)}
OTHERS = (TINYGRAD, DEFAULTS, NAIVE)
DEFAULTS_MARK, NAIVE_MARK, NEXT_MARK = 0.6, 20, 1.25


def run(options: argparse.Namespace) -> None:
    """How fast whole networks are, tuned and with defaults, in turns with onnxruntime and naive kernels."""
    models = QUICK if options.quick else MODELS
    names = chosen(list(models), options.only)

    def make(settings: Settings) -> list[Case]:
        cases = []
        for name in names:
            model = models[name][0]()
            plan = model.plan()
            cases.append(Case(name, "", entries_of(model, plan, settings, options.work, kernels=False), flops_of(plan)))
        return cases

    compare("models", options, make, tell)


def tell(cases: Sequence[Case], measured: Sequence[Measured], device: str) -> tuple[Table, list[str]]:
    """The table, and what follows from it."""
    others = [name for name in OTHERS if any(name in one.rounds for one in measured)]
    head = (
        *("network", "tuned ms", "defaults ms", "onnxruntime ms", "1 thread ms"),
        *("x onnxruntime", "mark", *(f"x {name}" for name in others), "deviation", "of defaults"),
    )
    marks = {
        name: of_intel if "intel" in device.lower() else of_pocl for name, (_, of_pocl, of_intel) in MODELS.items()
    }
    rows, missed = [], []
    for case, one in zip(cases, measured, strict=True):
        speed, mark = one.speed(TUNED, PEER), marks.get(case.name, 1.0)
        if speed is not None and speed.value < mark:
            missed.append(f"{case.name} ({speed.value:.2f} of {mark})")
        rows.append(
            (
                case.name,
                *(f"{one.median_ns(name) / 1e6:.3f}" for name in (TUNED, DEFAULTS, PEER, PEER_ALONE)),
                *(shown(speed, interval=True), f"{mark:.2f}"),
                *(shown(one.speed(TUNED, other)) for other in others),
                *(deviation_cell(one, name) for name in (TUNED, DEFAULTS)),
            )
        )

    def mean(other: str) -> float:
        return geomean([(one.speed(TUNED, other), 1) for one in measured])

    shares = [speed.value for one in measured if (speed := one.speed(DEFAULTS, TUNED)) is not None]
    return (head, rows), [
        f"below its mark: {', '.join(missed) or 'none'}",
        f"geometric mean {mean(PEER):.2f} x onnxruntime; the mark after this one: {NEXT_MARK}",
        f"{mean(DEFAULTS):.2f} x defaults; defaults reach {min(shares):.0%} of the tuned speed at least, mark: "
        f"{DEFAULTS_MARK:.0%}, and never over 100 %: {max(shares):.0%} at most",
        f"{mean(NAIVE):.0f} x naive kernels, mark: {NAIVE_MARK}",
    ]

"""Draw a comparison: how many times as fast each contender is as the best engine, network by network."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.comparison import DEFAULTS, ENGINES, TUNED, Measured, is_settled

COLOURS = {TUNED: "#1b6ca8", DEFAULTS: "#8fbcd9", "onnxruntime": "#a0a0a0", "OpenVINO": "#c4c4c4", "MNN": "#dddddd"}
"""Of bars, by contender; they can be told apart in grey, too."""
BAR, GAP = 0.16, 0.2
WIDTH_INCHES, CASE_INCHES = 8.0, 0.75


def draw(measured: Sequence[Measured], file: Path, title: str) -> None:
    """Writes an SVG. Intervals are those of 95 %; what has not settled has no bar."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "gputune", "svg.fonttype": "none", "font.size": 9}
    plots: Any = importlib.import_module("matplotlib.pyplot")
    patches: Any = importlib.import_module("matplotlib.patches")
    names = [name for name in (TUNED, DEFAULTS, *ENGINES) if any(name in one.rounds for one in measured)]
    figure, axes = plots.subplots(figsize=(WIDTH_INCHES, 1 + CASE_INCHES * len(measured)), layout="constrained")
    for place, name in enumerate(names):
        for row, one in enumerate(measured):
            speed = one.speed(name, one.best)
            if speed is None or not is_settled(speed):
                continue
            errors = [[speed.median - speed.low], [speed.high - speed.median]]
            axes.barh(row + place * BAR, speed.median, BAR, color=COLOURS[name], xerr=errors, capsize=1.5)
    axes.set_yticks([row + BAR * (len(names) - 1) / 2 for row in range(len(measured))], [one.name for one in measured])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("times as fast as the best of the other engines; more is better")
    axes.set_title(title, fontsize="medium", wrap=True)
    keys = [patches.Patch(color=COLOURS[name], label=name) for name in names]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    figure.savefig(file, format="svg", metadata={"Date": None})
    plots.close(figure)

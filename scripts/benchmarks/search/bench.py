"""Measure how soon search strategies find good variants of recorded spaces; needs no device.

Percent is 100 x best / found: the least true median of all configurations over that of the best one found so far. A
figure is the mean over seeds with its standard error, of each space and of all devices of a kernel together. With
noise a strategy is told times that are off, by a factor of normal logarithm, and judged by the true ones.

The strategies' constants were fixed on the spaces that are replayed without --space: three kernels of ours on PoCL, and
the made-up ones of landscapes.py. Recorded GPU spaces of convolution and dedispersion (FAIR Benchmark Hub) were looked
at before and after. Shares as what is learned, divisors as views, FAR_AWAY and the first samples were chosen among a
few ways each on made-up spaces and on the convolutions of four of those GPUs, where AMBITION and TARGETS were chosen
among a dozen pairs. Lengths, noise and SPREAD are those that predict made-up spaces best.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import tool
from benchmarks.result import Result, Table
from benchmarks.search.landscapes import all_landscapes
from benchmarks.search.replay import Curves, mean_over_seeds, replay, winners_of
from benchmarks.search.spaces import Recording, load
from gputune.client.tuning.search.strategies.catalogue import STRATEGIES
from gputune.client.tuning.search.task_search import BATCH

RECORDINGS = tool.ROOT / "tests" / "recordings"
ALL_DEVICES = "all devices"
COMPARED = "auto,model_based,evolution,descent,random"

Figures = dict[str, dict[str, float]]
"""By the number of evaluations, "percent" and "standard_error"."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument(
        "--space", type=Path, nargs="+", metavar="FILE", help="recordings (default: those that constants were fixed on)"
    )
    parser.add_argument("--strategies", default=COMPARED, help="comma list (default: %(default)s)")
    parser.add_argument("--evaluations", default="10,25,50", help="where to look, comma list (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=20, help="replays of each strategy (default: %(default)s)")
    parser.add_argument(
        "--batch", type=int, default=BATCH, help="configurations asked for at once (default: %(default)s, as in tuning)"
    )
    parser.add_argument(
        "--noise",
        default="0,5,15",
        help="by how many percent a time is off that a strategy is told, comma list (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> Result:
    """Replay the strategies. Raises NotRecorded, OSError, ValueError."""
    looks, names = _numbers("--evaluations", options.evaluations), options.strategies.split(",")
    noises = _numbers("--noise", options.noise, least=0)
    if unknown := [name for name in names if name not in STRATEGIES]:
        raise ValueError(f"--strategies: {unknown[0]!r} is none of {', '.join(STRATEGIES)}")
    recordings = [load(path) for path in options.space or sorted(RECORDINGS.glob("*_T4.json*"))]
    by_kernel: dict[str, list[Recording]] = defaultdict(list)
    for recording in recordings if options.space else [*recordings, *all_landscapes()]:
        by_kernel[recording.kernel].append(recording)
    figures: dict[str, dict[str, dict[str, Figures]]] = {}
    tables: list[Table] = []
    for kernel, devices in by_kernel.items():
        figures[kernel] = {}
        for title, curves in _curves(devices, names, (options.seeds, max(looks), options.batch), noises).items():
            apart = {} if len(devices) == 1 else {one.device: [own] for one, own in zip(devices, curves, strict=True)}
            figures[kernel][title] = {
                name: _figures(found, looks) for name, found in {ALL_DEVICES: curves, **apart}.items()
            }
        for name in figures[kernel][title]:
            rows = [[title, *map(_percent, found[name].values())] for title, found in figures[kernel].items()]
            which = ", ".join(one.device for one in devices) if name == ALL_DEVICES else name
            head = (f"{kernel}: {which}; {options.seeds} seeds", *(f"{look} evaluations" for look in looks))
            tables.append((head, rows))
    return Result(figures, tables)


def _curves(
    devices: Sequence[Recording], names: Sequence[str], how: tuple[int, int, int], noises: Sequence[int]
) -> dict[str, list[Curves]]:
    """Return the curves of each strategy on each device, and those of auto with the records of the other devices."""
    found = {
        f"{name}, cold" + (f", {noise} % noise" if noise else ""): [
            replay(one, name, *how, noise=noise / 100) for one in devices
        ]
        for name in names
        for noise in noises
    }
    if len(devices) > 1 and "auto" in names:
        known = [winners_of([other for other in devices if other is not one], one) for one in devices]
        warm = [replay(one, "auto", *how, *winners) for one, winners in zip(devices, known, strict=True)]
        found[f"auto, records of {len(devices) - 1} other devices"] = warm
    return found


def _figures(curves: Sequence[Curves], looks: Sequence[int]) -> Figures:
    mean, error = mean_over_seeds(curves)
    return {str(look): {"percent": mean[look - 1], "standard_error": error[look - 1]} for look in looks}


def _percent(figure: dict[str, float]) -> str:
    return "{percent:.1f} ± {standard_error:.1f}".format(**figure)


def _numbers(option: str, text: str, least: int = 1) -> list[int]:
    numbers = [int(part) if part.isdecimal() else -1 for part in text.split(",")]
    if min(numbers) < least:
        raise ValueError(f"{option}: {text!r} is no comma list of numbers from {least}")
    return numbers

"""Replay searching and measuring on recorded spaces (`scripts/bench search`): how close strategies come to the optimum,
and what the server's successive halving picks. Needs no device.

Percent is 100 x best / found: the least true median of all configurations over that of the best one found so far. A
figure is the mean over seeds with its standard error, of each space and of all devices of a kernel together.
"""

import argparse
import json
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tool
from benchmarks.search import measuring
from benchmarks.search.made_up import all_made_up
from benchmarks.search.replay import (
    Curves,
    KernelTunerFailed,
    kernel_tuner,
    mean_over_seeds,
    replay,
    sources,
    winners_of,
)
from benchmarks.search.spaces import NotRecorded, Recording, load
from gputune.client.tuning.search.strategies.catalogue import STRATEGIES

RECORDINGS = tool.ROOT / "tests" / "recordings"
ALL_DEVICES = "all devices"
COMPARED = "auto,model_based,evolution,descent,random"
KERNEL_TUNER = (
    "random_sample,genetic_algorithm,greedy_ils,greedy_mls,mls,simulated_annealing,diff_evo,pso,firefly_algorithm,"
    "dual_annealing,basinhopping,minimize,ordered_greedy_mls,bayes_opt,hybrid_vndx,adaptive_tabu_greywolf"
)
"""All of version 1.5 that search for one objective and need nothing else installed."""

Figures = Mapping[str, Mapping[str, float]]
"""By the number of evaluations, "percent" and "standard_error"."""

CONSTANTS = (
    "The strategies' constants were fixed on tests/recordings (three kernels of ours on PoCL) and on the made-up\n"
    "spaces of made_up.py and landscapes.py in scripts/benchmarks/search. Recorded GPU spaces of convolution and\n"
    "dedispersion (FAIR Benchmark Hub) were looked at before and after; that the strategies fell short there after 50\n"
    "evaluations is why landscapes of more shapes were made up. Shares as what is learned, divisors as views,\n"
    "FAR_AWAY and the first samples were chosen among a few ways each on made-up spaces and on the convolutions of\n"
    "four of those GPUs, where AMBITION and TARGETS were chosen among a dozen pairs; that the target moves came from\n"
    "looking at one search on one of them. Lengths, noise and SPREAD are those that predict made-up spaces best.\n"
    "MOST_CANDIDATES was compared with all on the convolutions of four of those GPUs, and with 600 on two of these\n"
    "and a made-up space.\n"
    "Successive halving: its rounds up to 16 are those of its design; its least number of samples for a verdict (7),\n"
    "its last round (24) and the split into picking and judging samples were settled while looking at those recorded\n"
    "GPU spaces. What it keeps in a small field (8, and 20 % for one sample) is for the noise of a busy machine with\n"
    "PoCL."
)

HALVING = (
    "Three quarters of the samples pick, the others judge. Runs per configuration, the baseline's included; regret\n"
    "against the configuration that is best by all samples; regret against the least of the judging medians, chance\n"
    "included. {}"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `scripts/bench search`."""
    parser.add_argument(
        "--space", type=Path, nargs="+", metavar="FILE", help="T4 files (default: those that constants were fixed on)"
    )
    parser.add_argument("--strategies", default=COMPARED, help="comma list (default: %(default)s)")
    parser.add_argument("--evaluations", default="10,25,50", help="where to look, comma list (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=20, help="replays of each strategy (default: %(default)s)")
    parser.add_argument(
        "--batch",
        type=int,
        default=1,
        help="configurations asked for, or measured, at once (default: %(default)s; when measured: 1 for all)",
    )
    parser.add_argument(
        "--records", action="store_true", help="compare auto with and without records, of every choice of other devices"
    )
    parser.add_argument("--measuring", action="store_true", help="replay successive halving on raw samples instead")
    parser.add_argument(
        "--kernel_tuner_python", type=Path, metavar="PYTHON", help="an interpreter that has kernel_tuner"
    )
    parser.add_argument("--kernel_tuner_strategies", default=KERNEL_TUNER, help="comma list (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the numbers to this file as well")


def main(arguments: argparse.Namespace) -> None:
    """Measure how soon search strategies find good variants of recorded spaces, or how close the picks of
    successive halving come to the best variant; needs no device."""
    if arguments.measuring and not arguments.space:
        raise SystemExit("--measuring needs --space: recordings with many raw samples of each configuration")
    if arguments.kernel_tuner_python is not None:  # it runs in another folder, after minutes of replaying
        given = arguments.kernel_tuner_python
        found = given.absolute() if given.is_file() else shutil.which(given)
        if found is None:
            raise SystemExit(f"--kernel_tuner_python: there is no program {given}")
        arguments.kernel_tuner_python = Path(found)
    try:
        recordings = [load(path) for path in arguments.space or sorted(RECORDINGS.glob("*_T4.json*"))]
        if not arguments.space:
            recordings += all_made_up()
        mode = _measuring if arguments.measuring else _with_records if arguments.records else _searching
        result = mode(recordings, arguments)
    except (NotRecorded, KernelTunerFailed, OSError) as error:
        raise SystemExit(str(error)) from None
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _searching(recordings: Sequence[Recording], arguments: argparse.Namespace) -> dict[str, Any]:
    looks = _numbers(arguments.evaluations)
    names = arguments.strategies.split(",")
    if unknown := [name for name in names if name not in STRATEGIES]:
        raise SystemExit(f"--strategies: {unknown[0]!r} is none of {', '.join(STRATEGIES)}")
    by_kernel = _by_kernel(recordings)
    print(CONSTANTS, flush=True)
    result: dict[str, dict[str, dict[str, Figures]]] = {}
    for kernel, devices in by_kernel.items():
        result[kernel] = {}
        shown: list[tuple[str, Sequence[Curves]]] = []
        common = (arguments.seeds, max(looks), arguments.batch)
        shown += [(f"{name}, cold", [replay(one, name, *common) for one in devices]) for name in names]
        if len(devices) > 1 and "auto" in names:
            others = [[other for other in devices if other is not one] for one in devices]
            winners = [winners_of(known, one) for one, known in zip(devices, others, strict=True)]
            warm = [replay(one, "auto", *common, *known) for one, known in zip(devices, winners, strict=True)]
            shown.append((f"auto, records of {len(devices) - 1} other devices", warm))
        if arguments.kernel_tuner_python is not None:
            theirs = arguments.kernel_tuner_strategies.split(",")
            found = [
                kernel_tuner(one, arguments.kernel_tuner_python, theirs, arguments.seeds, max(looks)) for one in devices
            ]
            shown += [(f"Kernel Tuner: {name}", [curves[name] for curves in found]) for name in theirs]
        for title, curves in shown:
            spaces = (
                {one.device: [found] for one, found in zip(devices, curves, strict=True)} if len(devices) > 1 else {}
            )
            result[kernel][title] = {
                name: _figures(found, looks) for name, found in {ALL_DEVICES: curves, **spaces}.items()
            }
        for name in [ALL_DEVICES, *(one.device for one in devices)][: None if len(devices) > 1 else 1]:
            rows = [[title, *map(_percent, found[name].values())] for title, found in result[kernel].items()]
            which = ", ".join(one.device for one in devices) if name == ALL_DEVICES else name
            head = f"{kernel}: {which}; {arguments.seeds} seeds"
            print("\n" + tool.table([head, *(f"{look} evaluations" for look in looks)], rows), flush=True)
    return result


def _by_kernel(recordings: Sequence[Recording]) -> dict[str, list[Recording]]:
    by_kernel: dict[str, list[Recording]] = defaultdict(list)
    for recording in recordings:
        by_kernel[recording.kernel].append(recording)
    return by_kernel


def _with_records(recordings: Sequence[Recording], arguments: argparse.Namespace) -> dict[str, Any]:
    """Each search with records beside the same seeds without: percent, and the difference in points."""
    looks = _numbers(arguments.evaluations)
    common = (arguments.seeds, max(looks), arguments.batch)
    result: dict[str, dict[str, Figures]] = {}
    for kernel, devices in _by_kernel(recordings).items():
        rows, result[kernel] = [], {}
        for one in devices:
            cold = _figures([replay(one, "auto", *common)], looks)
            for known in sources(one, devices):
                title = f"{one.device} ({one.vendor}), records of {', '.join(other.device for other in known)}"
                warm = _figures([replay(one, "auto", *common, *winners_of(known, one))], looks)
                points = [warm[look]["percent"] - cold[look]["percent"] for look in cold]
                rows.append(
                    [title, *(f"{each['percent']:.1f}" for each in warm.values()), *map("{:+.1f}".format, points)]
                )
                result[kernel][title] = warm
        head = f"{kernel}; {arguments.seeds} seeds"
        heads = [head, *(f"{look} evaluations" for look in looks), *(f"points at {look}" for look in looks)]
        print("\n" + tool.table(heads, rows), flush=True)
    return result


def _figures(curves: Sequence[Curves], looks: Sequence[int]) -> Figures:
    mean, error = mean_over_seeds(curves)
    return {str(look): {"percent": mean[look - 1], "standard_error": error[look - 1]} for look in looks}


def _percent(figure: Mapping[str, float]) -> str:
    return f"{figure['percent']:.1f} ± {figure['standard_error']:.1f}"


def _measuring(recordings: Sequence[Recording], arguments: argparse.Namespace) -> dict[str, Any]:
    rows, result = [], {}
    every: dict[str, list[measuring.Measured]] = defaultdict(list)
    batch = arguments.batch
    for recording in recordings:
        ways = {
            "recorded order": measuring.in_order(recording, batch),
            "shuffled rounds": measuring.shuffled(recording, arguments.seeds, rounds=True, batch=batch),
            "shuffled samples": measuring.shuffled(recording, arguments.seeds, rounds=False, batch=batch),
        }
        means = {way: _mean(found) for way, found in ways.items()}
        for way, mean in means.items():
            every[way].append(mean)
        result[recording.title] = {way: vars(mean) for way, mean in means.items()}
        rows.append([recording.title, *map(_cell, means.values())])
    totals = {way: _mean(found) for way, found in every.items()}
    result["mean"] = {way: vars(mean) for way, mean in totals.items()}
    rows.append(["mean", *map(_cell, totals.values())])
    field = "All are measured at once." if batch == 1 else f"Batches of {batch}, then {measuring.FINALISTS} finalists."
    print(HALVING.format(field) + "\n\n" + tool.table(["runs, regret, against least", *totals], rows), flush=True)
    return result


def _mean(found: Sequence[measuring.Measured]) -> measuring.Measured:
    names = ("runs", "regret", "regret_of_least")
    return measuring.Measured(*(sum(getattr(one, name) for one in found) / len(found) for name in names))


def _cell(mean: measuring.Measured) -> str:
    return f"{mean.runs:.2f}, {mean.regret:.2f} %, {mean.regret_of_least:.2f} %"


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise SystemExit(f"--evaluations: {text!r} is no comma list of positive numbers")
    return numbers


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    main(parser.parse_args())

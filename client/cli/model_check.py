"""Define the command `gputune model-check`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputune.client.cli.say import print_json, say
from gputune.client.errors import MODEL_INPUT, ConfigError, Refusal
from gputune.client.options.command_line import Grouped, given_of, with_options
from gputune.client.options.files import INPUT
from gputune.client.options.generator import MODEL_CHECK
from gputune.client.options.shared import PEAKS
from gputune.core.dtypes import FLOAT

if TYPE_CHECKING:
    from gputune.client.tuning.measuring.peaks import Peaks
    from gputune.kernels.family import DeviceLimits

RUNS_NOT = 9
MOST_ROWS = 20
NAMED = 2
"""Nodes of an operator that is refused several times for the same reason."""


@click.command("model-check", cls=Grouped)
@click.argument("model", type=INPUT)
@with_options(*MODEL_CHECK)
def command(model: Path, as_json: bool, **values: Any) -> None:
    """List the nodes of a model that run, and estimate their cost and the tuning time.

    If nodes cannot run, each operator is listed with the reason, the number of its nodes and the nearest form that can
    run, and the exit code is 9; --json lists each node. You also see the parts that --unsupported host would run on the
    device: their operators, their share of the model's multiply-adds, and the bytes that go to a part and come from it.
    Otherwise the output has the distinct tasks with their operations and bytes, the tuning time for each effort, and
    the time of an inference by the roofline: the time that the work takes at the device's peaks. The peaks are assumed
    unless you give or measure them.

    \b
    gputune model-check model.onnx --input_dimensions x=1,3,224,224
    """
    from gputune.client.generation.model_check import told

    given = given_of(values)
    content = told(model, given, *_device(given))
    if as_json:
        print_json(content)
    else:
        for line in _lines(content):
            say(line)
    if not content["runs_wholly"]:
        raise click.exceptions.Exit(RUNS_NOT)


def _device(given: Mapping[str, Any]) -> tuple[Peaks, DeviceLimits]:
    """Return the peaks that options give, or that a device has, and the limits that spaces are counted for."""
    from gputune.client.generation.model_check import any_limits, measured_peaks
    from gputune.client.progress import reporting
    from gputune.client.tuning.measuring.peaks import ASSUMED, Peaks

    peaks = [one for one in PEAKS if one.name in given]
    if "device" in given:
        if peaks:
            names = " and ".join(one.words for one in peaks)
            raise ConfigError(f"{names}: with --device the peaks are measured; drop one of them")
        with reporting(sys.stderr, "warn"):
            return measured_peaks(given["device"])
    if len(peaks) == 1:
        raise ConfigError(f"{peaks[0].words}: a roofline has two slopes; give --peak_gflops and --peak_gbps")
    return Peaks(given["peak_gflops"], given["peak_gbps"], "given") if peaks else ASSUMED, any_limits()


def _lines(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the report for people."""
    from gputune.client.context.verifying.exactness import lines_of
    from gputune.client.tuning.measuring.peaks import ASSUMED

    unsupported = content["unsupported"]
    if unsupported:
        inputs = sum(one["op"] == MODEL_INPUT for one in unsupported)
        nodes = f"of {content['nodes']} nodes that were looked at, {len(unsupported) - inputs} cannot"
        yield f"{content['model']}: cannot run; {nodes}{f', and {inputs} inputs cannot be taken' if inputs else ''}"
        parts, *table = _parts(content["in_parts"], content["why_no_parts"])
        yield from (parts, "what cannot run:", *_refused(unsupported), *table)
        return
    mode = "" if content["precision_mode"] == FLOAT else f", in {content['precision_mode']}"
    yield f"{content['model']}: all of it runs{mode}; {content['nodes']} nodes in {content['operations']} operations"
    if content["state"] is not None:
        yield f"state: {content['state']}"
    if content["quantised"] is not None:
        yield from lines_of(content["quantised"])
    tasks, peaks = content["tasks"], content["peaks"]
    yield (
        f"{len(tasks)} tasks, {content['flops'] / 1e9:.3f} GFLOP, {content['bytes'] / 1e6:.1f} MB moved, "
        f"{content['constant_bytes'] / 1e6:.1f} MB of weights"
    )
    estimate = ", an estimate" if peaks["origin"] == ASSUMED.origin else ""
    rates = f"{peaks['gflops']:.1f} GFLOP/s and {peaks['gbps']:.1f} GB/s"
    yield f"roofline{estimate}: {content['roofline_ns'] / 1e6:.3f} ms at {rates} ({peaks['origin']})"
    yield "tuning: " + ", ".join(_effort(name, effort) for name, effort in content["tuning"].items())
    yield f"assumes {'; '.join(content['assumes'])}"
    yield f"{'roofline':>12} {'share':>6} {'runs':>5}  task"
    slowest = sorted(tasks, key=lambda task: -task["total_ns"])
    rows = [([task], f"{task['op']} {task['problem']}") for task in slowest[:MOST_ROWS]]
    if rest := slowest[MOST_ROWS:]:
        rows.append((rest, f"{len(rest)} others together"))
    for several, title in rows:
        ns = sum(task["total_ns"] for task in several)
        share = ns / content["roofline_ns"] if content["roofline_ns"] else 0.0
        yield f"{ns / 1e3:>9.1f} us {share:>6.1%} {sum(task['weight'] for task in several):>5}  {title}"


def _refused(unsupported: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield a line for each operator and reason, with the first of its nodes; --json has all of them."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for one in unsupported:
        alike.setdefault((one["op"], one["why"], one["nearest"]), []).append(one["node"])
    for (op, why, nearest), nodes in sorted(alike.items(), key=lambda each: -len(each[1])):
        label = Refusal(op, nodes[0], why).label
        if len(nodes) > 1:
            kind = "inputs" if op == MODEL_INPUT else f"{op} nodes"
            label = f"{len(nodes)} {kind}, {', '.join(map(repr, nodes[:NAMED]))}{', ..' if len(nodes) > NAMED else ''}"
        yield f"  {label}: {why}; instead: {nearest}"


def _parts(cut: Mapping[str, Any] | None, why_not: str) -> Iterator[str]:
    """Yield lines about the parts that --unsupported host would run on the device."""
    from gputune.client.model.parts import operators, stayed

    if cut is None:
        yield f"the parts that --unsupported host would run on the device are not known: {why_not}"
        return
    stay = stayed(cut["host_ops"], cut["could_run"])
    if not cut["parts"]:
        yield f"with --unsupported host: no part runs on the device; {stay}"
        return
    yield (
        f"with --unsupported host: {len(cut['parts'])} parts with {cut['share']:.1%} of the multiply-adds run on the "
        f"device; {stay}; an inference hands over {cut['crossing_bytes'] / 1e6:.3f} MB"
    )
    yield f"{'share':>7} {'nodes':>6} {'MB':>8}  part"
    for part in cut["parts"]:
        megabytes = part["crossing_bytes"] / 1e6
        yield f"{part['share']:>7.1%} {part['nodes']:>6} {megabytes:>8.3f}  {part['graph']}: {operators(part['ops'])}"


def _effort(name: str, effort: Mapping[str, Any]) -> str:
    if not effort["trials"]:
        return f"{name} no trials"
    minutes, more = effort["seconds"] / 60, "more than " if effort["at_least"] else "about "
    time = f"{minutes:.0f} min" if minutes >= 2 else f"{effort['seconds']:.0f} s"
    most = "" if effort["at_least"] else "at most "
    return f"{name} {more}{time} ({most}{effort['trials']} trials)"

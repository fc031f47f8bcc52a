"""Say a report's section on one task: charts, parameters, failures, and how it was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gputune.client.pages.blocks import (
    Block,
    Cell,
    Column,
    Text,
    facts,
    figure,
    fold,
    group,
    listing,
    run,
    shares,
    table,
    text,
)
from gputune.client.pages.scales import counted, digits, percent, time_range, time_text
from gputune.client.report.data import PHASES, DeviceView, TaskView, Timed, Value
from gputune.client.report.problems import value_in_words
from gputune.client.report.sections.charts import anchor_of, best_so_far, explored, nearly_there, roofline, versus
from gputune.client.tuning.measuring.intervals import WANTED, Interval

SURE = 0.9
"""From here on a range that does not hold 1 says that one is faster."""
SAID = 0.5
"""A range that holds less often than this is not worth its place."""
RESOURCES: Mapping[str, tuple[str, str]] = {
    "registers": ("Registers", "of a work-item, in the kernel that takes most"),
    "spilled_bytes": ("Spilled", "bytes of registers that went to memory"),
    "private_bytes": ("Private", "bytes of memory of a work-item"),
    "local_bytes": ("Local", "bytes of memory of a work-group"),
}
"""Show the resources of kernels, as the driver says them, in columns: their heads and hints."""


def section(task: TaskView, place: DeviceView) -> Block:
    """Return a task that can be opened."""
    timed = [time_text(task.tuned.median_ns), ", ", *gain_text(task)] if task.tuned else ["nothing works"]
    title = [run(task.title, "strong"), run(task.words, "sub"), run(timed, "end")]
    how = listing(task.how) if task.how else text("Not measured.")
    blocks = (
        _runs(task),
        _changes(task),
        group(
            "charts",
            figure("Space explored", explored(task), _explored_note(task)),
            figure("Best so far", best_so_far(task), nearly_there(task)),
            figure("Tuned against default", versus(task), _verdict(task)),
            figure("Roofline position", roofline(place, task), _position(task)),
        ),
        _parameters(task),
        _best(task),
        _failures(task),
        group(
            "charts",
            group("", *phases(task.spent_ns, task.untold), title="Time spent by phase"),
            group("", how, title="How it was measured"),
        ),
    )
    return fold(title, blocks, anchor_of(task, place), " ".join((task.title, task.words, *task.operations)))


def gain_text(task: TaskView) -> list[Any]:
    """Return the gain and its range, with the word for what that means."""
    if task.gain is None:
        return ["–"]
    if _kept_default(task):
        return ["1× ", run("default", "soft")]
    interval = task.gain_interval
    style = {"faster": "good", "slower": "bad"}.get(_word(interval), "strong soft")
    return [run(f"{digits(task.gain)}×", style), " ", run(_range(interval, _gains), "range")]


def phases(spent_ns: Mapping[str, float], untold: int = 0) -> Iterator[Block]:
    """Yield the host's time by phase, as a bar and in words."""
    total = sum(spent_ns.values())
    if not total:
        yield text("Not recorded.")
        return
    parts = [(phase, spent_ns.get(phase, 0.0)) for phase in PHASES]
    legend = [(phase, f"{phase} {time_text(time_ns)} ({percent(time_ns / total)})") for phase, time_ns in parts]
    yield shares(((time_ns / total, phase, phase, "") for phase, time_ns in parts), legend)
    if untold:
        yield text(f"Not recorded for {counted(untold, 'trial')}.", "soft")


def _runs(task: TaskView) -> Block:
    """Return which operations it computes, how far it is, and since when."""
    if task.weight is None:
        runs = ""
    elif not task.weight:
        runs = "not in the context; "
    else:
        more = ", …" if task.weight > len(task.operations) else ""
        runs = f"runs {'once' if task.weight == 1 else f'{task.weight} times'}, as {', '.join(task.operations)}{more}; "
    effort = f"tuned at effort {task.effort}" if task.effort else "not finished; the fastest so far is shown"
    return text(f"{runs}{effort}; last change {task.last_change}", "sub")


def _range(interval: Interval | None, show: Callable[[float, float], str]) -> str:
    """Low to high, and how sure that is where it is not what was wanted."""
    if interval is None:
        return ""
    if interval.confidence < SAID:
        return ""
    sure = "" if interval.confidence >= WANTED else f" at {percent(interval.confidence)}"
    return show(interval.low, interval.high) + sure


def _gains(low: float, high: float) -> str:
    return f"{digits(low)}–{digits(high)}×"


def _explored_note(task: TaskView) -> str:
    some_parameter: tuple[Value, ...] = next(iter(task.parameters.values()), ())
    different = sum(value.tried for value in some_parameter) or 1  # nothing varies: it was always the same one
    shown = f"{counted(different, 'configuration')} in {counted(len(task.attempts), 'trial')}"
    batches = {attempt.batch for attempt in task.attempts if attempt.batch is not None}
    return shown + (f", {counted(len(batches), 'batch')}" if batches else "") + ". The line is the best so far."


def _verdict(task: TaskView) -> str:
    both = [(name, timed) for name, timed in (("Default", task.default), ("tuned", task.tuned)) if timed]
    ranges = "; ".join(f"{name} {_range(timed.interval, time_range)}" for name, timed in both if timed.interval)
    if _kept_default(task) and ranges:
        return f"{ranges}."
    if task.gain_interval is None:
        return ranges or "The cache has no samples."
    return f"{ranges}. Gain {_range(task.gain_interval, _gains)}: {_word(task.gain_interval)}."


def _changes(task: TaskView) -> Block | None:
    """Return what the tuned configuration has otherwise than the default, and what that means."""
    title = "From the default to the tuned configuration"
    if _kept_default(task):
        said = "The default is kept: no other configuration was clearly faster."
        return group("", text(said), title=title)
    before, after = (timed.configuration if timed else {} for timed in (task.default, task.tuned))
    changes = [(name, before[name], value) for name, value in sorted(after.items()) if before.get(name, value) != value]
    lines: list[Text] = [
        [run(f"{name} {old} → {new}", "code"), f" {value_in_words(task.meanings.get(name, ''), new)}"]
        for name, old, new in changes
    ]
    return group("", listing(lines), title=title) if lines else None


def _word(interval: Interval | None) -> str:
    """Return what the range of a gain says."""
    if interval is None or interval.confidence < SURE:
        return "too few samples to say"
    return "faster" if interval.low > 1 else "slower" if interval.high < 1 else "no clear difference"


def _kept_default(task: TaskView) -> bool:
    default, tuned = task.default, task.tuned
    return bool(default and tuned and default.configuration and default.configuration == tuned.configuration)


def _position(task: TaskView) -> str:
    line = task.roofline
    if line is None or task.tuned is None:
        return ""
    return (
        f"Tuned, in {time_text(task.tuned.median_ns)}: {digits(line.gflops)} GFLOP/s and {digits(line.gb_per_s)} GB/s "
        f"at {digits(line.intensity)} operations per byte: {percent(line.share)} of the roofline."
    )


def _parameters(task: TaskView) -> Block | None:
    """Return each parameter with its values and how near the best time one came with them."""
    costs = [value.best_ns for values in task.parameters.values() for value in values if value.best_ns is not None]
    if not costs:
        return None
    best, chosen = min(costs), task.tuned.configuration if task.tuned else {}
    note = "Each value with the slowdown of its best configuration. The winner's values are framed, and values that "
    note += "always failed are struck out."
    rows = {
        name: [
            run(task.meanings.get(name, ""), "sub"),
            *(_value(value, best, chosen.get(name) == value.value) for value in values),
        ]
        for name, values in task.parameters.items()
    }
    return group("", text(note, "sub"), facts(rows, "values"), title="Parameters")


def _value(value: Value, best_ns: float, chosen: bool) -> dict[str, Any]:
    style = "value chosen" if chosen else "value failed" if value.best_ns is None else "value"
    longer = 0.0 if value.best_ns is None else value.best_ns / best_ns - 1
    more = "" if value.best_ns is None else f" +{percent(longer)}" if longer >= 5e-4 else " best"
    return run([run(str(value.value), "strong"), more], style, hint=f"tried {counted(value.tried, 'time')}")


def _best(task: TaskView) -> Block | None:
    if not task.best:
        return None
    scaled = "scaled to the state of the device when the tuned configuration was measured"
    interval = "confidence interval of the median"
    columns = (
        Column("Time", lambda timed: timed.median_ns, "time", hint=scaled),
        Column(
            "Range",
            lambda timed: Cell(_range(timed.interval, time_range), timed.interval and timed.interval.low),
            wide=True,
            hint=interval,
            number=True,
        ),
        Column("Samples", lambda timed: len(timed.samples_ns), "count", True),
        Column("Build", lambda timed: timed.compile_ns, "time", True, "build and first launch"),
        *(_resource(name) for name in RESOURCES if any(timed.resources.known.get(name) for timed in task.best)),
        Column("Configuration", lambda timed: _configuration(timed, task)),
    )
    return group("", _above(task), table(columns, task.best), title="Fastest configurations")


def _resource(name: str) -> Column:
    """Return the column of a resource; a cell is empty where it is not known."""
    head, hint = RESOURCES[name]

    def cell(timed: Timed) -> Cell:
        known = timed.resources.known.get(name)
        return Cell("" if known is None else str(known), known)

    return Column(head, cell, wide=True, hint=hint, number=True)


def _configuration(timed: Timed, task: TaskView) -> Text:
    """Return a configuration after the names that it has."""
    both = (("default", task.default), ("tuned", task.tuned))
    names = [name for name, one in both if one and one.configuration == timed.configuration]
    return [*(run(f"{name} ", "strong soft") for name in names), *_settings(timed.configuration)]


def _above(task: TaskView) -> Block | None:
    """Return why the tuned configuration is not the first in the table; None where it is."""
    if task.tuned is None or task.best[0].configuration == task.tuned.configuration:
        return None
    if task.tuned.median_ns < task.best[0].median_ns:
        return text("The trials of the tuned configuration are not in this cache.", "sub")
    said = "Configurations above the tuned configuration have a lower median, but were not faster when the finalists "
    return text(f"{said}were measured side by side.", "sub")


def _settings(configuration: Mapping[str, int]) -> list[Any]:
    """Return a configuration in one line that wraps between its parameters."""
    return [run(f"{name}={value} ", "code") for name, value in sorted(configuration.items())]


def _failures(task: TaskView) -> Block | None:
    if not task.failures:
        return None
    columns = (
        Column("Failure", lambda one: one.status),
        Column("Trials", lambda one: one.count, "count"),
        Column("For example", lambda one: [one.message, run(_settings(one.configuration), "sub")]),
    )
    return group("", table(columns, task.failures), title="Failures by name")

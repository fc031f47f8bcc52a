"""Write a report's section on one task: charts, parameters, failures, and how it was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gputune.client.html.markup import Cell, Column, figure, listing, settings, table, text
from gputune.client.html.scales import counted, digits, percent, time_range, time_text
from gputune.client.report.data import PHASES, Place, TaskView, Timed, Value
from gputune.client.report.html.charts import anchor_of, best_so_far, explored, nearly_there, roofline, versus
from gputune.client.report.problems import value_in_words
from gputune.client.tuning.measuring.intervals import WANTED, Interval

SURE = 0.9
"""From here on a range that does not hold 1 says that one is faster."""
SAID = 0.5
"""A range that holds less often than this is not worth its place."""
RESOURCES: Mapping[str, Column] = {
    "registers": Column("Registers", "number", True, "of a work-item, in the kernel that takes most"),
    "spilled_bytes": Column("Spilled", "number", True, "bytes of registers that went to memory"),
    "private_bytes": Column("Private", "number", True, "bytes of memory of a work-item"),
    "local_bytes": Column("Local", "number", True, "bytes of memory of a work-group"),
}
"""Show the resources of kernels, as the driver says them, in columns."""


def section(task: TaskView, place: Place) -> str:
    """Return a task that can be opened."""
    timed = f"{time_text(task.tuned.median_ns)}, {gain_text(task)}" if task.tuned else "nothing works"
    described = " ".join((task.title, task.words, *task.operations))
    figures = "".join(
        (
            figure("Space explored", explored(task), _explored_note(task)),
            figure("Best so far", best_so_far(task), text(nearly_there(task))),
            figure("Tuned against default", versus(task), _verdict(task)),
            figure("Roofline position", roofline(place, task), _position(task)),
        )
    )
    return (
        f'<details class="task" id="{anchor_of(task, place)}" data-words="{text(described)}"><summary>'
        f'<b>{text(task.title)}</b><span class="sub">{text(task.words)}</span>'
        f'<span class="end">{timed}</span></summary>'
        f'<div>{_runs(task)}{_changes(task)}<div class="charts">{figures}</div>'
        f"{_parameters(task)}{_best(task)}{_failures(task)}"
        f'<div class="pair"><div><h3>Time spent by phase</h3>{phases(task.spent_ns, task.untold)}</div>'
        f"<div><h3>How it was measured</h3>{listing(task.how) if task.how else '<p>Not measured.</p>'}</div></div>"
        f"</div></details>"
    )


def gain_text(task: TaskView) -> str:
    """Return the gain and its range, with the word for what that means."""
    if task.gain is None:
        return "–"
    if _kept_default(task):
        return '1× <span class="soft">default</span>'
    interval = task.gain_interval
    style = {"faster": "good", "slower": "bad"}.get(_word(interval), "soft")
    return f'<b class="{style}">{digits(task.gain)}×</b> <span class="range">{_range(interval, _gains)}</span>'


def phases(spent_ns: Mapping[str, float], untold: int = 0) -> str:
    """Host time by phase, as a bar and in words."""
    total = sum(spent_ns.values())
    if not total:
        return "<p>Not recorded.</p>"
    shares = [(phase, spent_ns.get(phase, 0.0)) for phase in PHASES]
    bar = "".join(f'<i class="{phase}" style="width:{100 * time_ns / total:.2f}%"></i>' for phase, time_ns in shares)
    legend = "<br>".join(
        f'<span class="key {phase}"></span>{phase} {time_text(time_ns)} ({percent(time_ns / total)})'
        for phase, time_ns in shares
    )
    missing = f'<p class="soft">Not recorded for {counted(untold, "trial")}.</p>' if untold else ""
    return f'<div class="bar">{bar}</div><p>{legend}</p>{missing}'


def _runs(task: TaskView) -> str:
    """Return which operations it computes, how far it is, and since when."""
    if task.weight is None:
        runs = ""
    elif not task.weight:
        runs = "not in the context; "
    else:
        more = ", …" if task.weight > len(task.operations) else ""
        runs = f"runs {'once' if task.weight == 1 else f'{task.weight} times'}, as {', '.join(task.operations)}{more}; "
    effort = f"tuned at effort {task.effort}" if task.effort else "not finished; the fastest so far is shown"
    return f'<p class="sub">{text(f"{runs}{effort}; last change {task.last_change}")}</p>'


def _range(interval: Interval | None, show: Callable[[float, float], str]) -> str:
    """Low to high, and how sure that is where it is not what was wanted."""
    if interval is None:
        return ""
    if interval.confidence < SAID:
        return ""
    sure = "" if interval.confidence >= WANTED else f" at {percent(interval.confidence)}"
    return text(show(interval.low, interval.high) + sure)


def _gains(low: float, high: float) -> str:
    return f"{digits(low)}–{digits(high)}×"


def _explored_note(task: TaskView) -> str:
    some_parameter: tuple[Value, ...] = next(iter(task.parameters.values()), ())
    different = sum(value.tried for value in some_parameter) or 1  # nothing varies: it was always the same one
    shown = f"{counted(different, 'configuration')} in {counted(len(task.attempts), 'trial')}"
    batches = {attempt.batch for attempt in task.attempts if attempt.batch is not None}
    return text(shown + (f", {counted(len(batches), 'batch')}" if batches else "") + ". The line is the best so far.")


def _verdict(task: TaskView) -> str:
    both = [(name, timed) for name, timed in (("Default", task.default), ("tuned", task.tuned)) if timed]
    ranges = "; ".join(f"{name} {_range(timed.interval, time_range)}" for name, timed in both if timed.interval)
    if _kept_default(task) and ranges:
        return f"{ranges}."
    if task.gain_interval is None:
        return ranges or "The cache has no samples."
    return f"{ranges}. Gain {_range(task.gain_interval, _gains)}: {_word(task.gain_interval)}."


def _changes(task: TaskView) -> str:
    """Return what the tuned configuration has otherwise than the default, and what that means."""
    if _kept_default(task):
        return _FROM_DEFAULT + "<p>The default is kept: no other configuration was clearly faster.</p>"
    before, after = (timed.configuration if timed else {} for timed in (task.default, task.tuned))
    changes = [(name, before[name], value) for name, value in sorted(after.items()) if before.get(name, value) != value]
    if not changes:
        return ""
    lines = "".join(
        f"<li><code>{text(f'{name} {old} → {new}')}</code> {text(meaning)}</li>"
        for name, old, new in changes
        for meaning in [value_in_words(task.meanings.get(name, ""), new)]
    )
    return f"{_FROM_DEFAULT}<ul>{lines}</ul>"


_FROM_DEFAULT = "<h3>From the default to the tuned configuration</h3>"


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
    return text(
        f"Tuned, in {time_text(task.tuned.median_ns)}: {digits(line.gflops)} GFLOP/s and {digits(line.gb_per_s)} GB/s "
        f"at {digits(line.intensity)} operations per byte: {percent(line.share)} of the roofline."
    )


def _parameters(task: TaskView) -> str:
    """Return each parameter with its values and how near the best time one came with them."""
    costs = [value.best_ns for values in task.parameters.values() for value in values if value.best_ns is not None]
    if not costs:
        return ""
    best, chosen = min(costs), task.tuned.configuration if task.tuned else {}
    entries = "".join(
        f'<div><dt>{text(name)} <span class="soft">{text(task.meanings.get(name, ""))}</span></dt><dd class="values">'
        f"{''.join(_value(value, best, chosen.get(name) == value.value) for value in values)}</dd></div>"
        for name, values in task.parameters.items()
    )
    note = "Each value with the slowdown of its best configuration. The winner's values are framed, and values that "
    note += "always failed are struck out."
    return f'<h3>Parameters</h3><p class="sub">{note}</p><dl class="parameters">{entries}</dl>'


def _value(value: Value, best_ns: float, chosen: bool) -> str:
    style = " chosen" if chosen else " failed" if value.best_ns is None else ""
    longer = 0.0 if value.best_ns is None else value.best_ns / best_ns - 1
    more = "" if value.best_ns is None else f" +{percent(longer)}" if longer >= 5e-4 else " best"
    return f'<span class="value{style}" title="tried {counted(value.tried, "time")}"><b>{value.value}</b>{more}</span>'


def _best(task: TaskView) -> str:
    if not task.best:
        return ""
    taken = _taken(task.best)
    columns = (
        Column("Time", "number", hint="scaled to the state of the device when the tuned configuration was measured"),
        Column("Range", "number", True, "confidence interval of the median"),
        Column("Samples", "number", True),
        Column("Build", "number", True, "build and first launch"),
        *(RESOURCES[name] for name in taken),
        Column("Configuration"),
    )
    names = [(name, one.configuration) for name, one in (("default", task.default), ("tuned", task.tuned)) if one]
    rows = [_row(timed, [name for name, own in names if own == timed.configuration], taken) for timed in task.best]
    return f"<h3>Fastest configurations</h3>{_above(task)}{table(columns, rows)}"


def _above(task: TaskView) -> str:
    """Why the tuned configuration is not the first in the table; nothing where it is."""
    if task.tuned is None or task.best[0].configuration == task.tuned.configuration:
        return ""
    if task.tuned.median_ns < task.best[0].median_ns:
        return '<p class="sub">The trials of the tuned configuration are not in this cache.</p>'
    return (
        '<p class="sub">Configurations above the tuned configuration have a lower median, but were not faster when the '
        "finalists were measured side by side.</p>"
    )


def _taken(best: Sequence[Timed]) -> list[str]:
    """Return the resources that any of them is known to take."""
    return [name for name in RESOURCES if any(timed.resources.known.get(name) for timed in best)]


def _row(timed: Timed, names: Sequence[str], taken: Sequence[str]) -> tuple[Cell, ...]:
    resources = [timed.resources.known.get(name) for name in taken]
    marks = "".join(f'<b class="soft">{name}</b> ' for name in names)
    return (
        Cell(time_text(timed.median_ns), timed.median_ns),
        Cell(_range(timed.interval, time_range), timed.interval.low if timed.interval else None),
        Cell(str(len(timed.samples_ns)), len(timed.samples_ns)),
        Cell(time_text(timed.compile_ns), timed.compile_ns),
        *(Cell("" if known is None else str(known), known) for known in resources),
        Cell(
            marks + settings(timed.configuration), " ".join(f"{n}={v}" for n, v in sorted(timed.configuration.items()))
        ),
    )


def _failures(task: TaskView) -> str:
    if not task.failures:
        return ""
    columns = (Column("Failure", "name"), Column("Trials", "number"), Column("For example", "message"))
    rows = [
        (
            Cell(text(failure.status), failure.status),
            Cell(str(failure.count), failure.count),
            Cell(f"{text(failure.message)}<br>{settings(failure.configuration)}", failure.message),
        )
        for failure in task.failures
    ]
    return f"<h3>Failures by name</h3>{table(columns, rows)}"

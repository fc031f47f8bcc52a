"""Say what the page of a tuning report holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gputune.client.pages.blocks import (
    Block,
    Cell,
    Column,
    Text,
    card,
    figure,
    filter_field,
    fold,
    group,
    run,
    table,
    text,
    tiles,
)
from gputune.client.pages.document import page
from gputune.client.pages.scales import counted, digits, time_text
from gputune.client.report.data import PHASES, DeviceView, Report, TaskView
from gputune.client.report.sections.charts import anchor_of, roofline
from gputune.client.report.sections.inferences import inferences, layers
from gputune.client.report.sections.tasks import gain_text, phases, section


def report_page(report: Report) -> str:
    """Return the whole document."""
    devices = list(dict.fromkeys(place.device for place in report.places))
    title = f"Tuning report: {', '.join([*report.graphs, *devices]) or report.tier}"
    heading = f"Tuning of {', '.join(report.graphs)}" if report.graphs else "Tuning report"
    facts = [f"context {report.context}" if report.context else "", f"performance cache {report.cache}", report.made_at]
    return page(title, heading, ", ".join(filter(None, facts)), report_sections(report), _EXPLAINED)


def report_sections(report: Report) -> list[Block | None]:
    """Return all that the page holds."""
    empty = "This cache has no measurements yet; tune a model to add some."
    return [
        *(text(note, "note") for note in report.notes),
        inferences(report),
        None if report.places else text(empty),
        *(_place(place, report) for place in report.places),
    ]


_EXPLAINED = (
    "Times are medians of verified launches. Ranges are confidence intervals of the median, at 95 % or, with too few "
    "samples, at the confidence that is shown. A gain is the default's time divided by the tuned time; its range comes "
    "from the ratios of all pairs of samples. The roofline is the best rate of any task on this device, in operations "
    "and in bytes per second, or the peak that you gave. Caches can lift small tasks above the rate of memory."
)


def _place(place: DeviceView, report: Report) -> Block | None:
    lines = ["; ".join(f"{name}: {value}" for name, value in place.facts.items())]
    if place.missing:
        lines.append(f"Not measured here: {counted(place.missing, 'task')} of the context.")
    if place.set_aside:
        lines.append(f"Not shown: older measurements of {counted(place.set_aside, 'task')}, made with other kernels.")
    own = _own(place, bool(report.end_to_end)) if place.tasks else ()
    said = (text(line, "sub") for line in lines)
    return group("section", *said, *own, _others(place), title=place.device)


def _own(place: DeviceView, measured: bool) -> Iterator[Block | None]:
    """Yield what belongs to the context, or all tasks where there is none."""
    yield tiles(*_tiles(place, measured))
    yield layers(place)
    yield card("Tasks", filter_field("Filter tasks, such as conv 3×3"), _tasks(place.tasks, place))
    yield group("pair", card("", figure("Roofline", roofline(place), _roof_note(place))), card("", *_overall(place)))
    yield group("tasks", *(section(task, place) for task in place.tasks), title="Task by task")


def _others(place: DeviceView) -> Block | None:
    """Return the tasks of other models, folded away."""
    if not place.others:
        return None
    trials, spent = _trials(place.others), _spent(place.others)
    took = f", {time_text(spent)}" if spent else ""
    said = f"{counted(len(place.others), 'task')} in this cache, {counted(trials, 'trial')}{took}; not counted above"
    title = [run("Tasks of other models", "strong"), run(said, "sub")]
    return fold(title, [_tasks(place.others, place), *(section(task, place) for task in place.others)])


def _trials(tasks: Sequence[TaskView]) -> int:
    return sum(len(task.attempts) for task in tasks)


def _spent(tasks: Sequence[TaskView]) -> float:
    return sum(sum(task.spent_ns.values()) for task in tasks)


def _tiles(place: DeviceView, measured: bool) -> Iterator[tuple[str, str, str]]:
    trials, failed = _trials(place.tasks), sum(task.failed for task in place.tasks)
    spent, untold = _spent(place.tasks), sum(task.untold for task in place.tasks)
    if place.before_ns and place.after_ns:
        weighed = any(task.weight is not None for task in place.tasks)
        whole = "" if place.summed == place.operations else f"{place.summed} of "
        what = f"{whole}{counted(place.operations, 'operation')}" if weighed else "each task once"
        estimate = "" if measured or not weighed else ", an estimate"
        times = f"{time_text(place.before_ns)} → {time_text(place.after_ns)}"
        more = f"{digits(place.before_ns / place.after_ns)}×{estimate}; sum of the kernels of {what}"
        yield "Kernel time, default → tuned", times, more
    open_tasks = sum(task.effort is None for task in place.tasks)
    effort = Counter(task.effort for task in place.tasks if task.effort)
    how = ", ".join(f"{count} at effort {name}" for name, count in effort.most_common())
    compared = sum(task.weight == 0 for task in place.tasks)
    parts = (f"{compared} only compared" if compared else "", how, f"{open_tasks} unfinished" if open_tasks else "")
    yield "Tasks", str(len(place.tasks)), "; ".join(filter(None, parts))
    yield "Trials", f"{trials:,}", f"{failed:,} failed" if failed else "none failed"
    missing = "" if not untold else f"not recorded for {counted(untold, 'trial')}"
    yield "Time spent on trials", time_text(spent) if spent else "not recorded", missing


def _tasks(tasks: Sequence[TaskView], place: DeviceView) -> Block:
    weighed = any(task.weight for task in tasks)
    total = sum(_model_ns(task) for task in tasks) or 1.0
    columns = [Column("Task", lambda task: _named(task, place, weighed))]
    if weighed:
        runs, share = "operations of the context that the task computes", "share of the tuned time of all operations"
        columns += [
            Column("Runs", lambda task: task.weight or None, "count", True, runs),
            Column("Share", lambda task: _model_ns(task) / total or None, "percent", True, share),
        ]
    gain = "default time divided by tuned time, with its range"
    roof = "share of the roofline that the tuned kernel reaches"
    columns += [
        Column("Default", lambda task: task.default and task.default.median_ns, "time", True),
        Column("Tuned", lambda task: task.tuned and task.tuned.median_ns, "time"),
        Column("Gain", lambda task: Cell(gain_text(task), task.gain), hint=gain, number=True),
        Column("Of roofline", lambda task: task.roofline and task.roofline.share, "percent", True, roof),
        Column("Trials", lambda task: len(task.attempts), "count", True),
        Column("Failed", lambda task: task.failed, "count", True),
        Column("Spent", lambda task: _spent([task]) or None, "time", True, "host time for its trials, if recorded"),
    ]
    return table(columns, tasks, filtered=True)


def _named(task: TaskView, place: DeviceView, weighed: bool) -> Cell:
    words = f"{task.words}; compared, not in the context" if weighed and not task.weight else task.words
    return Cell([run(task.title, link=anchor_of(task, place)), run(words, "sub")], task.title)


def _model_ns(task: TaskView) -> float:
    return (task.tuned.median_ns if task.tuned else 0.0) * (task.weight or 0)


def _roof_note(place: DeviceView) -> str:
    if place.roof is None:
        return ""
    roof = place.roof
    sources = ["given" if given else "best of any task" for given in (roof.gflops_given, roof.gb_per_s_given)]
    bare = sum(task.roofline is not None and not task.roofline.flops for task in place.tasks)
    faint = " Faint: tasks of other models." if place.others else ""
    said = f"{digits(roof.gflops)} GFLOP/s ({sources[0]}), {digits(roof.gb_per_s)} GB/s ({sources[1]})."
    return said + (f" Not shown: {counted(bare, 'task')} without arithmetic." if bare else "") + faint


def _overall(place: DeviceView) -> Iterator[Block | None]:
    """Yield time by phase and failures by name, over all tasks."""
    spent = {phase: sum(task.spent_ns.get(phase, 0.0) for task in place.tasks) for phase in PHASES}
    failures: dict[str, list[tuple[TaskView, int, str]]] = {}
    for task in place.tasks:
        for failure in task.failures:
            failures.setdefault(failure.status, []).append((task, failure.count, failure.message))
    columns = (
        Column("Failure", lambda row: row[0]),
        Column("Trials", lambda row: sum(count for _, count, _ in row[1]), "count"),
        Column("For example", lambda row: _example(place, *row[1][0])),
    )
    yield group("", *phases(spent), title="Time spent by phase")
    failed = table(columns, failures.items()) if failures else text("No trial failed.")
    yield group("", failed, title="Failures by name")


def _example(place: DeviceView, task: TaskView, _: int, message: str) -> Text:
    return [run(task.title, link=anchor_of(task, place)), f": {message}"]

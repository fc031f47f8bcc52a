"""Write a report as one HTML page with style, pictures and script inside; its policy forbids any request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gputune.client.html.document import document
from gputune.client.html.markup import Cell, Column, figure, table, text, tile
from gputune.client.html.scales import counted, digits, percent, time_text
from gputune.client.report.data import PHASES, Place, Report, TaskView
from gputune.client.report.html.charts import anchor_of, roofline
from gputune.client.report.html.inference_section import inferences, layers
from gputune.client.report.html.style import REPORT_STYLE
from gputune.client.report.html.task_section import gain_text, phases, section


def page(report: Report) -> str:
    """Return the whole document."""
    devices = list(dict.fromkeys(place.device for place in report.places))
    title = f"Tuning report: {', '.join([*report.graphs, *devices]) or report.tier}"
    heading = f"Tuning of {', '.join(report.graphs)}" if report.graphs else "Tuning report"
    facts = [f"context {report.context}" if report.context else "", f"performance cache {report.cache}", report.made_at]
    notes = "".join(f'<p class="note">{text(note)}</p>' for note in report.notes)
    places = "".join(_place(place, report) for place in report.places)
    empty = "" if report.places else "<p>This cache has no measurements yet; tune a model to add some.</p>"
    content = f"{notes}{inferences(report)}{empty}{places}"
    return document(title, heading, ", ".join(filter(None, facts)), content, _EXPLAINED, style=REPORT_STYLE)


_EXPLAINED = (
    "Times are medians of verified launches. Ranges are confidence intervals of the median, at 95 % or, with too few "
    "samples, at the confidence that is shown. A gain is the default's time divided by the tuned time; its range comes "
    "from the ratios of all pairs of samples. The roofline is the best rate of any task on this device, in operations "
    "and in bytes per second, or the peak that you gave. Caches can lift small tasks above the rate of memory."
)


def _place(place: Place, report: Report) -> str:
    facts = "; ".join(f"{name}: {value}" for name, value in place.facts.items())
    lines = []
    if place.missing:
        lines.append(f"Not measured here: {counted(place.missing, 'task')} of the context.")
    if place.set_aside:
        lines.append(f"Not shown: older measurements of {counted(place.set_aside, 'task')}, made with other kernels.")
    said = "".join(f'<p class="sub">{text(line)}</p>' for line in lines)
    return (
        f'<section class="place" data-filter="Filter tasks, such as conv 3×3"><h2>{text(place.device)}</h2>'
        f'<p class="sub">{text(facts)}</p>'
        f"{said}{_own(place, bool(report.end_to_end)) if place.tasks else ''}{_others(place)}</section>"
    )


def _own(place: Place, measured: bool) -> str:
    """Return what belongs to the context, or all tasks where there is none."""
    picture = figure("Roofline", roofline(place), _roof_note(place))
    sections = "".join(section(task, place) for task in place.tasks)
    return (
        f'<dl class="tiles">{_tiles(place, measured)}</dl>{layers(place)}'
        f'<h3 class="part">Tasks</h3><div class="card">{_tasks(place.tasks, place)}</div>'
        f'<div class="pair">{_card(picture)}{_card(_overall(place))}</div>'
        f'<h3 class="part">Task by task</h3>{sections}'
    )


def _others(place: Place) -> str:
    """Return the tasks of other models, folded away."""
    if not place.others:
        return ""
    trials, spent = _trials(place.others), _spent(place.others)
    took = f", {time_text(spent)}" if spent else ""
    sections = "".join(section(task, place) for task in place.others)
    return (
        f'<details class="task others"><summary><b>Tasks of other models</b><span class="sub">'
        f"{counted(len(place.others), 'task')} in this cache, {counted(trials, 'trial')}{took}; not counted above"
        f"</span></summary><div>{_tasks(place.others, place)}{sections}</div></details>"
    )


def _trials(tasks: Sequence[TaskView]) -> int:
    return sum(len(task.attempts) for task in tasks)


def _spent(tasks: Sequence[TaskView]) -> float:
    return sum(sum(task.spent_ns.values()) for task in tasks)


def _card(content: str) -> str:
    return f'<div class="card">{content}</div>' if content else ""


def _tiles(place: Place, measured: bool) -> str:
    trials, failed = _trials(place.tasks), sum(task.failed for task in place.tasks)
    spent, untold = _spent(place.tasks), sum(task.untold for task in place.tasks)
    tiles = []
    if place.before_ns and place.after_ns:
        weighed = any(task.weight is not None for task in place.tasks)
        whole = "" if place.summed == place.operations else f"{place.summed} of "
        what = f"{whole}{counted(place.operations, 'operation')}" if weighed else "each task once"
        estimate = "" if measured or not weighed else ", an estimate"
        times = f"{time_text(place.before_ns)} → {time_text(place.after_ns)}"
        more = f"{digits(place.before_ns / place.after_ns)}×{estimate}; sum of the kernels of {what}"
        tiles.append(tile("Kernel time, default → tuned", times, text(more)))
    open_tasks = sum(task.effort is None for task in place.tasks)
    effort = Counter(task.effort for task in place.tasks if task.effort)
    how = ", ".join(f"{count} at effort {name}" for name, count in effort.most_common())
    compared = sum(task.weight == 0 for task in place.tasks)
    parts = (f"{compared} only compared" if compared else "", how, f"{open_tasks} unfinished" if open_tasks else "")
    tiles.append(tile("Tasks", str(len(place.tasks)), text("; ".join(filter(None, parts)))))
    tiles.append(tile("Trials", f"{trials:,}", f"{failed:,} failed" if failed else "none failed"))
    missing = "" if not untold else f"not recorded for {counted(untold, 'trial')}"
    tiles.append(tile("Time spent on trials", time_text(spent) if spent else "not recorded", missing))
    return "".join(tiles)


def _tasks(tasks: Sequence[TaskView], place: Place) -> str:
    weighed = any(task.weight for task in tasks)
    total = sum(_model_ns(task) for task in tasks) or 1.0
    columns = [Column("Task")]
    if weighed:
        columns += [Column("Runs", "number", True, "operations of the context that the task computes")]
        columns += [Column("Share", "number", True, "share of the tuned time of all operations")]
    columns += [
        Column("Default", "number", True),
        Column("Tuned", "number"),
        Column("Gain", "number", hint="default time divided by tuned time, with its range"),
        Column("Of roofline", "number", True, "share of the roofline that the tuned kernel reaches"),
        Column("Trials", "number", True),
        Column("Failed", "number", True),
        Column("Spent", "number", True, "host time for its trials, if recorded"),
    ]
    rows = []
    for task in tasks:
        words = f"{task.words}; compared, not in the context" if weighed and not task.weight else task.words
        name = f'<a href="#{anchor_of(task, place)}">{text(task.title)}</a><span class="sub">{text(words)}</span>'
        row = [Cell(name, task.title)]
        if weighed:
            share = _model_ns(task) / total
            row += [Cell(str(task.weight or "–"), task.weight), Cell(percent(share) if share else "–", share or None)]
        row += [_time(task.default.median_ns if task.default else None)]
        row += [_time(task.tuned.median_ns if task.tuned else None), Cell(gain_text(task), task.gain)]
        row += [Cell(percent(task.roofline.share), task.roofline.share) if task.roofline else Cell("–")]
        spent = sum(task.spent_ns.values())
        row += [Cell(str(len(task.attempts)), len(task.attempts)), Cell(str(task.failed), task.failed)]
        row += [_time(spent or None)]
        rows.append(row)
    return table(columns, rows, "tasks filtered")


def _time(nanoseconds: float | None) -> Cell:
    return Cell(time_text(nanoseconds), nanoseconds)


def _model_ns(task: TaskView) -> float:
    return (task.tuned.median_ns if task.tuned else 0.0) * (task.weight or 0)


def _roof_note(place: Place) -> str:
    if place.roof is None:
        return ""
    roof = place.roof
    sources = ["given" if given else "best of any task" for given in (roof.gflops_given, roof.gb_per_s_given)]
    bare = sum(task.roofline is not None and not task.roofline.flops for task in place.tasks)
    faint = " Faint: tasks of other models." if place.others else ""
    text_of = f"{digits(roof.gflops)} GFLOP/s ({sources[0]}), {digits(roof.gb_per_s)} GB/s ({sources[1]})."
    return text(text_of + (f" Not shown: {counted(bare, 'task')} without arithmetic." if bare else "") + faint)


def _overall(place: Place) -> str:
    """Time by phase and failures by name, over all tasks."""
    spent = {phase: sum(task.spent_ns.get(phase, 0.0) for task in place.tasks) for phase in PHASES}
    failures: dict[str, list[tuple[TaskView, int, str]]] = {}
    for task in place.tasks:
        for failure in task.failures:
            failures.setdefault(failure.status, []).append((task, failure.count, failure.message))
    rows = [
        (
            Cell(text(status), status),
            Cell(f"{sum(count for _, count, _ in own):,}", sum(count for _, count, _ in own)),
            Cell(f'<a href="#{anchor_of(own[0][0], place)}">{text(own[0][0].title)}</a>: {text(own[0][2])}', own[0][2]),
        )
        for status, own in failures.items()
    ]
    columns = (Column("Failure", "name"), Column("Trials", "number"), Column("For example", "message"))
    failed = table(columns, rows) if rows else "<p>No trial failed.</p>"
    return f"<h3>Time spent by phase</h3>{phases(spent)}<h3>Failures by name</h3>{failed}"

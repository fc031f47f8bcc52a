"""Say the tables of a graph's operations: by op, and each operation with all that is known of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gputune.client.pages.blocks import Block, Cell, Column, bar, facts, key, run, table, text
from gputune.client.pages.scales import bytes_text, counted, digits, percent, tenths, time_range, time_text
from gputune.client.tuning.measuring.intervals import median_interval
from gputune.client.viewer.analysis.roofline import RooflineRow
from gputune.client.viewer.profile import OperationTimes
from gputune.client.viewer.schematic import OperationPlan
from gputune.client.viewer.sections.shown import OperationGroup, Shown

MOST_OPERATIONS = 1000
MOST_NAMES = 40


def by_op(shown: Shown) -> Block:
    """Return a row for each op; for each kernel without a schematic."""
    total_ns, gains = shown.groups[0].total_ns, shown.placed
    columns = [
        Column("Op" if shown.graph.plans else "Kernel", lambda group: [key(group.colour), group.name]),
        Column("Operations", lambda group: len(group.operations), "count", wide=True),
        Column("Launches", lambda group: sum(len(one.launches) for one in group.operations), "count", wide=True),
        Column("Median µs", lambda group: group.median_ns, "micros", True, "median of the sum of its operations"),
        Column("Mean µs", lambda group: group.mean_ns, "micros", hint="mean of the sum of its operations"),
        _share(shown, total_ns),
    ]
    if gains:
        columns.append(Column("To gain µs", lambda group: _gain_ns(group, gains), "micros", hint=_TO_GAIN))
    return table(columns, shown.groups)


def one_by_one(shown: Shown) -> Iterator[Block]:
    """Yield a row for each operation, those with the most time where there are too many."""
    every = sorted(shown.graph.operations, key=lambda one: -one.total_ns)
    columns = [
        Column("Operation", lambda one: _named(one, shown)),
        Column("Median µs", lambda one: one.median_ns, "micros", wide=True),
        Column("Mean µs", lambda one: one.mean_ns, "micros", hint="mean of all inferences"),
        _share(shown, every[0].total_ns),
        Column("Launches", lambda one: len(one.launches), "count", wide=True),
    ]
    if inside := shown.graph.inside:
        median = "median inside the persistent kernels"
        columns.append(Column("Inside µs", lambda one: inside[one.name].median_ns, "micros", True, median))
    if plans := shown.graph.plans:
        alone = _of(plans, lambda plan: plan.alone_ns)
        columns.append(Column("Alone µs", alone, "micros", True, "median when it was tuned alone"))
    if placed := shown.placed:
        columns += [
            Column("GFLOP/s", _of(placed, lambda row: row.gflops_per_s), "tenth", True),
            Column("GB/s", _of(placed, lambda row: row.gbytes_per_s), "tenth", True),
            Column("Of roof", _of(placed, lambda row: row.share), "share", True, "share of what the roofline allows"),
            Column("Bound by", _of(placed, lambda row: row.bound), wide=True),
            Column("To gain µs", _of(placed, lambda row: row.gain_ns), "micros", True, _TO_GAIN),
        ]
    yield table(
        columns,
        every[:MOST_OPERATIONS],
        ids=lambda one: shown.row(one.name),
        details=lambda one: [_details(one, shown)],
        filtered=True,
    )
    if len(every) > MOST_OPERATIONS:
        said = f"The {MOST_OPERATIONS:,} slowest of {len(every):,} operations. A CSV file has all of them."
        yield text(said, "sub")


_TO_GAIN = "time above the roofline"


def _of(known: Mapping[str, Any], value: Callable[[Any], Any]) -> Callable[[OperationTimes], Any]:
    """Return what gives a value of what is known of an operation, None where nothing is."""
    return lambda one: value(known[one.name]) if one.name in known else None


def _gain_ns(group: OperationGroup, placed: Mapping[str, RooflineRow]) -> float:
    return sum(placed[one.name].gain_ns for one in group.operations if one.name in placed)


def _named(one: OperationTimes, shown: Shown) -> Cell:
    group = shown.groups[shown.group_of[one.name]]
    return Cell([one.name, run([key(group.colour), group.name], "under")], one.name)


def _share(shown: Shown, most_ns: int) -> Column:
    """Return the column of shares of the inferences; its bar is full for the row with the most."""

    def cell(one: OperationGroup | OperationTimes) -> Cell:
        share = shown.graph.share(one.total_ns)
        return Cell([tenths(share), bar(one.total_ns / most_ns if most_ns > 0 else 0.0)], share)

    return Column("Share", cell, hint="mean by the mean inference", number=True)


def configuration_words(plan: OperationPlan) -> str:
    """Return what tuning has changed, and what it has kept, as text."""
    ran, default = plan.configuration, plan.default
    changed = [f"{name} {_value(default.get(name))} → {_value(ran.get(name))}" for name in _names(ran, default, True)]
    kept = [f"{name} {_value(ran[name])}" for name in _names(ran, default, False)]
    if not changed:
        return f"the default: {', '.join(kept)}" if kept else "no parameters"
    return f"{', '.join(changed)}{'; unchanged: ' if kept else ''}{', '.join(kept)}"


def _details(one: OperationTimes, shown: Shown) -> Block:
    """Return names and values, whatever is known."""
    plan, placed = shown.graph.plans.get(one.name), shown.placed.get(one.name)
    lines = {"Time here": _time_here(one, plan)}
    if placed is not None:
        lines["Roofline"] = _roofline(placed)
    if plan is not None:
        lines |= _planned(plan)
    return facts({**lines, "Launches": _launches(one, shown)})


def _roofline(placed: RooflineRow) -> str:
    limit = "the roof" if placed.bound == "none" else f"what {placed.bound} allows"
    rates = f"{digits(placed.gflops_per_s)} GFLOP/s, {digits(placed.gbytes_per_s)} GB/s"
    at_best = f"at best {time_text(placed.best_ns)}, {time_text(placed.gain_ns)} to gain"
    return f"{percent(placed.share)} of {limit}: {rates}; {at_best}"


def _planned(plan: OperationPlan) -> dict[str, str]:
    """Return what the schematic says of an operation."""
    return {
        "Alone": _alone(plan),
        "Configuration": configuration_words(plan),
        "ONNX nodes": _joined(plan.nodes),
        "Work": f"{plan.flops:,} operations, at least {bytes_text(plan.nbytes)}",
        "Reads": _joined([f"{tensor} as {name}" for name, tensor in plan.inputs.items()]),
        "Writes": plan.output,
        "Problem": _joined([f"{name} {_value(value)}" for name, value in plan.problem.items()]),
    }


def _time_here(one: OperationTimes, plan: OperationPlan | None) -> str:
    if not len(one.times_ns):
        return ""
    interval = median_interval(one.times_ns.tolist())
    said = f"{time_text(one.median_ns)}, {time_range(interval.low, interval.high)} "
    said += f"with {percent(interval.confidence)} confidence"
    spread = f"; from {time_text(int(one.times_ns.min()))} to {time_text(int(one.times_ns.max()))}"
    beside = f"; {one.median_ns / plan.alone_ns:.2f} times the time alone" if plan and plan.alone_ns else ""
    return f"{said}{spread}{beside}"


def _alone(plan: OperationPlan) -> str:
    if plan.alone_ns is None:
        return "not measured"
    default = f"; the default took {time_text(plan.default_ns)}" if plan.default_ns is not None else ""
    return f"{time_text(plan.alone_ns)} when it was tuned{default}"


def _launches(one: OperationTimes, shown: Shown) -> str:
    own = [shown.graph.graph.launches[place] for place in one.launches]
    said = [
        f"{each.entry}, {_sizes(each.global_size)} work-items in work-groups of {_sizes(each.local_size)}"
        for each in own
    ]
    places = f"{one.launches[0] + 1}" + (f" to {one.launches[-1] + 1}" if len(own) > 1 else "")
    return f"{counted(len(own), 'launch')}, {places}: {_joined(list(dict.fromkeys(said)))}"


def _names(ran: Mapping[str, Any], default: Mapping[str, Any], changed: bool) -> list[str]:
    return [name for name in {**default, **ran} if (default.get(name) != ran.get(name)) == changed]


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return "×".join(map(_value, value))
    return "–" if value is None else str(value)[:200]


def _sizes(sizes: Sequence[int]) -> str:
    return "×".join(map(str, sizes)) or "1"


def _joined(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}"

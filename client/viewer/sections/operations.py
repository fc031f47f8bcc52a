"""Say the tables of a graph's operations: by op, and each operation with all that is known of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gputune.client.pages.blocks import Block, Cell, Column, bar, facts, key, run, table, text
from gputune.client.pages.scales import bytes_text, counted, digits, percent, tenths, time_range, time_text
from gputune.client.tuning.measuring.intervals import median_interval
from gputune.client.viewer.analysis.roofline import RooflineRow
from gputune.client.viewer.profile import OperationTimes
from gputune.client.viewer.schematic import OperationPlan
from gputune.client.viewer.sections.groups import Group, Shown
from gputune.client.viewer.sections.insights import Insights, gain_ns

MOST_OPERATIONS = 1000
MOST_NAMES = 40


def by_op(shown: Shown, insights: Insights) -> Block:
    """Return a row for each op; for each kernel without a schematic."""
    columns = [
        Column("Op" if shown.plans else "Kernel"),
        Column("Operations", "count", wide=True),
        Column("Launches", "count", wide=True),
        Column("Median µs", "micros", wide=True, hint="median of the sum of its operations"),
        *_of_means("mean of the sum of its operations"),
    ]
    columns += [Column("To gain µs", "micros", hint="time above the roofline")] if insights.placed else []
    return table(columns, [_op(group, shown, insights) for group in shown.groups])


def one_by_one(shown: Shown, insights: Insights) -> Iterator[Block]:
    """Yield a row for each operation, those with the most time where there are too many."""
    columns = [
        Column("Operation"),
        Column("Median µs", "micros", wide=True),
        *_of_means("mean of all inferences"),
        Column("Launches", "count", wide=True),
    ]
    if shown.graph.inside:
        columns.append(Column("Inside µs", "micros", wide=True, hint="median inside the persistent kernels"))
    if shown.plans:
        columns.append(Column("Alone µs", "micros", wide=True, hint="median when it was tuned alone"))
    if insights.placed:
        columns += [
            Column("GFLOP/s", "tenth", wide=True),
            Column("GB/s", "tenth", wide=True),
            Column("Of roof", "share", wide=True, hint="share of what the roofline allows"),
            Column("Bound by", wide=True),
            Column("To gain µs", "micros", wide=True, hint="time above the roofline"),
        ]
    every = sorted(shown.graph.operations, key=lambda one: -one.total_ns)
    kept = every[:MOST_OPERATIONS]
    yield table(
        columns,
        [_operation(one, shown, insights, every[0].total_ns) for one in kept],
        ids=[shown.row(one.name) for one in kept],
        details=[[_details(one, shown, insights)] for one in kept],
        filtered=True,
    )
    if len(every) > MOST_OPERATIONS:
        said = f"The {MOST_OPERATIONS:,} slowest of {len(every):,} operations. A CSV file has all of them."
        yield text(said, "sub")


def _of_means(hint: str) -> list[Column]:
    """Return the columns of a mean, and of its share in the mean inference."""
    return [Column("Mean µs", "micros", hint=hint), Column("Share", "share", hint="mean by the mean inference")]


def configuration_words(plan: OperationPlan) -> str:
    """Return what tuning has changed, and what it has kept, as text."""
    ran, default = plan.configuration, plan.default
    changed = [f"{name} {_value(default.get(name))} → {_value(ran.get(name))}" for name in _names(ran, default, True)]
    kept = [f"{name} {_value(ran[name])}" for name in _names(ran, default, False)]
    if not changed:
        return f"the default: {', '.join(kept)}" if kept else "no parameters"
    return f"{', '.join(changed)}{'; unchanged: ' if kept else ''}{', '.join(kept)}"


def _op(group: Group, shown: Shown, insights: Insights) -> list[Any]:
    total_ns = sum(gain_ns(insights.placed[one.name]) for one in group.operations if one.name in insights.placed)
    row = [
        Cell([key(group.colour), group.name], group.name),
        len(group.operations),
        sum(len(one.launches) for one in group.operations),
        group.median_ns,
        group.mean_ns,
        _share(group.total_ns, shown, shown.groups[0].total_ns),
    ]
    return [*row, *([total_ns] if insights.placed else [])]


def _operation(one: OperationTimes, shown: Shown, insights: Insights, most_ns: int) -> list[Any]:
    plan, placed = shown.plans.get(one.name), insights.placed.get(one.name)
    group, inside = shown.groups[shown.group_of[one.name]], shown.graph.inside.get(one.name)
    row: list[Any] = [
        Cell([one.name, run([key(group.colour), group.name], "under")], one.name),
        one.median_ns,
        one.mean_ns,
        _share(one.total_ns, shown, most_ns),
        len(one.launches),
    ]
    row += [inside.median_ns if inside else None] if shown.graph.inside else []
    row += [plan.alone_ns if plan else None] if shown.plans else []
    if insights.placed and placed is None:
        row += [None] * 5
    elif placed is not None:
        row += [placed.gflops_per_s, placed.gbytes_per_s, placed.share, placed.bound, gain_ns(placed)]
    return row


def _details(one: OperationTimes, shown: Shown, insights: Insights) -> Block:
    """Return names and values, whatever is known."""
    plan, placed = shown.plans.get(one.name), insights.placed.get(one.name)
    lines = {"Time here": _time_here(one, plan)}
    if placed is not None:
        lines["Roofline"] = _roofline(placed)
    if plan is not None:
        lines |= _planned(plan)
    return facts({**lines, "Launches": _launches(one, shown)})


def _roofline(placed: RooflineRow) -> str:
    limit = "the roof" if placed.bound == "none" else f"what {placed.bound} allows"
    rates = f"{digits(placed.gflops_per_s)} GFLOP/s, {digits(placed.gbytes_per_s)} GB/s"
    at_best = f"at best {time_text(placed.best_ns)}, {time_text(gain_ns(placed))} to gain"
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


def _share(total_ns: int, shown: Shown, most_ns: int) -> Cell:
    """Return a share of the inferences; its bar is full for the row with the most."""
    share = shown.graph.share(total_ns)
    return Cell([tenths(share), bar(total_ns / most_ns if most_ns > 0 else 0.0)], share)


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

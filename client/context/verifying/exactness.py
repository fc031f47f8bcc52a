"""Read what a context says of its quantised nodes, and say it for people."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gputune.client.context.verifying.origin import Opened, graph_names
from gputune.core.precision import IN_FLOATS
from gputune.runtime.context.records import ContextHeader

NAMED = 3
"""Exceptions that a line names; JSON has all."""


def quantised_graphs(header: ContextHeader) -> dict[str, Mapping[str, Any]]:
    """Return what a context says of each graph with quantised nodes, as Exactness tells it; of what is not in that form
    nothing, since any program may have written the file."""
    told = header.configuration.get("quantised_graphs")
    return {name: one for name, one in told.items() if _is_told(one)} if isinstance(told, dict) else {}


def steps_of(model: Opened) -> dict[str, float]:
    """Return how far apart two numbers of an output are, for those outputs of what is loaded that floats are rounded
    to."""
    told = quantised_graphs(model.header)
    return {name: step for graph in graph_names(model) if graph in told for name, step in told[graph]["steps"].items()}


def rounds_less(header: ContextHeader) -> bool:
    """Return whether a context leaves out roundings of its model, so that it computes something else."""
    return any(told["rules"] == IN_FLOATS for told in quantised_graphs(header).values())


def _is_told(one: object) -> bool:
    if not isinstance(one, dict) or not isinstance(one.get("rules"), str):
        return False
    whole, exceptions, steps = (one.get(name) for name in ("whole_numbers", "exceptions", "steps"))
    return (
        isinstance(whole, dict)
        and all(type(count) is int for count in whole.values())
        and isinstance(steps, dict)
        and all(type(step) in (int, float) and step >= 0 for step in steps.values())
        and isinstance(exceptions, list)
        and all(isinstance(each, dict) and all(type(each.get(key)) is str for key in KEYS) for each in exceptions)
    )


KEYS = ("node", "op", "why")
"""The keys of an exception in a context's record."""


def lines_of(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is told of a graph, a line for the parts that are whole numbers and one for each kind of exception."""
    counts = Counter(told["whole_numbers"])
    whole = ", ".join(f"{op} {count}" for op, count in counts.most_common()) or "nothing"
    yield f"quantised, {told['rules']}; in whole numbers: {whole}"
    alike: dict[tuple[str, str], list[str]] = {}
    for one in told["exceptions"]:
        alike.setdefault((one["op"], one["why"]), []).append(one["node"])
    for (op, why), nodes in alike.items():
        more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
        yield f"not exact: {op} {', '.join(map(repr, nodes[:NAMED]))}{more}: {why}"

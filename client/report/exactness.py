"""Say of contexts how exactly their quantised nodes are computed, for people."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

NAMED = 3
"""Exceptions that a line names; JSON has all."""


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

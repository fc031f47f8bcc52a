"""Why tasks of a model will be measured, or not: the cache's verdicts in words and as JSON."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gputune.cache.lookup import Verdict, counts
from gputune.client.plan import Task
from gputune.client.tuning.task_search import task_key

MOST_REASONS = 3


def summary_line(verdicts: Iterable[Verdict]) -> str:
    """How many tasks are known and why the others are not, in one line."""
    found = list(verdicts)
    kinds = counts(found)
    parts = [f"{kinds['hit']} of {len(found)} tasks are known"]
    if kinds["stale"]:
        parts.append(f"{kinds['stale']} are stale ({reasons(found)})")
    if kinds["seeded"]:
        parts.append(f"{kinds['seeded']} start from what is known elsewhere")
    if kinds["new"]:
        parts.append(f"{kinds['new']} are new")
    return ", ".join(parts)


def reasons(verdicts: Iterable[Verdict]) -> str:
    """What has changed since stale records were made, the most frequent changes first."""
    changes = Counter(str(change) for verdict in verdicts for change in verdict.changes)
    said = [f"{change}: {count} tasks" for change, count in changes.most_common(MOST_REASONS)]
    more = len(changes) - len(said)
    return "; ".join([*said, f"and {more} other changes"] if more else said)


def lines_of(verdicts: Mapping[Task, Verdict], nodes: Mapping[Task, Sequence[str]]) -> list[str]:
    """A line for each task, and the summary."""
    lines = []
    for task, verdict in verdicts.items():
        name = f"{task.op} {task_key(task).digest[:10]} ({', '.join(nodes.get(task, ())[:2])})"
        lines.append(f"{verdict.kind:<6}  {name}{_why(verdict)}")
    return [*lines, summary_line(verdicts.values())]


def fields_of(verdicts: Mapping[Task, Verdict], nodes: Mapping[Task, Sequence[str]]) -> dict[str, Any]:
    """The same for tools."""
    tasks = [
        {
            "task": task_key(task).digest,
            "op": task.op,
            "nodes": list(nodes.get(task, ())),
            "kind": verdict.kind,
            "changes": [vars(change) for change in verdict.changes],
            "origin": verdict.origin,
            "configuration": None if verdict.winner is None else dict(verdict.winner.configuration),
            "tuned_ns": None if verdict.winner is None else verdict.winner.median_ns,
        }
        for task, verdict in verdicts.items()
    ]
    return {"counts": dict(counts(verdicts.values())), "tasks": tasks}


def _why(verdict: Verdict) -> str:
    if verdict.kind == "hit" and verdict.winner is not None:
        return f": {verdict.winner.median_ns / 1000:.1f} us, tuned at effort {verdict.winner.effort}"
    if verdict.changes:
        return f": {'; '.join(map(str, verdict.changes))}"
    return f": from {verdict.origin}" if verdict.origin else ""

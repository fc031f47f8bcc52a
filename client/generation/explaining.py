"""Explain, for people and as JSON, why a generation will measure each task or not, and what came of it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gputune.client.context import builder
from gputune.client.context.comparison import GUESSED_LAUNCH_NS
from gputune.client.errors import TargetError
from gputune.client.model.plan import Task
from gputune.client.tuning.measuring.end_to_end import OPEN, EndToEnd
from gputune.client.tuning.outcome import Outcome
from gputune.client.tuning.search.cache_hit import Verdict, counts
from gputune.client.tuning.search.task_search import task_key

MOST_REASONS = 3


def summary_line(verdicts: Iterable[Verdict]) -> str:
    """Return how many tasks are known and why the others are not, in one line."""
    found = list(verdicts)
    kinds = counts(found)
    parts = [f"{kinds['hit']} of {len(found)} tasks are known"]
    if kinds["default"]:
        parts.append(f"{kinds['default']} keep their defaults")
    if kinds["stale"]:
        parts.append(f"{kinds['stale']} are stale ({reasons(found)})")
    if kinds["seeded"]:
        parts.append(f"{kinds['seeded']} start from what is known elsewhere")
    if kinds["new"]:
        parts.append(f"{kinds['new']} are new")
    return ", ".join(parts)


def reasons(verdicts: Iterable[Verdict]) -> str:
    """Return what has changed since stale records were made, the most frequent changes first."""
    found = [verdict for verdict in verdicts if verdict.kind == "stale"]
    changes = Counter(reason for verdict in found for reason in [*map(str, verdict.changes), verdict.reason] if reason)
    said = [f"{change}: {count} tasks" for change, count in changes.most_common(MOST_REASONS)]
    more = len(changes) - len(said)
    return "; ".join([*said, f"and {more} other changes"] if more else said)


def lines_of(verdicts: Mapping[Task, Verdict], nodes: Mapping[Task, Sequence[str]]) -> list[str]:
    """Return a line for each task, and the summary."""
    lines = []
    for task, verdict in verdicts.items():
        name = f"{task.op} {task_key(task).digest[:10]} ({', '.join(nodes.get(task, ())[:2])})"
        lines.append(f"{verdict.kind:<7}  {name}{_why(verdict)}")
    return [*lines, summary_line(verdicts.values())]


def fields_of(verdicts: Mapping[Task, Verdict], nodes: Mapping[Task, Sequence[str]]) -> dict[str, Any]:
    """Return the same for tools."""
    tasks = [
        {
            "task": task_key(task).digest,
            "op": task.op,
            "nodes": list(nodes.get(task, ())),
            "kind": verdict.kind,
            "measures": verdict.measures,
            "changes": [vars(change) for change in verdict.changes],
            "reason": verdict.reason,
            "origin": verdict.origin,
            "configuration": verdict.pin or (winner and dict(winner.configuration)),
            "tuned_ns": winner and winner.median_ns,
        }
        for task, verdict in verdicts.items()
        for winner in [verdict.winner or verdict.before]
    ]
    return {"counts": dict(counts(verdicts.values())), "tasks": tasks}


def choices_of(found: Mapping[str, EndToEnd]) -> list[str]:
    """Say of each graph which of its whole contexts was chosen last, and whether that is open."""
    return [f"whole contexts of {graph}: {one.line}{f'; {OPEN}' if one.open else ''}" for graph, one in found.items()]


def outcome_line(outcome: Outcome) -> str:
    """Return one line for people about what became of a task."""
    name = f"{outcome.op} {outcome.key[:10]}"
    if outcome.tuned_ns is None:
        return f"{name}: default configuration, not measured"
    gain = "" if outcome.default_ns is None else f", {outcome.default_ns / outcome.tuned_ns:.2f}x the default"
    source = "from the cache" if outcome.hit else f"{sum(outcome.trials.values())} trials"
    why = ", chosen for its time inside the model" if outcome.in_chain else ""  # alone another one is faster
    return f"{name}: {outcome.tuned_ns / 1000:.1f} us{gain} ({source}{why})"


def _why(verdict: Verdict) -> str:
    if verdict.kind == "hit" and verdict.winner is not None:
        return f": {verdict.winner.median_ns / 1000:.1f} us, tuned at effort {verdict.winner.effort}"
    return f": {verdict.why}" if verdict.why else ""


def apart_line(error: TargetError, built: builder.Built) -> str:
    """Return what is lost where a target has failed to compile what stands for several launches."""
    launches = sum(len(graph.launches) for graph in built.graphs)
    more_ms = launches * GUESSED_LAUNCH_NS / 1e6
    return (
        f"the context has no persistent kernels: {error}. Its results are the same, but each of its {launches} "
        f"launches is started separately, and an inference takes about {more_ms:.1f} ms longer. To get "
        "persistent kernels, generate the context again when the target is less busy"
    )


def unfinished_line(parts: Iterable[str]) -> str:
    """Return what is told of everything that a budget has left unfinished; nothing where that is nothing."""
    kept = "; ".join(dict.fromkeys(filter(None, parts)))
    return f"--tuning_budget was used up: {kept}; the same command continues from here" if kept else ""

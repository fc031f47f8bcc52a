"""The generator's --summary_json: names in here are a contract with scripts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputune.client.context.choice import Decision
from gputune.client.tuning.outcome import Outcome

PHASES = {
    "check": "init",
    **{name: name for name in ("import", "lower", "tune", "chain", "finalize", "write", "verify", "total")},
}
"""What the summary calls the phases of a generation, and what a Clock does."""


@dataclass(frozen=True)
class Totals:
    """What a generation cost."""

    profile_requests: int
    compile_requests: int
    wall_seconds: Mapping[str, float]


def summarise(
    outcomes: Sequence[Outcome],
    totals: Totals,
    decisions: Sequence[Decision],
    verified: Mapping[str, Mapping[str, float]] | None,
    memory_limit: Mapping[str, Any] | None,
    load: Mapping[str, Any],
) -> dict[str, Any]:
    """The summary as JSON values; tasks in the order in which the graph needs them, those of weight 0 for what is not
    fused, or was.

    decisions: of all graphs, which say what comparing whole contexts has led to (in_chain), and what an inference
    takes, by what it is faster than an untuned one, and which context ships (end_to_end). In the summary these are of
    the only graph, by name if there are several, null if nothing was compared. verified: by graph the error of each
    output, None if nothing was verified. memory_limit: what a limit of memory has led to, null without one.
    load: how busy the device's machine was, as LoadRecord says it.
    """
    hits = sum(outcome.hit for outcome in outcomes)
    return {
        "tasks": [
            {
                "key": outcome.key,
                "op": outcome.op,
                "problem": dict(outcome.problem),
                "weight": outcome.weight,
                "hit": outcome.hit,
                "resumed": outcome.resumed,
                "space_size": outcome.space_size,
                "trials": dict(outcome.trials),
                "measured": outcome.measured,
                "drift": outcome.drift,
                "default_ns": outcome.default_ns,
                "tuned_ns": outcome.tuned_ns,
                "configuration": dict(outcome.configuration),
                "in_chain": outcome.in_chain,
            }
            for outcome in outcomes
        ],
        "in_chain": _by_graph({one.plan.name: one.summary for one in decisions}),
        "verified": None if verified is None else {graph: dict(errors) for graph, errors in verified.items()},
        "end_to_end": _by_graph(
            {one.plan.name: one.end_to_end.to_dict() if one.end_to_end else None for one in decisions}
        ),
        "memory_limit": None if memory_limit is None else dict(memory_limit),
        "load": dict(load),
        "totals": {
            "tasks": len(outcomes),
            "cache_hits": hits,
            "cache_misses": len(outcomes) - hits,
            "profile_requests": totals.profile_requests,
            "compile_requests": totals.compile_requests,
            "wall_seconds": {name: round(totals.wall_seconds.get(phase, 0.0), 6) for name, phase in PHASES.items()},
        },
    }


def _by_graph(found: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any] | None:
    plain = {name: dict(one) for name, one in found.items() if one is not None}
    return next(iter(plain.values()), None) if len(found) == 1 else plain or None

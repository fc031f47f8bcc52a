"""The generator's --summary_json: names in here are a contract with scripts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    in_chain: Mapping[str, Mapping[str, Any]],
    verified: Mapping[str, Mapping[str, float]] | None,
    end_to_end: Mapping[str, Mapping[str, Any]],
    graphs: int,
    memory_limit: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The summary as JSON values; tasks in the order in which the graph needs them, those of weight 0 for what is not
    fused, or was.

    By the name of a graph: in_chain, what the comparison of whole contexts has led to; end_to_end, what an inference
    takes and by what it is faster than an untuned one; verified, the error of each output, None where nothing was
    verified. In the summary the first two are those of the only graph, by name where there are several, null where
    nothing was compared. memory_limit: what a limit of memory has led to, null without one.
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
        "in_chain": _by_graph(in_chain, graphs),
        "verified": None if verified is None else {graph: dict(errors) for graph, errors in verified.items()},
        "end_to_end": _by_graph(end_to_end, graphs),
        "memory_limit": None if memory_limit is None else dict(memory_limit),
        "totals": {
            "tasks": len(outcomes),
            "cache_hits": hits,
            "cache_misses": len(outcomes) - hits,
            "profile_requests": totals.profile_requests,
            "compile_requests": totals.compile_requests,
            "wall_seconds": {name: round(totals.wall_seconds.get(phase, 0.0), 6) for name, phase in PHASES.items()},
        },
    }


def _by_graph(found: Mapping[str, Mapping[str, Any]], graphs: int) -> dict[str, Any] | None:
    plain = {name: dict(one) for name, one in found.items()}
    return next(iter(plain.values()), None) if graphs == 1 else plain or None

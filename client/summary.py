"""The generator's --summary_json: names in here are a contract with scripts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputune.client.outputs import writing
from gputune.client.tuning.outcome import Outcome

PHASES = ("check", "import", "lower", "tune", "chain", "finalize", "write", "verify", "total")


@dataclass(frozen=True)
class Totals:
    """What a generation cost."""

    profile_requests: int
    compile_requests: int
    wall_seconds: Mapping[str, float]


def summarise(
    outcomes: Sequence[Outcome],
    totals: Totals,
    in_chain: Mapping[str, Any] | None,
    verified: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, Any]:
    """The summary as JSON values; tasks in the order in which the graph needs them, those of weight 0 for what is not
    fused, or was. in_chain: what the comparison of whole contexts has led to, None where there was none; by graph where
    there are several. verified: the error of each output of each graph, None where nothing was verified."""
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
        "in_chain": None if in_chain is None else dict(in_chain),
        "verified": None if verified is None else {graph: dict(errors) for graph, errors in verified.items()},
        "totals": {
            "tasks": len(outcomes),
            "cache_hits": hits,
            "cache_misses": len(outcomes) - hits,
            "profile_requests": totals.profile_requests,
            "compile_requests": totals.compile_requests,
            "wall_seconds": {phase: round(totals.wall_seconds.get(phase, 0.0), 6) for phase in PHASES},
        },
    }


def write_json(path: Path, content: Any) -> None:
    """Writes JSON for tools, into a folder that is made where it is missing. Raises OutputError."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

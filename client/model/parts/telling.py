"""Say what a cut model is made of, in one line for people and as JSON values for tools."""

from collections.abc import Mapping
from typing import Any

from gputune.client.model.parts.cutting import Cut

MOST_OPERATORS = 6


def told(cut: Cut) -> str:
    """Return the line."""
    if cut.is_whole:
        return f"model {cut.imported.path}: all of it runs on the device"
    count = f"{len(cut.parts)} parts run" if len(cut.parts) > 1 else "1 part runs" if cut.parts else "no part runs"
    share = f" with {cut.share:.1%} of the multiply-adds" if cut.parts else ""
    crossing = f"; an inference hands over {cut.crossing_bytes / 1e6:.3f} MB" if cut.parts else ""
    stay = stayed(cut.host_ops, cut.stays)
    return f"model {cut.imported.path}: {count} on the device{share}; {stay}{crossing}"


def stayed(ops: Mapping[str, int], why: Mapping[str, int]) -> str:
    """Return how many nodes stay in onnxruntime, and why those do that could run."""
    reasons = (f"; {count} of them could run, but {reason}" for reason, count in why.items())
    return f"{sum(ops.values())} nodes stay in onnxruntime ({operators(ops)})" + "".join(reasons)


def operators(counts: Mapping[str, int]) -> str:
    """Return the most frequent operators with their counts."""
    first = sorted(counts, key=lambda op: -counts[op])
    more = f" and {len(first) - MOST_OPERATORS} more operators" if len(first) > MOST_OPERATORS else ""
    return ", ".join(f"{op} {counts[op]}" for op in first[:MOST_OPERATORS]) + more


def described(cut: Cut) -> dict[str, Any]:
    """Return JSON values; docs/schemas/context-binary-generator.schema.json says what each is."""
    return {
        "share": cut.share,
        "host_nodes": cut.host_ops.total(),
        "host_ops": dict(cut.host_ops),
        "could_run": dict(cut.stays),
        "crossing_bytes": cut.crossing_bytes,
        "parts": [
            {
                "graph": part.graph.name,
                "share": part.share,
                "nodes": len({name for node in part.graph.nodes for name in node.origins}),
                "ops": dict(part.ops),
                "inputs": list(part.graph.inputs),
                "outputs": list(part.graph.outputs),
                "crossing_bytes": part.crossing_bytes,
            }
            for part in cut.parts
        ],
    }

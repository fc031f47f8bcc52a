"""Find the dominant path: the operations that would still run in sequence if all others ran in parallel.

On an in-order queue every launch waits for the previous launch, so an inference takes the sum of its kernels and no
operation has slack. By the data alone, an operation waits only for the operations whose outputs it reads. The longest
chain of these is what no other order, and no number of queues, could shorten. Kelley, Walker: Critical-Path Planning
and Scheduling (1959).

Tensors that share memory in arenas would need separate memory for that, which is not considered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputune.client.viewer.profile import GraphProfile
from gputune.client.viewer.schematic import GraphPlan


@dataclass(frozen=True)
class CriticalPath:
    """places: of its operations among all, in order; length_ns: of these together; serial_ns: of all operations, as
    they run one behind the other; slack_ns: by operation, how much longer it could take before the path would."""

    places: tuple[int, ...]
    length_ns: float
    serial_ns: float
    slack_ns: tuple[float, ...]

    @property
    def share(self) -> float:
        """Of the time of all kernels, at most 1; 1 where there are none."""
        return self.length_ns / self.serial_ns if self.serial_ns else 1.0

    @property
    def note(self) -> str:
        """What the path means, in a sentence."""
        serial = f"All launches run one after the other: {self.serial_ns / 1e6:.3f} ms of kernels."
        if len(self.places) == len(self.slack_ns):
            return f"{serial} Their data requires it: each operation reads the output of the operation before it."
        return (
            f"{serial} Their data requires it only for {len(self.places)} of {len(self.slack_ns)} operations, "
            f"{self.length_ns / 1e6:.3f} ms or {self.share:.0%}; the others could run at the same time."
        )


def critical_path_of(graph: GraphProfile) -> CriticalPath | None:
    """Of a graph, by the medians of its operations; None without a schematic or timestamps of launches."""
    if graph.plan is None or not graph.timed:
        return None
    return longest_path(medians_ns(graph, graph.plan), [(a, b) for a, b, _ in graph.plan.edges()])


def longest_path(times_ns: Sequence[float], edges: Iterable[tuple[int, int]]) -> CriticalPath:
    """Of operations in an order in which they can run, with edges from an earlier to a later one. Takes time in
    proportion to both; of paths that are equally long, one of them."""
    count = len(times_ns)
    before: list[list[int]] = [[] for _ in range(count)]
    behind: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        before[b].append(a)
        behind[a].append(b)
    ended, remaining = [0.0] * count, [0.0] * count
    for place in range(count):
        ended[place] = times_ns[place] + max((ended[a] for a in before[place]), default=0.0)
    for place in reversed(range(count)):
        remaining[place] = times_ns[place] + max((remaining[b] for b in behind[place]), default=0.0)
    length_ns = max(ended, default=0.0)
    slack_ns = [length_ns - (ended[place] + remaining[place] - times_ns[place]) for place in range(count)]
    return CriticalPath(_backwards(ended, before), length_ns, sum(times_ns), tuple(slack_ns))


def medians_ns(graph: GraphProfile, plan: GraphPlan) -> list[float]:
    """Return what each operation of the plan took: 0 for those without launches."""
    found = {one.name: one.median_ns for one in graph.operations}
    return [found.get(one.name, 0.0) for one in plan.operations]


def _backwards(ended: Sequence[float], before: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the path that ends last, from its end to its beginning and turned round."""
    if not ended:
        return ()
    found = [max(range(len(ended)), key=lambda place: (ended[place], place))]
    while before[found[-1]]:
        found.append(max(before[found[-1]], key=ended.__getitem__))
    return tuple(reversed(found))

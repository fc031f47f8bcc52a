"""The graphs of one context: one model with different shapes of its inputs, tuned together."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from gputune.client.model.alternatives import Alternatives
from gputune.client.model.graph import Graph
from gputune.client.model.importer import read_model
from gputune.client.model.plan import Task


def read_graphs(path: Path, shapes: Sequence[Mapping[str, tuple[int, ...]]]) -> list[Graph]:
    """The model once for each choice of its inputs' shapes. Raises ModelError.

    One graph has the model's name; of several, each has the shapes that were chosen for it behind that, as in
    "model_1x3x48x320".
    """
    graphs = [read_model(path, chosen) for chosen in shapes]
    if len(graphs) == 1:
        return graphs
    return [replace(graph, name=f"{graph.name}_{_words(chosen)}") for graph, chosen in zip(graphs, shapes, strict=True)]


def _words(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return "_".join("x".join(map(str, shape)) for shape in shapes.values())


class Graphs:
    """What is made of several graphs: for each its alternatives, and the tasks of all, equal problems once."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        """Raises ModelError that names every node of a graph which cannot be lowered."""
        self.models = tuple(map(Alternatives, graphs))

    def tasks(self, fused: bool) -> tuple[Task, ...]:
        """The distinct tasks of all graphs, those that compute fused operations among them where asked for.

        A task's weight is the sum of those that it has in the graphs."""
        return self._merged(task for model in self.models for task in (model.tasks if fused else model.plan.tasks))

    @cached_property
    def optional(self) -> tuple[Task, ...]:
        """Those of the tasks that compute fused operations, which would run one by one without them."""
        fused = {_kind(group.task) for model in self.models for group in model.groups}
        return tuple(task for task in self.tasks(fused=True) if _kind(task) in fused)

    @cached_property
    def nodes_of(self) -> Mapping[Task, tuple[str, ...]]:
        """The names of the model's nodes that run a task, for the tasks of all graphs and for those of each."""
        nodes: dict[tuple[str, object], dict[str, None]] = {}
        for model in self.models:
            for task, names in model.nodes_of.items():
                nodes.setdefault(_kind(task), {}).update(dict.fromkeys(names))
        every = [*self.tasks(fused=True), *self.tasks(fused=False), *(t for model in self.models for t in model.tasks)]
        return {task: tuple(nodes.get(_kind(task), ())) for task in every}

    def inference_ns(self, time_ns: Callable[[Task], float], launch_ns: float) -> float:
        """What an inference of each graph takes, together, with what is faster fused by these times fused."""
        return sum(model.inference_ns(time_ns, launch_ns) for model in self.models)

    def _merged(self, tasks: Iterable[Task]) -> tuple[Task, ...]:
        weights: Counter[tuple[str, object]] = Counter()
        for task in tasks:
            weights[_kind(task)] += task.weight
        return tuple(Task(op, problem, weight) for (op, problem), weight in weights.items())


def _kind(task: Task) -> tuple[str, object]:
    """What a task is, whatever its weight."""
    return task.op, task.problem

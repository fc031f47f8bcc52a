"""Represent the graphs of one context: models with different input shapes, tuned together."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from gputune.client.errors import ConfigError
from gputune.client.model.alternatives import Alternatives
from gputune.client.model.graph import Graph
from gputune.client.model.importer import load, read_model
from gputune.client.model.model_files import ModelFile, StateChoice
from gputune.client.model.parts import Cut, cut_model
from gputune.client.model.plan import Plan, Task
from gputune.client.model.state import Decoder, Stateful, with_state
from gputune.core.dtypes import FLOAT
from gputune.kernels.family import DeviceLimits
from gputune.runtime.context.records import ModelRecord

log = logging.getLogger(__name__)


def read_graphs(
    files: Sequence[ModelFile], narrow: bool = False, decoders: dict[str, Decoder] | None = None
) -> list[Graph]:
    """Return each model once for each choice of its inputs' shapes. narrow: with float32 in the place of float64.
    decoders: takes what graphs with a state were made of, by their names. Raises ModelError, ConfigError for two graphs
    of one name, and for states that do not fit.

    The graph of the only model has the name that this gives itself; those of several have the names of their files.
    Where a model has several graphs, each has the shapes that were chosen for it behind that, as in "model_1x3x48x320",
    and the capacity of its state where there are several.
    """
    graphs, said = [], set[str]()

    def tell(text: str) -> None:
        if text not in said:
            log.info(text)
        said.add(text)

    for file in files:
        for shapes, state in file.graphs:
            graph, decoder = _read(file, shapes, state, narrow, tell)
            graph = replace(graph, name=_name(file, graph.name, shapes, len(files) > 1, state)[0])
            graphs.append(graph)
            if decoders is not None and decoder is not None:
                decoders[graph.name] = decoder
    _check_names(graph.name for graph in graphs)
    return graphs


def _read(
    file: ModelFile,
    shapes: Mapping[str, tuple[int, ...]],
    state: StateChoice | None,
    narrow: bool,
    tell: Callable[[str], None],
) -> tuple[Graph, Decoder | None]:
    if state is None:
        return read_model(file.path, shapes, file.values, narrow), None
    given = Stateful(load(file.path, narrow), file.path, shapes, file.values, state, tell)
    decoder = with_state(given)
    return replace(decoder.imported(given).whole(), states=decoder.states), decoder


def cut_graphs(files: Sequence[ModelFile], narrow: bool = False) -> list[Cut]:
    """Cut each model once for each choice of its inputs' shapes. The parts have the names that `read_graphs` gives to
    graphs; if there are several of a model, a number follows. Raises as it does, but not for nodes that cannot run;
    ConfigError if onnxruntime is not installed."""
    cuts = []
    for file in files:
        for shapes in file.shapes:
            cut = cut_model(file.path, shapes, file.values, narrow)
            name, title = _name(file, cut.imported.graph.name, shapes, len(files) > 1)
            cuts.append(cut.named(name, title))
    _check_names(part.graph.name for cut in cuts for part in cut.parts)
    return cuts


def _name(
    file: ModelFile,
    own: str,
    shapes: Mapping[str, tuple[int, ...]],
    several: bool,
    state: StateChoice | None = None,
) -> tuple[str, str]:
    """Return the name of a graph, and what of it other graphs of the request do not have. own: the name that the model
    gives itself; several: whether there are several models."""
    words = _words(shapes) if len(file.shapes) > 1 else ""
    capacity = str(state.capacity) if state is not None and len(file.states) > 1 else ""
    stem = file.path.stem if several else ""
    return "_".join(filter(None, (stem or own, words, capacity))), "_".join(filter(None, (stem, words, capacity)))


def _check_names(names: Iterable[str]) -> None:
    """Raise ConfigError for two graphs of one name."""
    if twins := [name for name, count in Counter(names).items() if count > 1]:
        raise ConfigError(f"--model: two graphs would be called {twins[0]!r}; rename a file")


def _words(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return "_".join("x".join(map(str, shape)) for shape in shapes.values())


class Graphs:
    """What is made of several graphs: for each its alternatives, and the tasks of all, equal problems once."""

    def __init__(
        self, graphs: Sequence[Graph], unfused: Collection[str] = (), origins: Sequence[ModelRecord] = ()
    ) -> None:
        """unfused: the names of those whose operations stay apart. origins: the files that they were read from. Raises
        ModelError that names every node of a graph which cannot be lowered."""
        self.origins = origins
        self.models = tuple(Alternatives(graph, fusion=graph.name not in unfused) for graph in graphs)
        self.mode = next((graph.mode for graph in graphs if graph.mode != FLOAT), FLOAT)

    def tasks(self, fused: bool) -> tuple[Task, ...]:
        """Return the distinct tasks of all graphs, those that compute fused operations among them where asked for.

        A task's weight is the sum of those that it has in the graphs."""
        return _merged(task for model in self.models for task in (model.tasks if fused else model.plan.tasks))

    def untuned(self, limits: DeviceLimits) -> list[Plan]:
        """Return the plans in which what is expected to be faster fused is fused."""
        return [model.plan_with(model.likely(limits)) for model in self.models]

    @cached_property
    def optional(self) -> tuple[Task, ...]:
        """Those of the tasks that compute fused operations, which would run one by one without them."""
        fused = {group.task.kind for model in self.models for group in model.groups}
        return tuple(task for task in self.tasks(fused=True) if task.kind in fused)

    @cached_property
    def nodes_of(self) -> Mapping[Task, tuple[str, ...]]:
        """The names of the model's nodes that run a task, for the tasks of all graphs and for those of each."""
        nodes: dict[tuple[str, object], dict[str, None]] = {}
        for model in self.models:
            for task, names in model.nodes_of.items():
                nodes.setdefault(task.kind, {}).update(dict.fromkeys(names))
        every = [*self.tasks(fused=True), *self.tasks(fused=False), *(t for model in self.models for t in model.tasks)]
        return {task: tuple(nodes.get(task.kind, ())) for task in every}

    def inference_ns(self, time_ns: Callable[[Task], float], launch_ns: Callable[[str], float]) -> float:
        """Return what an inference of each graph takes, together, with what is faster fused by these times fused.
        launch_ns: by the name of a graph."""
        return sum(model.inference_ns(time_ns, launch_ns(model.plan.name)) for model in self.models)


def tasks_of(plans: Iterable[Plan]) -> tuple[Task, ...]:
    """Return the distinct tasks of several plans; a task's weight is the sum of those that it has in them."""
    return _merged(task for plan in plans for task in plan.tasks)


def _merged(tasks: Iterable[Task]) -> tuple[Task, ...]:
    weights: Counter[tuple[str, object]] = Counter()
    for task in tasks:
        weights[task.kind] += task.weight
    return tuple(Task(op, problem, weight) for (op, problem), weight in weights.items())

"""Run the lines of an input list as steps of a state, which stays on the device."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gputune.client.errors import ConfigError
from gputune.client.input_lists import Axes, named_in
from gputune.client.outputs import file_stems
from gputune.client.run.inferences import Array
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.runtime import Executor
from gputune.runtime.application.context import Context
from gputune.runtime.application.states import State, remembered
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.loading.model import Model


class Steps:
    """Inferences that move a state on. Lines give what is not the state's, and results are without it."""

    def __init__(self, executor: Executor | RemoteExecutor, context: Context | None, exact: bool) -> None:
        """Open a state. context: has the graphs that may run steps; without one, only the executor's does.
        exact: whether steps have the tokens of one inference. Raises DeviceError, TargetError.

        memory: what holds the state of one graph. axes: of the inputs that may have any number of tokens."""
        only: Any = executor
        self.memory: Any = None
        if context is None:
            self.memory = only.open_state()
            self._state = State({"": only}, self.memory)
        else:
            self._state = context.state(context.graphs[0])
        states = None if exact else executor.graph.states
        self.axes: Axes = {} if states is None else {token.name: token.axis for token in states.token_inputs}

    def begin(self) -> None:
        """Forget everything. Raises DeviceError, TargetError."""
        self._state.reset()

    def __call__(self, given: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
        """Run a step on these inputs."""
        return self._state.run_timed(given)


def has_steps(graph: GraphRecord, input_list: Path | None) -> bool:
    """Return whether lines are steps: of a graph with a state, unless the list has files for what that keeps."""
    if graph.states is None:
        return False
    stems = file_stems(tensor.name for tensor in graph.inputs)
    own = {name for kept in graph.states.inputs for name in (kept, stems[kept])}
    return input_list is None or not own & named_in(input_list)


def has_several(model: Model, input_list: Path | None) -> bool:
    """Return whether lines are steps that several graphs of a file may run. Raises ContextError, OSError."""
    if model.in_parts:
        return False
    first, *others = model.source_of(None)[0].graphs()
    return has_steps(first, input_list) and remembered(first) in map(remembered, others)


def check_steps(options: Collection[str]) -> None:
    """Raise ConfigError for options that are given, and cannot be used with steps."""
    for option in options:
        raise ConfigError(f"{option}: not for steps of a state; omit it, or name a file for each past input, too")

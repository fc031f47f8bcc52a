"""Run the lines of an input list as steps of a state, which stays on the device."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gputune.client.errors import ConfigError
from gputune.client.input_lists import named_in
from gputune.client.outputs import file_stems
from gputune.client.run.inferences import Array
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.runtime import Executor
from gputune.runtime.context.records import GraphRecord


class Steps:
    """Inferences that move a state on. Lines give what is not the state's, and results are without it."""

    def __init__(self, executor: Executor | RemoteExecutor) -> None:
        """Open a state. Raises DeviceError, TargetError."""
        self._executor: Any = executor
        self.state: Any = executor.open_state()

    def begin(self) -> None:
        """Forget everything. Raises DeviceError, TargetError."""
        self.state.reset()

    def __call__(self, given: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
        """Run a step on these inputs."""
        made: tuple[dict[str, Array], int] = self._executor.step_timed(self.state, given)
        return made


def has_steps(graph: GraphRecord, input_list: Path | None) -> bool:
    """Return whether lines are steps: of a graph with a state, unless the list has files for what that keeps."""
    if graph.states is None:
        return False
    stems = file_stems(tensor.name for tensor in graph.inputs)
    own = {name for kept in graph.states.inputs for name in (kept, stems[kept])}
    return input_list is None or not own & named_in(input_list)


def check_steps(options: Collection[str]) -> None:
    """Raise ConfigError for options that are given, and cannot be used with steps."""
    for option in options:
        raise ConfigError(f"{option}: not for steps of a state; omit it, or name a file for each past input, too")

"""One task on the target while it is being tuned: its inputs and its reference output are there, variants come by."""

from collections.abc import Sequence
from types import TracebackType

import numpy as np

from gputune.client.effort import Effort
from gputune.client.rendering import variant_message
from gputune.client.target_client import TargetClient, TargetError
from gputune.client.task_search import TaskSearch
from gputune.kernels.space import Configuration
from gputune.server.protocol.messages import ProfileKernel, Trial, Work

CULPRITS = {"worker_died": "crash", "worker_timeout": "timeout"}
"""Errors of the target that one variant of a batch has caused, and the status of that variant's trial."""


class Workbench:
    """Profiles variants of one task. Buffers are made at the first batch and freed at the end."""

    def __init__(self, target: TargetClient, search: TaskSearch, effort: Effort) -> None:
        self._target = target
        self._search = search
        self._effort = effort
        self._buffers: dict[str, int] = {}
        self._reference: int | None = None

    def __enter__(self) -> "Workbench":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reference is not None and kind is None:  # after an error the buffers may be gone
            self._target.free(*self._buffers.values(), self._reference)

    def profile(self, batch: Sequence[Configuration], samples: int) -> tuple[tuple[Trial, ...], bytes]:
        """The trials of a batch, and the binary of its fastest variant (empty when the batch had to be split).

        When a variant takes the target's worker down, the batch is profiled one by one, so that only this variant
        gets the status crash or timeout. Raises TargetError for what no variant has caused.
        """
        try:
            return self._profile(batch, samples)
        except TargetError as error:
            if error.name == "unknown_buffer":  # the worker went down on behalf of another client
                self._reference = None
                return self._profile(batch, samples)
            if error.name not in CULPRITS:
                raise
            self._reference = None
            if len(batch) == 1:
                return (_failed(CULPRITS[error.name], str(error)),), b""
        return tuple(self.profile([configuration], samples)[0][0] for configuration in batch), b""

    def _profile(self, batch: Sequence[Configuration], samples: int) -> tuple[tuple[Trial, ...], bytes]:
        family, problem = self._search.family, self._search.task.problem
        reference = self._upload() if self._reference is None else self._reference
        tolerance, work = family.tolerance(problem), family.work(problem)
        profiled = self._target.profile_kernel(
            ProfileKernel(
                task=self._search.title,
                buffers=self._buffers,
                output_bytes=family.output(problem).nbytes,
                reference=reference,
                relative=tolerance.relative,
                absolute=tolerance.absolute,
                variants=tuple(variant_message(family.render(problem, c), c) for c in batch),
                work=Work(work.flops, work.bytes),
                samples=samples,
                sample_ns=self._effort.sample_ns,
                warm_up_ns=self._effort.warm_up_ns,
            )
        )
        return profiled.trials, bytes(profiled.binary)

    def _upload(self) -> int:
        """Puts random inputs, the same for every run of this task, and their reference output on the target."""
        family, problem = self._search.family, self._search.task.problem
        inputs = family.sample_inputs(problem, np.random.default_rng(self._search.seed))
        reference = family.reference(problem, inputs).astype(np.float32)
        self._buffers = {name: self._target.upload(values) for name, values in inputs.items()}
        self._reference = self._target.upload(reference)
        return self._reference


def _failed(status: str, message: str) -> Trial:
    return Trial(
        status=status,  # type: ignore[arg-type]
        message=message,
        samples_ns=(),
        wall_ns=(),
        compile_ns=0,
        first_launch_ns=0,
        measured={},
    )

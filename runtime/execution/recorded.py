"""Run the launches of an inference as a recorded queue, if that is faster than to enqueue them.

The first inferences decide: the two forms take turns, each inference is waited for, and the recorded queue is used from
then on if its median is clearly lower and it was faster nearly each time. So a busy machine, where a median of a few
inferences is luck, stays with launches. Inferences in which code is loaded or launches are recorded do not count.

A recording belongs to the memory that its launches use. If the way can rebind, there is one recording, whose arguments
follow. Otherwise launches are recorded for memory that is used repeatedly, and a few recordings are kept: applications
have two or three buffers that they use in turns. Inferences on new memory run by launches.
"""

from __future__ import annotations

import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from gputune.core.errors import DeviceError
from gputune.runtime.backends import Backend, Bound, Buffer
from gputune.runtime.context.records import ContextHeader, GraphRecord
from gputune.runtime.execution.binding import Binder
from gputune.runtime.executor import Runs
from gputune.runtime.memory.opencl_calls import CallFailed
from gputune.runtime.profiling.records import Form
from gputune.runtime.queues.recorded import RecordedQueue, Recording

TURNS, MOST_TURNS = 11, 9
"""Inferences in each form that decide, and how many of them must be faster than the launches right before: by chance,
that happens once in thirty times."""
MOST_COMPARED = 50
"""Inferences after which launches are chosen, if others could not be recorded: the memory is new each time."""
GAIN = 0.03
"""A recorded queue must save this part of the time of launches."""
MOST_KNOWN = 4
"""Sets of memory that are remembered, each with its recording."""

Memory = tuple[int, ...]
"""The ids of the buffers that are inputs and outputs."""


def may_record(header: ContextHeader, graph: GraphRecord) -> bool:
    """Return whether the launches of a graph may be recorded, as the context's configuration says. A packing runs
    once."""
    graphs = header.configuration.get("graphs")
    settings = graphs.get(graph.name) if isinstance(graphs, Mapping) else None
    wanted = settings.get("queue_recording", True) if isinstance(settings, Mapping) else True
    return bool(graph.outputs) and wanted is not False


class RecordedRuns:
    """Inferences of one executor whose launches can be recorded. runs: how many ran in which form; last_form: of the
    last one; decided: whether the recorded queue is used, None while the forms are compared."""

    def __init__(
        self,
        backend: Backend,
        queue: RecordedQueue,
        binder: Binder,
        launches: Sequence[Bound],
        launch: Callable[[], None],
        warn: Callable[[str], None],
    ) -> None:
        """Take launches as `binder` has bound them, and `launch`, which enqueues them. warn: is told why nothing is
        recorded any more."""
        self.runs = Runs()
        self.last_form: Form = "launches"
        self._backend, self._queue, self._binder, self._warn = backend, queue, binder, warn
        self._launch = launch
        self._sequence = [one for bound in launches for one in bound.sequence]
        self._places = [place for place in binder.places() if place[0] in ("input", "output")]
        self._known: OrderedDict[Memory, Recording | None] = OrderedDict()
        self._current: Recording | None = None  # that of the memory in use
        self._fresh = False  # it was recorded in this inference
        self._turn = False  # while the forms are compared: whether the next inference is to be recorded
        self._compared = 0
        self._launches_ns = 0  # what the last inference by launches took
        self._turns_ns: list[tuple[int, int]] = []  # of launches, and of the recorded queue after them
        self.decided: bool | None = None
        binder.keepers.append(self._give_up)

    def start(self) -> bool:
        """Enqueue an inference in the form that is faster; return whether it is over. Raises DeviceError."""
        if self.decided is None:
            self._compare()
            return True
        if not (self.decided and self._replayed()):
            self._launched()
        return False

    def close(self) -> None:
        """Give all recordings back; nothing of them may be enqueued. Inferences run by launches then."""
        self.decided = False
        self._binder.keepers = [each for each in self._binder.keepers if each != self._give_up]
        self.drop()

    def drop(self) -> None:
        """Give all recordings back, and the memory that they held."""
        while self._known:
            self._close(self._known.popitem()[1])

    # --- inside ---------------------------------------------------------------------------------------

    def _compare(self) -> None:
        begun_ns = time.perf_counter_ns()
        recorded = self._turn and self._replayed()
        if not recorded:
            self._launched()
        self._backend.finish()
        elapsed_ns = time.perf_counter_ns() - begun_ns
        if not recorded:
            self._launches_ns = elapsed_ns
        elif not self._fresh:
            self._turns_ns.append((self._launches_ns, elapsed_ns))
        self._turn = not recorded
        self._compared += 1
        if self.decided is None and len(self._turns_ns) >= TURNS:
            launches_ns, recorded_ns = map(statistics.median, zip(*self._turns_ns, strict=True))
            often = sum(own_ns < other_ns for other_ns, own_ns in self._turns_ns) >= MOST_TURNS
            self.decided = often and recorded_ns <= (1 - GAIN) * launches_ns
        if not self.decided and (self.decided is False or self._compared >= MOST_COMPARED):
            self.close()

    def _launched(self) -> None:
        self._launch()
        self.last_form = "launches"
        self.runs.launches += 1

    def _replayed(self) -> bool:
        """Enqueue an inference as a recording; False if there is none, or none any more."""
        try:
            recording = self._recording()
            if recording is None:
                return False
            recording.replay()
        except CallFailed as error:
            self.close()
            self._warn(f"launches are enqueued one by one and not as a recorded queue: {error}")
            return False
        self.last_form = "recorded"
        self.runs.recorded += 1
        return True

    def _recording(self) -> Recording | None:
        """Return the recording with the memory that launches use now. Raises CallFailed."""
        self._fresh = False
        if self._current is not None and not self._binder.changed:
            return self._current
        changed = {place for place in self._binder.changed if self._binder.arguments(place)}
        self._binder.changed.clear()
        if any(kind not in ("input", "output") for kind, _ in changed):  # which nothing uses in turns
            self.drop()
        if self._queue.rebinds:
            if self._current is not None:
                self._backend.finish()  # an inference that is not waited for may have the old memory
                self._current.rebind([each for place in changed for each in self._binder.arguments(place)])
            else:
                self._known[()] = self._current = self._recorded()
            return self._current
        memory = tuple([id(self._binder.memory(*place)) for place in self._places])
        if memory in self._known:
            self._known.move_to_end(memory)
            self._current = self._known[memory] = self._known[memory] or self._recorded()
        else:
            self._known[memory] = self._current = None
            while len(self._known) > MOST_KNOWN:
                self._close(self._known.popitem(last=False)[1])
        return self._current

    def _recorded(self) -> Recording:
        self._fresh = True
        return self._queue.record(self._sequence)

    def _give_up(self, buffer: Buffer) -> None:
        """Has no recording hold this memory."""
        for memory, recording in list(self._known.items()):
            if recording is not None and recording.uses(buffer):
                del self._known[memory]
                self._close(recording)

    def _close(self, recording: Recording | None) -> None:
        if recording is not None:
            with suppress(DeviceError):
                self._backend.finish()  # an inference that is not waited for may use it
            recording.close()
        if recording is self._current:
            self._current = None

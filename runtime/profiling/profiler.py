"""Profile an application: open a log, and record the inferences of executors in it.

    with Profiler("net.log", "qhas") as profiler:
        profiler.watch(executor)
        executor.run({"x": array})

Every inference of a watched executor is recorded, however it is requested: on arrays or on memory handles, alone, in a
group or in a pipeline. Several threads may each watch several executors.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from gputune.core.errors import CannotMark, DeviceError
from gputune.core.identity import DeviceIdentity
from gputune.core.opened import Closing
from gputune.core.version import software_version
from gputune.runtime.context.format import MAGIC, PACKAGE_MAGIC
from gputune.runtime.executor import Executor
from gputune.runtime.profiling.levels import Level, level_named
from gputune.runtime.profiling.log import LogWriter
from gputune.runtime.profiling.observers import Observer, Observers
from gputune.runtime.profiling.records import (
    Comparison,
    LoggedGraph,
    LoggedInference,
    LogHeader,
    MarkedInference,
    StateSample,
    digest_of,
    logged_launches,
)
from gputune.runtime.profiling.turns import in_turns, timed


class InLog(Protocol):
    """Represent what records the inferences of a graph. graph: its place in the log; unavailable: as of LogHeader."""

    graph: int

    @property
    def unavailable(self) -> Mapping[str, str]: ...


class Marking(Protocol):
    """Represent what records inferences by persistent kernels with marks. recorder: what an executor needs for them."""

    @property
    def recorder(self) -> Any: ...
    def forget(self) -> None: ...
    def of_graph(self, graph: int) -> Iterator[MarkedInference]: ...


def _begun(path: Path) -> BinaryIO:
    """Open the file of a log. Raises FileExistsError for a context binary, which may be the one that is loaded."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(MAGIC)) in (MAGIC, PACKAGE_MAGIC):
                raise FileExistsError(errno.EEXIST, "a log would overwrite a context binary", str(path))
    return path.open("wb")


class Profiler(Closing):
    """Write a log of inferences. Several threads may use a profiler. `with` or close() ends the log, which can also be
    read before. level: how much of each inference is recorded."""

    def __init__(self, log: Path | str | BinaryIO, level: str = "detailed", observers: Sequence[Observer] = ()) -> None:
        """Open a log. log: a file, which is replaced, or a stream. observers: called around every recorded inference.
        Raises ValueError for an unknown level, FileExistsError for a context binary, OSError."""
        self.level: Level = level_named(level)
        self._file = _begun(Path(log)) if isinstance(log, str | Path) else None
        self._stream: Any = log if self._file is None else self._file
        self._observer = Observers(observers)
        self._lock = threading.Lock()
        self._writer: LogWriter | None = None
        self._watched: list[Executor] = []

    # --- what is recorded -----------------------------------------------------------------------------

    def watch(self, *executors: Executor, context: str = "") -> None:
        """Record every inference of these executors from now on. context: the name of their context in the log. Raises
        OSError, ValueError for a closed profiler."""
        for executor in executors:
            unmarked = "an application's own inferences are not marked" if executor.graph.persistent else ""
            executor.recorder = self.recorder(executor, context, unmarked)
            self._watched.append(executor)

    def recorder(self, executor: Executor, context: str = "", unmarked: str = "") -> InLog:
        """Describe a graph in the log, and return what records its inferences once it is the executor's recorder.
        unmarked: as LoggedGraph says. Raises OSError, ValueError for a closed profiler."""
        recorder: InLog = executor.make_recorder(self.level, self._observer, self._add)
        writer = self._log(executor.device, executor.backend.settings, recorder.unavailable)
        launches, states = logged_launches(executor.graph), executor.graph.states
        recorder.graph = writer.add_graph(
            LoggedGraph(
                name=executor.graph.name,
                context=context,
                digest=digest_of(launches),
                computes=executor.computes,
                launches=launches,
                inputs={tensor.name: tensor.nbytes for tensor in executor.graph.inputs},
                outputs={tensor.name: tensor.nbytes for tensor in executor.graph.outputs},
                arena_bytes=executor.graph.arena_bytes,
                persistent=len(executor.graph.persistent),
                load_ns=executor.load_ns,
                unmarked=unmarked,
                state_bytes=0 if states is None else states.nbytes(executor.graph.inputs),
            )
        )
        return recorder

    def profile(
        self,
        executor: Executor,
        infer: Callable[[], int],
        inferences: int,
        after: Callable[[int], None] = lambda done: None,
        compared: int = 0,
        context: str = "",
    ) -> None:
        """Record a number of inferences of an executor; `infer` makes each and returns its ns. The first `compared` of
        them take turns with unprofiled inferences. The log then says what profiling costs, and how launches one by one
        compare with the form in which the graph usually runs. At level qhas, others also run by persistent kernels that
        mark their launches; these may be given up, and their outputs are then incomplete.

        after: called with the number of finished inferences; an exception in it ends the recording. Raises as infer
        does, OSError.
        """
        marked, reason = self._marked(executor, infer, compared)
        recorder = self.recorder(executor, context, reason)
        persistent = self.level == "basic"
        forms = [(recorder, persistent), (None, persistent)]
        if executor.graph.persistent and not persistent:
            forms.append((None, True))
        usual_form = len(forms) - 1
        if marked is not None:
            forms.append((marked.recorder, True))
        times_ns = in_turns(executor, infer, forms, usual_form, inferences, compared, after)
        profiled, unprofiled, usual = (tuple(times_ns[place][:compared]) for place in (0, 1, usual_form))
        if self._writer is not None and compared:
            self._writer.add(Comparison(recorder.graph, profiled, unprofiled, usual, executor.last_form))
            for each in () if marked is None else marked.of_graph(recorder.graph):
                self._writer.add(each)

    def close(self) -> None:
        """End the log: nothing is watched any more, and inferences still running are not in it. A second call does
        nothing. Raises OSError."""
        while self._watched:
            self._watched.pop().recorder = None
        try:
            if self._writer is not None:
                self._writer.end()
        finally:
            if self._file is not None:
                self._file.close()

    # --- inside ---------------------------------------------------------------------------------------

    def _marked(self, executor: Executor, infer: Callable[[], int], compared: int) -> tuple[Marking | None, str]:
        """Return what records the launches inside of persistent kernels, once it has run; or None, and
        LoggedGraph.unmarked where there are such kernels."""
        if not executor.graph.persistent:
            return None, ""
        if self.level != "qhas":
            return None, "--profiling_level qhas records them"
        if not compared:
            return None, "no inferences were compared"
        try:
            marked = executor.marked()
            timed(executor, infer, marked.recorder, True)  # which loads code
        except CannotMark as error:
            return None, str(error)
        except DeviceError as error:
            return None, f"marking them fails ({error})"
        marked.forget()
        return marked, ""

    def _log(self, device: DeviceIdentity, settings: Mapping[str, str], unavailable: Mapping[str, str]) -> LogWriter:
        """Return the log, which begins with what it is of."""
        with self._lock:
            if self._writer is None:
                begun = time.perf_counter_ns(), time.time_ns()
                header = LogHeader(
                    self.level, software_version(), device.to_dict(), *begun, dict(settings), dict(unavailable)
                )
                self._writer = LogWriter(self._stream, header)
            return self._writer

    def _add(self, record: LoggedInference | StateSample) -> None:
        """Write what a recorder has, whose graph is in the log."""
        assert self._writer is not None
        self._writer.add(record)

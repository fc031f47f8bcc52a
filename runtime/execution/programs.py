"""Load the programs of a graph: from the binaries of its file, or from source if the driver refuses a binary. Executors
on one open device may share them, and what else they have alike."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from typing import Self

from gputune.core.errors import WrongDevice
from gputune.core.identity import DeviceIdentity
from gputune.core.quirks import groups_at_once
from gputune.runtime.backends import Backend, Program
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import LaunchRecord

Known = MutableMapping[Hashable, Program]
"""Programs by what they were made of, for other executors on the device."""
Texts = Mapping[int, tuple[str, str]]
"""The source and the build options of programs by their index."""


class ProgramRecords:
    """What programs are made of: in an open context file, or as it was read from one that may be closed.

    binaries, strict: whether binaries are loaded at all, and whether one that is refused is an error."""

    def __init__(self, file: ContextFile, programs: Iterable[int], binaries: bool, strict: bool) -> None:
        self.path, self.binaries, self.strict = file.path, binaries, strict
        self.indices = sorted(set(programs))
        self.binary: Callable[[int], bytes] = file.binary
        self.source: Callable[[int], str] = file.source
        header = file.header
        self._entries = {index: header.programs[index] for index in self.indices}
        self._digests = {
            index: (header.sections[entry.binary].sha256, header.sections[entry.source].sha256, entry.options)
            for index, entry in self._entries.items()
        }

    def read(self) -> Self:
        """Itself, with everything kept and its checksums verified. Raises ContextError."""
        binaries = {index: self.binary(index) for index in self.indices}
        sources = {index: self.source(index) for index in self.indices}
        self.binary, self.source = binaries.__getitem__, sources.__getitem__
        return self

    def options(self, index: int) -> str:
        """Return what a program is built from source with."""
        return self._entries[index].options

    def digest(self, index: int) -> Hashable:
        """Equal programs have equal ones."""
        return self.binaries, self._digests[index]


def load_programs(
    backend: Backend, records: ProgramRecords, known: Known, warn: Callable[[str], None]
) -> dict[int, Program]:
    """Return the programs by their index; those that are not known yet are added. Raises WrongDevice, BuildFailed,
    ContextError."""
    programs = {index: known[digest] for index in records.indices if (digest := records.digest(index)) in known}
    missing = [index for index in records.indices if index not in programs]
    found = backend.load_binaries([records.binary(index) for index in missing]) if records.binaries else []
    for index, loaded in zip(missing, found, strict=False):
        if isinstance(loaded, Program):
            programs[index] = loaded
        elif records.strict:
            raise WrongDevice(f"{records.path}: the driver refuses the binary of program {index}: {loaded}")
        else:
            warn(f"the driver refuses the binary of program {index}; building it from source")
    for index in missing:
        if index not in programs:
            programs[index] = backend.build(records.source(index), records.options(index))
    known.update({records.digest(index): programs[index] for index in missing})
    return programs


def load_persistent_programs(
    backend: Backend, file: ContextFile, launches: Sequence[LaunchRecord], known: Known, warn: Callable[[str], None]
) -> dict[int, Program] | None:
    """Return the programs of the persistent launches by their index. None where there are none, or, with a warning,
    where groups might wait for others that do not run."""
    if not any(launch.counts for launch in launches):
        return None
    if reason := _cannot_wait(launches, backend.identity):
        warn(f"launches run one by one: {reason}")
        return None
    records = ProgramRecords(file, [launch.program for launch in launches], binaries=True, strict=True)
    try:
        return load_programs(backend, records, known, warn)
    except WrongDevice as error:
        warn(f"launches run one by one: {str(error).removeprefix(f'{file.path}: ')}")
        return None


def persistent_texts(file: ContextFile, launches: Sequence[LaunchRecord]) -> Texts:
    """Of the persistent kernels among launches. Raises ContextError."""
    wanted = {launch.program for launch in launches if launch.counts}
    return {index: (file.source(index), file.header.programs[index].options) for index in wanted}


def _cannot_wait(launches: Sequence[LaunchRecord], device: DeviceIdentity) -> str:
    """Why the groups of persistent kernels cannot wait for each other here; empty where they can."""
    waiting = [launch for launch in launches if launch.counts]
    if not all(launch.yields for launch in waiting):
        return (
            "the persistent kernels are of an older gputune and cannot yield to other programs; generate the context "
            "again"
        )
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    at_once = min(groups_at_once(device), processors)
    needed = max(math.prod(launch.global_size) for launch in waiting)
    return f"the persistent kernel needs {needed} processors, there are {at_once}" if needed > at_once else ""

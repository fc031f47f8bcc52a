"""Manage the programs of an open device: which are kept, and which launches share a program."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from gputune.core.errors import BuildFailed, DeviceError
from gputune.core.launches import Launch
from gputune.core.quirks import quirks_of
from gputune.runtime.backends.base import Backend, Program
from gputune.runtime.backends.merging import merged

PROGRAMS_KEPT = 64


class ProgramCache:
    """Builds the programs of launches on a backend, and keeps those that were used last.

    prebuilt: binaries by source and options, which program_for loads instead of building.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.prebuilt: Mapping[tuple[str, str], bytes] = {}
        self._kept: OrderedDict[Launch | tuple[str, str], Program] = OrderedDict()
        # of a source whose shared program could not be built: launches that have not been built alone yet
        self._apart: OrderedDict[str, set[Launch]] = OrderedDict()

    @property
    def merges(self) -> bool:
        """Whether one program of several launches is built faster than one for each."""
        return quirks_of(self.backend.identity).charges_per_program

    def program_for(self, launch: Launch, harvested: bool = True, shared: bool = False) -> tuple[Program, int]:
        """Return the program of a launch and the ns spent on building it now: 0 when it is among those used last.
        Raises BuildFailed.

        A program whose binary is `harvested` is kept per launch, sizes included and not only per source, because a
        binary belongs to one size. Others, such as those that rearrange weights, serve all launches of their source.
        shared: it may be one that build_together has built.
        """
        key: Launch | tuple[str, str] = launch if harvested else (launch.source, launch.options)
        program = self._kept.get(key)
        if program is not None and (shared or not program.prefix):
            self._kept.move_to_end(key)
            return program, 0
        try:
            program = self._loaded(launch) or self.backend.build(launch.source, launch.options)
        except BuildFailed:
            self._apart.pop(launch.source, None)  # it was this one, perhaps, that failed beside others
            raise
        self._apart.get(launch.source, set()).discard(launch)
        self._keep(key, program)
        return program, program.build_ns

    def has_program(self, launch: Launch) -> bool:
        """Return whether program_for would find this launch's program, be it shared."""
        return launch in self._kept or (launch.source, launch.options) in self.prebuilt

    def shares_program(self, launch: Launch) -> bool:
        """Return whether the program that program_for would find is one that other launches share."""
        program = self._kept.get(launch)
        return program is not None and bool(program.prefix)

    def build_together(self, launches: Sequence[Launch]) -> int:
        """Build one program for all of these launches, which program_for finds then where it may be shared, and say
        how many ns that took for each: 0 when they do not go together, and nothing is built."""
        source = launches[0].source
        text = None if self._apart.get(source) == set() else merged(launches)
        if text is None:
            return 0
        try:
            program = self.backend.build(text.source, text.options)
        except DeviceError:
            self._apart[source] = set(launches)
            if len(self._apart) > PROGRAMS_KEPT:
                self._apart.popitem(last=False)
            return 0
        share_ns = max(program.build_ns // len(launches), 1)
        for launch, prefix in zip(launches, text.prefixes, strict=True):
            self._keep(launch, Program(program.handle, share_ns, prefix=prefix, log=program.log))
        return share_ns

    def _keep(self, key: Launch | tuple[str, str], program: Program) -> None:
        self._kept[key] = program
        self._kept.move_to_end(key)
        if len(self._kept) > PROGRAMS_KEPT:
            self._kept.popitem(last=False)

    def _loaded(self, launch: Launch) -> Program | None:
        binary = self.prebuilt.get((launch.source, launch.options))
        if binary is None:
            return None
        try:
            return self.backend.load_binary(binary)
        except BuildFailed:  # what was built elsewhere only saves time
            return None

"""Replay a device that was recorded once: launches take the recorded times and compute nothing.

A recorded sample lasts as long as it did in the recording. Once launches of its time add up to the recording's
sample_ns, the next sample follows, in recorded order, and the first again after the last. Every binding of a launch
begins with the first sample, so a batch takes the same times whatever came before it, in every process.

What failed in the recording fails again when it is bound, with the recorded status and message. What is not in the
recording is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gputune.core.errors import BuildFailed, DeviceError, DeviceNotFound, InvalidLaunch, LaunchFailed, LimitExceeded
from gputune.core.identity import DeviceIdentity
from gputune.core.statuses import OK
from gputune.runtime.backends.answers import Times, Timing
from gputune.runtime.backends.base import Bound, Call, Program, buffers_of
from gputune.runtime.backends.null import NullBackend
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.devices.recording import (
    DIGEST_DIGITS,
    BadRecording,
    Recording,
    Row,
    launch_digest,
    program_digest,
    read_all,
)

MAGIC = b"gputune-replay "
PREPARE_NS = 1_000
"""What a launch takes that rearranges weights, which is never recorded."""


class NotRecorded(DeviceError):
    """A launch is not in the recording."""

    status = "constraints"


class WasWrong(DeviceError):
    """The output was wrong when it was recorded."""

    status = "correctness"


class WasLate(DeviceError):
    """It took too long when it was recorded."""

    status = "timeout"


class HadCrashed(DeviceError):
    """It took the worker down when it was recorded."""

    status = "crash"


_FAILURES: dict[str, type[DeviceError]] = {
    kind.status: kind
    for kind in (InvalidLaunch, BuildFailed, LimitExceeded, LaunchFailed, WasWrong, WasLate, HadCrashed)
}


class Playback:
    """One bound launch: says how long its next launches take. sample_ns: how long a recorded sample lasts at least."""

    def __init__(self, samples_ns: Sequence[float], sample_ns: float, first_launch_ns: int, event: bool) -> None:
        self._samples_ns = samples_ns
        self._sample_ns = sample_ns
        self._first_launch_ns = first_launch_ns
        self._event = event
        self._place = 0
        self._lasted_ns = 0.0

    def launch(self, launches: int) -> Timing:
        """Return the timing of the next launches, all of one recorded sample."""
        passed_ns = launches * self._samples_ns[self._place]
        self._lasted_ns += passed_ns
        if self._lasted_ns >= self._sample_ns:
            self._place, self._lasted_ns = (self._place + 1) % len(self._samples_ns), 0.0
        return self._timing(launches, passed_ns, passed_ns)

    def first_launch(self) -> Timing:
        """Return the timing of the first launch of all, which is no part of a sample."""
        return self._timing(1, self._samples_ns[0], self._first_launch_ns)

    def _timing(self, launches: int, event_ns: float, wall_ns: float) -> Timing:
        return Timing(launches, max(1, round(event_ns)) if self._event else 0, max(1, round(wall_ns)))


class ReplayBackend(NullBackend):
    """No device, but its times; memory is the host's, as that of the null device."""

    def __init__(self, identity: DeviceIdentity, recordings: Sequence[Recording]) -> None:
        super().__init__(identity)
        self._titles = ", ".join(_contents(recording) for recording in recordings)
        self._rows: dict[str, tuple[Row, float]] = {}
        self._build_ns: dict[str, int] = {}
        self._prepare = {digest for recording in recordings for digest in recording.header.prepare}
        for recording in recordings:
            for row in recording.rows:  # configurations that render to one launch are one to a device
                self._rows.setdefault(row.launch, (row, float(recording.header.measured["sample_ns"])))
                self._build_ns[row.program] = max(row.compile_ns, self._build_ns.get(row.program, 0))

    def _build(self, source: str, options: str) -> Program:
        digest = program_digest(source, options)
        return Program(options, self._build_ns.get(digest, 0), MAGIC + digest.encode())

    def load_binary(self, binary: bytes) -> Program:
        if not binary.startswith(MAGIC) or len(binary) != len(MAGIC) + DIGEST_DIGITS:
            raise BuildFailed("not a program binary of a replayed device")
        return Program("unknown, from a binary", 0, bytes(binary))

    def _bind(self, call: Call) -> Bound:
        program, sizes, held = call.program, (call.global_size, call.local_size), buffers_of(call.arguments)
        assert program.binary is not None
        known = program.binary[len(MAGIC) :].decode("ascii", "replace")
        digest = launch_digest(known, call.entry, *sizes, call.arguments)
        if digest in self._prepare:
            return Bound(Playback((PREPARE_NS,), PREPARE_NS, PREPARE_NS, True), *sizes, held)
        if digest not in self._rows:
            raise NotRecorded(
                f"kernel {call.entry!r} with global size {sizes[0]}, local size {sizes[1]} and options "
                f"{str(program.handle)[:500]!r} is not in the recording ({self._titles})"
            )
        row, sample_ns = self._rows[digest]
        if row.status != OK:
            raise _FAILURES[row.status](row.message)
        playback = Playback(row.samples_ns, sample_ns, row.first_launch_ns, row.timing == "event")
        return Bound(playback, *sizes, held)

    def first_launch(self, bound: Bound, started: Callable[[], None]) -> Timing:
        started()
        timing: Timing = bound.kernel.first_launch()
        return timing

    def time(self, bound: Bound, launches: int) -> Timing:
        timing: Timing = bound.kernel.launch(launches)
        return timing

    def enqueue_timed(self, bounds: Sequence[Bound]) -> Callable[[], Times]:
        return self._stamped([bound.kernel.launch(1).event_ns for bound in bounds])


def open_device(report: DeviceReport, profiling: bool = True, compiled: Path | None = None) -> ReplayBackend:
    """Return the device of the recording that the report names. Raises DeviceNotFound when that cannot be read (any
    more)."""
    assert report.identity is not None
    try:
        return ReplayBackend(report.identity, read_all(Path(report.driver_file)))
    except BadRecording as error:
        raise DeviceNotFound(str(error)) from None


def _contents(recording: Recording) -> str:
    header = recording.header
    return f"{recording.title}: {len(recording.rows)} of the {header.space_size} configurations of a {header.op}"

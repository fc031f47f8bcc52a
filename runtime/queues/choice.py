"""Choose the way in which a queue's launches are recorded."""

from __future__ import annotations

from collections.abc import Sequence

from gputune.runtime.memory.opencl_calls import OpenCLCalls
from gputune.runtime.queues.command_buffers import command_buffers
from gputune.runtime.queues.qualcomm import recordable_queues
from gputune.runtime.queues.recorded import RecordedQueue


def recorded_queue(calls: OpenCLCalls, extensions: Sequence[str]) -> RecordedQueue | str:
    """Return the first way that the device of these calls has, or why it has none."""
    reasons = []
    for way in (command_buffers, recordable_queues):
        found = way(calls, extensions)
        if not isinstance(found, str):
            return found
        reasons.append(found)
    return "; ".join(reasons)

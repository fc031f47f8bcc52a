"""Choose the way in which a queue's launches are recorded."""

from __future__ import annotations

from gputune.core.identity import DeviceIdentity
from gputune.core.quirks import quirks_of
from gputune.runtime.memory.opencl_calls import OpenCLCalls
from gputune.runtime.queues.command_buffers import command_buffers
from gputune.runtime.queues.qualcomm import recordable_queues
from gputune.runtime.queues.recorded import RecordedQueue


def recorded_queue(calls: OpenCLCalls, identity: DeviceIdentity) -> RecordedQueue | str:
    """Return the first way that the device of these calls has, or why it has none that can be used."""
    quirks, reasons = quirks_of(identity), []
    if identity.device_type in quirks.leaks_replays:
        return f"{quirks.driver}'s driver leaks memory with every inference that is replayed"
    for way in (command_buffers, recordable_queues):
        found = way(calls, identity.extensions)
        if not isinstance(found, str):
            return found
        reasons.append(found)
    return "; ".join(reasons)

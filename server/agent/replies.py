"""Hold an agent's reply against its request: how many things it has, and of how many bytes each is.

Whatever else the target server does with a reply relies on that, so it is asked in this place for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import numpy as np

from gputune.core.dtypes import ELEMENT_TYPES
from gputune.server.agent import messages
from gputune.server.agent.messages import TOLD_VARIABLES

ENDED_CHARACTERS = 200
FILE_BYTES, ALL_BYTES = 1 << 16, 1 << 22
"""Bytes of a file at most, and of all files of a reply."""
LAUNCH_BYTES = 4 * 8
"""A launch has four times, of eight bytes each."""


def wrong_in(request: Any, reply: Any, outputs: Sequence[int] | None = None) -> str:
    """Return what of a reply of the right type does not fit its request; empty if all does. outputs: bytes of those
    that an inference has, if they are known."""
    if isinstance(request, messages.RunContext):
        return "" if outputs is None else _sizes(reply.outputs, outputs)
    check = _CHECKS.get(type(request))
    return "" if check is None else check(request, reply)


def _sizes(data: Sequence[Any], wanted: Sequence[int]) -> str:
    got = [len(each) for each in data]
    if len(got) != len(wanted):
        return f"{len(got)} contents, not {len(wanted)}"
    place = next((place for place, pair in enumerate(zip(got, wanted, strict=True)) if pair[0] != pair[1]), None)
    return "" if place is None else f"{got[place]} bytes in place {place}, not {wanted[place]}"


def _greeting(request: messages.Begin, reply: messages.Greeting) -> str:
    good = len(reply.ended) <= ENDED_CHARACTERS and (reply.ended.isprintable() or not reply.ended)
    return "" if good else "an ending that is no short line"


def _opened(request: messages.Open, reply: messages.Opened) -> str:
    for variable in reply.variables:
        name, equals, _ = variable.partition("=")
        if not equals or not any(fnmatchcase(name, pattern) for pattern in TOLD_VARIABLES):
            return f"the variable {name[:100]!r}, which no agent tells"
    return ""


def _contents(request: messages.Read, reply: messages.Contents) -> str:
    return _sizes(reply.data, [span.nbytes for span in request.spans])


def _remembered(request: messages.ReadState, reply: messages.Contents) -> str:
    return _sizes(reply.data, [request.nbytes])


def _files(request: messages.ReadFiles, reply: messages.Contents) -> str:
    sizes = [len(each) for each in reply.data]
    if len(sizes) != len(request.paths):
        return f"{len(sizes)} files, not {len(request.paths)}"
    return "files that are too large" if max(sizes, default=0) > FILE_BYTES or sum(sizes) > ALL_BYTES else ""


def _one(request: Any, reply: messages.Contents) -> str:
    return "" if len(reply.data) == 1 else f"{len(reply.data)} contents, not 1"


def _checked(request: messages.Check, reply: messages.Checked) -> str:
    counts = len(reply.seen), len(reply.found)
    if counts != (wanted := (len(request.zones), len(request.expected))):
        return f"{counts} zones and comparisons, not {wanted}"
    for zone, seen in zip(request.zones, reply.seen, strict=True):
        if seen.before > zone.guard_bytes or seen.after > zone.nbytes - zone.guard_bytes - zone.inside:
            return "more changed bytes than a guard has"
    for expected, found in zip(request.expected, reply.found, strict=True):
        width = ELEMENT_TYPES[expected.dtype].nbytes
        if len(found.found) != (width if found.wrong else 0) or len(found.maximum) not in (0, 8):
            return f"{len(found.found)} bytes of a wrong element and {len(found.maximum)} of an error"
    return ""


def _first(request: messages.FirstLaunch, reply: messages.Timed) -> str:
    return _sizes((reply.wall_ns, reply.times), (8, LAUNCH_BYTES)) or _walls(reply)


def _passed(request: messages.TimePass, reply: messages.Timed) -> str:
    run, rest = divmod(len(reply.wall_ns), 8)
    if rest or run > len(request.batches) or (request.batches and not run):
        return f"{len(reply.wall_ns)} bytes of times for {len(request.batches)} batches"
    launches = sum(batch.launches * len(batch.bounds) for batch in request.batches[:run])
    return _sizes((reply.times,), (launches * LAUNCH_BYTES,)) or _walls(reply)


def _walls(reply: messages.Timed) -> str:
    return "a time below zero" if (np.frombuffer(reply.wall_ns, "<i8") < 0).any() else ""


_CHECKS: Mapping[type, Callable[[Any, Any], str]] = MappingProxyType(
    {
        messages.Begin: _greeting,
        messages.Open: _opened,
        messages.Read: _contents,
        messages.ReadFiles: _files,
        messages.Check: _checked,
        messages.Harvest: _one,
        messages.EndProfile: _one,
        messages.ReadState: _remembered,
        messages.FirstLaunch: _first,
        messages.TimePass: _passed,
    }
)
"""By request. What the others are answered by has neither counts nor bytes that follow from the request."""

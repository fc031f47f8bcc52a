"""Make frames as large as the limits allow, of the kinds that take longest to read."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgpack

from gputune.core.launches import Launch, Variant
from gputune.server.protocol import codec
from gputune.server.protocol.codec import Parts
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import CompileKernel, ExecuteKernel, FreeBuffers

from .examples import LAUNCH, PROFILE

_ROOM = Limits().header_bytes - 2000
_SHORT = replace(LAUNCH, source="", entry="e", options="", global_size=(1,), local_size=(1,), arguments=())


def full_headers() -> Mapping[str, Callable[[], Parts]]:
    """What makes headers, by what they are full of: some are valid requests, the others have to be taken apart to be
    refused. Making one takes up to half a second, which only the test that reads it shall pay."""
    most = {f"{number:x}": number % 100 + 1 for number in range(1024)}
    one = Variant({}, (), _SHORT, {})
    launch = replace(_SHORT, arguments=(1,) * 256)
    wide = Variant(dict(list(most.items())[:256]), (), _SHORT, most)
    lists = b"\xdc\x3f\xff" + b"\x90" * 16383
    return {
        "empty lists": lambda: _unknown(b"\xdc\x00\x1f" + lists * 31),
        "numbers": lambda: _unknown(b"\xdc\x00\x1f" + lists.replace(b"\x90", b"\xc0") * 31),
        "nested lists": lambda: _unknown(b"\x92" + (b"\xdc\x3f\xff" + (b"\x91" * 12 + b"\x90") * 16383) * 2),
        "maps": lambda: _unknown(b"\xdc\x3f\xff" + b"\x81\xa1a\x81\xa1b\x80" * 16383),
        "launches": lambda: codec.pack(ExecuteKernel(_as_many(_SHORT, 1024), {}, {}), 1),
        "arguments": lambda: codec.pack(_with(Variant({}, _as_many(launch, 1024), _SHORT, {}), 1), 1),
        "variants": lambda: codec.pack(_with(one, 1024), 1),
        "amounts": lambda: codec.pack(_with(wide, 1024), 1),
        "outputs": lambda: codec.pack(ExecuteKernel((_SHORT,), most, most), 1),
        "one map": lambda: codec.pack(CompileKernel(replace(one, packed={f"{n:x}": 1 for n in range(16384)}), {}), 1),
        "handles": lambda: codec.pack(FreeBuffers(tuple(range(1 << 40, (1 << 40) + 4096))), 1),
        "texts": lambda: codec.pack(ExecuteKernel(_with_sources(1000), {}, {}), 1),
    }


def _unknown(value: bytes) -> Parts:
    """A request with a field that it does not have."""
    packed: bytes = msgpack.packb({"id": 1, "type": "Ping", "more": 0})
    return Parts(packed[:-1] + value, ())


def _as_many(launch: Launch, most: int) -> tuple[Launch, ...]:
    return (launch,) * min(most, _ROOM // len(codec.pack(ExecuteKernel((launch,), {}, {}), 1).header))


def _with(variant: Variant, most: int) -> Any:
    each = len(codec.pack(CompileKernel(variant, {}), 1).header)
    return replace(PROFILE, baseline=None, variants=(variant,) * max(1, min(most, _ROOM // each)))


def _with_sources(count: int) -> tuple[Launch, ...]:
    each = Limits().text_bytes // count
    return tuple(replace(_SHORT, source=f"{number:x}\U0001f600".ljust(each - 3, "x")) for number in range(count))

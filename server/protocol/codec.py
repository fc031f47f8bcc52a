"""Messages to frame parts and back: MsgPack for the header, byte strings out of band.

A field of type Blob is never copied: the sender's buffer goes to the socket as it is, the receiver's field is
a view of the memory that the socket wrote into. This file is the protocol's only door to MsgPack.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import msgpack

from gputune.server.protocol.decoder import DecodeError, decode
from gputune.server.protocol.errors import LocalProtocolError, RemoteProtocolError
from gputune.server.protocol.messages import Hello

_BLOB = 1  # MsgPack extension type: u32 index of a blob
_INDEX = struct.Struct("<I")
_ITEMS = 1 << 20  # elements of one list or map
_TEXT = 1 << 24  # bytes of one text


@dataclass(frozen=True)
class Parts:
    """A message taken apart: the MsgPack header and the blobs that travel behind it."""

    header: bytes
    blobs: tuple[memoryview, ...]


def registry(kinds: Iterable[type]) -> Mapping[str, type]:
    """Message classes by the name that they have on the wire."""
    return {kind.__name__: kind for kind in kinds}


def pack(message: object, request_id: int) -> Parts:
    """Takes a message apart. Raises LocalProtocolError (bad_message) for values that do not travel."""
    blobs: list[memoryview] = []
    plain = {"id": request_id, "type": type(message).__name__}
    try:
        plain |= {item.name: _plain(getattr(message, item.name), blobs) for item in fields(message)}  # type: ignore[arg-type]
        return Parts(msgpack.packb(plain, strict_types=True), tuple(blobs))
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalProtocolError("bad_message", f"{type(message).__name__} cannot be sent: {error}") from None


def unpack(header: bytes | memoryview, blobs: Sequence[memoryview], kinds: Mapping[str, type]) -> tuple[int, Any]:
    """(request id, message) of an untrusted frame; only the classes in `kinds` (see registry) are accepted.

    Raises RemoteProtocolError (bad_message); its request_id is the frame's when that much could be read.
    """
    unused = set(range(len(blobs)))

    def extension(code: int, data: bytes) -> memoryview:
        index = _INDEX.unpack(data)[0] if code == _BLOB and len(data) == _INDEX.size else -1
        if index not in unused:
            raise ValueError(f"extension {code} does not name a blob that is still unused")
        unused.remove(index)
        return blobs[index]

    try:
        plain = msgpack.unpackb(
            header,
            ext_hook=extension,
            strict_map_key=True,
            max_str_len=_TEXT,
            max_bin_len=0,
            max_array_len=_ITEMS,
            max_map_len=_ITEMS,
            max_ext_len=_INDEX.size,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        reason = str(error) or type(error).__name__
        raise RemoteProtocolError("bad_message", f"the header is not valid MsgPack: {reason[:200]}") from None
    if not isinstance(plain, dict):
        raise RemoteProtocolError("bad_message", "the header is not a map")
    request_id, name = plain.pop("id", None), plain.pop("type", None)
    if type(request_id) is not int or not 0 <= request_id < 2**63:
        raise RemoteProtocolError("bad_message", "the header has no valid id")
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        what = f"{name[:40]!r}" if isinstance(name, str) else "the header has no type and"
        raise RemoteProtocolError("bad_message", f"{what} is not a message that may arrive here", request_id=request_id)
    if unused:
        raise RemoteProtocolError(
            "bad_message", f"{kind.__name__} leaves {len(unused)} blobs unused", request_id=request_id
        )
    try:
        return request_id, decode(kind, plain, ignore_unknown=kind is Hello)
    except DecodeError as error:
        raise RemoteProtocolError("bad_message", f"{kind.__name__}: {error}", request_id=request_id) from None


def _plain(value: object, blobs: list[memoryview]) -> object:
    if isinstance(value, (bytes, bytearray, memoryview)):
        blobs.append(memoryview(value).cast("B"))
        return msgpack.ExtType(_BLOB, _INDEX.pack(len(blobs) - 1))
    if isinstance(value, Mapping):
        return {key: _plain(item, blobs) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item, blobs) for item in value]
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name), blobs) for item in fields(value)}
    return value

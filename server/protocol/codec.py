"""Encode messages as frame parts and back: MsgPack for the header, byte strings out of band.

A field of type Blob is never copied: the sender's buffer goes to the socket as it is, and the receiver's field is a
view of the memory into which the socket wrote. Long texts travel as blobs too, so that headers stay small: to make
objects of a header is what takes time. No other file of the protocol uses MsgPack.
"""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, NoReturn

import msgpack

from gputune.core.bounds import HOST_ONLY, LATER
from gputune.core.decoder import DecodeError, decode
from gputune.server.protocol.errors import LocalProtocolError, RemoteProtocolError, limit_exceeded
from gputune.server.protocol.limits import UNLIMITED, Limits
from gputune.server.protocol.messages import Hello

_BLOB = 1  # MsgPack extension type: u32 index of a blob
_TEXT = 2  # the same, of a blob that holds a text in UTF-8
LONG_TEXT = 1024  # characters; longer texts travel as blobs
_INDEX = struct.Struct("<I")
_HOLDERS = frozenset({dict, list})
_AS_THEY_ARE = frozenset({str, int, float, bool, type(None)})
_EXCESS = re.compile(r"(\d+) exceeds max_(str|array|map)_len")  # how MsgPack says it, compiled or in Python
_WHICH = {"str": "text_bytes", "array": "items", "map": "items"}


class _Thread(threading.local):
    """Hold a packer for each thread: making one takes longer than packing a ping."""

    def __init__(self) -> None:
        self.pack: Callable[[object], bytes] = msgpack.Packer(strict_types=True).pack


_thread = _Thread()


class Parts(NamedTuple):
    """Take a message apart: the MsgPack header and the blobs that travel behind it."""

    header: bytes
    blobs: Sequence[memoryview]


def registry(kinds: Iterable[type]) -> Mapping[str, type]:
    """Return message classes by the name that they have on the wire."""
    return {kind.__name__: kind for kind in kinds}


def pack(message: object, request_id: int) -> Parts:
    """Take a message apart. Raises LocalProtocolError (bad_message) for values that do not travel."""
    kind: Any = type(message)
    blobs: list[memoryview] = []
    plain: dict[str, object] = {"id": request_id, "type": kind.__name__}
    try:
        return Parts(_thread.pack(_fill(plain, message, blobs)), blobs)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise LocalProtocolError("bad_message", f"{kind.__name__} cannot be sent: {error}") from None


def unpack(
    header: bytes | memoryview, blobs: Sequence[memoryview], kinds: Mapping[str, type], limits: Limits = UNLIMITED
) -> tuple[int, Any]:
    """Return (request id, message) of an untrusted frame; only the classes in `kinds` (see registry) are accepted.

    Raises RemoteProtocolError (bad_message, unexpected_message, limit_exceeded); its request_id is the frame's
    when that much could be read.
    """
    unused = set(range(len(blobs))) if blobs else None
    plain = _unpacked(header, _blob_hook(blobs, unused, limits.text_bytes) if unused else _no_blob, limits)
    if type(plain) is not dict:
        raise RemoteProtocolError("bad_message", "the header is not a map")
    request_id, name = plain.pop("id", None), plain.pop("type", None)
    if type(request_id) is not int or not 0 <= request_id < 2**63:
        raise RemoteProtocolError("bad_message", "the header has no valid id")
    if type(name) is not str:
        raise RemoteProtocolError("bad_message", "the header has no type", request_id=request_id)
    kind = kinds.get(name)
    if kind is None:
        text = f"{name[:40]!r} is not a message that may arrive here"
        raise RemoteProtocolError("unexpected_message", text, request_id=request_id)
    if unused:
        text = f"{name} leaves {len(unused)} blobs unused"
        raise RemoteProtocolError("bad_message", text, request_id=request_id)
    if plain and (depth := _depth(plain, limits.nesting)) > limits.nesting:
        what = f"the header of {name} is nested to a depth of"
        raise limit_exceeded(RemoteProtocolError, what, "nesting", limits.nesting, depth, request_id=request_id)
    try:
        return request_id, decode(kind, plain, kind is Hello)
    except DecodeError as error:
        raise RemoteProtocolError("bad_message", f"{name}: {error}", request_id=request_id) from None


# --- out ------------------------------------------------------------------------------------------


@cache
def _names(kind: Any) -> tuple[tuple[str, ...], dict[str, object]]:
    """Return the fields of a message that always travel, and the defaults of those that do so only when they differ."""
    later = {item.name: _default(item) for item in fields(kind) if LATER.items() <= item.metadata.items()}
    known = [item.name for item in fields(kind) if not HOST_ONLY.items() <= item.metadata.items()]
    return tuple(name for name in known if name not in later), later


def _default(item: Field[Any]) -> object:
    return item.default if item.default_factory is MISSING else item.default_factory()


def _fill(plain: dict[str, object], message: object, blobs: list[memoryview]) -> dict[str, object]:
    """Add the fields to be sent, with their values."""
    kind: Any = type(message)
    names, later = _names(kind)
    for name in names:
        plain[name] = _plain(getattr(message, name), blobs)
    for name, default in later.items():
        if (value := getattr(message, name)) != default:
            plain[name] = _plain(value, blobs)
    return plain


def _plain(value: object, blobs: list[memoryview]) -> object:
    kind: Any = type(value)
    if kind is str and len(value) > LONG_TEXT:  # type: ignore[arg-type]
        blobs.append(memoryview(value.encode()))  # type: ignore[attr-defined]
        return msgpack.ExtType(_TEXT, _INDEX.pack(len(blobs) - 1))
    if kind in _AS_THEY_ARE:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        blobs.append(memoryview(value).cast("B"))
        return msgpack.ExtType(_BLOB, _INDEX.pack(len(blobs) - 1))
    if isinstance(value, Mapping):
        return {key: _plain(item, blobs) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item, blobs) for item in value]
    if is_dataclass(value):
        return _fill({}, value, blobs)
    return value


# --- in -------------------------------------------------------------------------------------------

_Hook = Callable[[int, bytes], memoryview | str]


def _unpacked(header: bytes | memoryview, hook: _Hook, limits: Limits) -> object:
    try:
        return msgpack.unpackb(
            header,
            ext_hook=hook,
            strict_map_key=True,
            max_str_len=limits.text_bytes,
            max_bin_len=0,
            max_array_len=limits.items,
            max_map_len=limits.items,
            max_ext_len=_INDEX.size,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        reason = str(error) or type(error).__name__
        if excess := _EXCESS.match(reason):
            limit = _WHICH[excess[2]]
            what = "a header has a text or list of"
            raise limit_exceeded(RemoteProtocolError, what, limit, getattr(limits, limit), int(excess[1])) from None
        raise RemoteProtocolError("bad_message", f"the header is not valid MsgPack: {reason[:200]}") from None


def _blob_hook(blobs: Sequence[memoryview], unused: set[int], text_bytes: int) -> _Hook:
    texts_bytes = 0

    def extension(code: int, data: bytes) -> memoryview | str:
        nonlocal texts_bytes
        index = _INDEX.unpack(data)[0] if code in (_BLOB, _TEXT) and len(data) == _INDEX.size else -1
        if index not in unused:
            raise ValueError(f"extension {code} does not name a blob that is still unused")
        unused.remove(index)
        blob = blobs[index]
        if code == _BLOB:
            return blob
        texts_bytes += blob.nbytes
        if texts_bytes > text_bytes:
            what = "a frame has long texts with bytes:"
            raise limit_exceeded(RemoteProtocolError, what, "text_bytes", text_bytes, texts_bytes)
        try:
            return str(blob, "utf-8")
        except UnicodeDecodeError:
            raise ValueError("a blob that should be a text is not UTF-8") from None

    return extension


def _no_blob(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"extension {code} in a frame without blobs")


def _depth(header: dict[str, Any], allowed: int) -> int:
    """Count how deep lists and maps lie within each other, and stop one beyond what is allowed."""
    depth = 1
    level: list[Any] = [item for item in header.values() if type(item) in _HOLDERS]
    while level and depth <= allowed:
        depth += 1
        level = [
            item
            for holder in level
            if holder
            for item in (holder.values() if type(holder) is dict else holder)
            if type(item) in _HOLDERS
        ]
    return depth

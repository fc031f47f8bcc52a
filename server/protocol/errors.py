"""Define the errors of the protocol. Every error has a name; the names are part of the protocol.

`LocalProtocolError`: this side tried something that the protocol does not allow; nothing was sent.
`RemoteProtocolError`: the other side sent something that the protocol does not allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

ProtocolErrorT = TypeVar("ProtocolErrorT", bound="ProtocolError")

ERROR_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "version_mismatch": "the two sides speak different versions of the protocol",
        "bad_frame": "the bytes received are not a frame of this protocol",
        "bad_message": "a frame's header is not a valid message",
        "unexpected_message": "a message that the protocol does not know, or not at this moment",
        "token_required": "the server has a token, and the client has none",
        "token_unused": "the client has a token, and the server has none",
        "authentication_failed": "the other side does not know the token",
        "bad_mac": "a frame's MAC is wrong: it was changed, repeated, left out or put in on the way",
        "wrong_user": "the other side of a local socket is of another user, and not of root",
        "too_many_connections": "the server serves as many clients as its limit connections allows",
        "limit_exceeded": "a request is larger than a limit that the server named in its welcome",
        "unknown_source": "a launch names a source by its hash that this connection has not sent",
        "unknown_buffer": "a buffer handle that this connection does not own (any more)",
        "unknown_memory": "a handle of registered memory that this connection does not own (any more)",
        "unknown_context": "a context handle that this connection does not own (any more)",
        "unknown_state": "a state handle that this connection does not own (any more), or whose worker has ended",
        "not_on_this_connection": "memory cannot be registered over this connection, which is no local socket",
        "bad_descriptor": "a descriptor has come that no message asks for, or several with one message",
        "unusable_memory": "the descriptor that came is no memory that a device can be given safely",
        "bad_context": "the bytes are no context binary that this device can run",
        "no_contexts": "the server runs no contexts, because it has no C runtime",
        "cancelled": "the client has cancelled the request",
        "stopping": "the server is being stopped and takes no more requests",
        "build_failed": "the device's compiler rejected the program",
        "launch_failed": "the device rejected or failed a launch or a transfer",
        "device_unavailable": "the device could not be opened",
        "worker_died": "the process that runs OpenCL ended during the request",
        "worker_timeout": "the process that runs OpenCL did not answer in time and was ended",
        "internal_error": "a defect in the server",
    }
)


class ProtocolError(Exception):
    """Report something that the protocol does not allow.

    `name` is one of ERROR_NAMES. `request_id` is the request at fault; 0 means that the connection as a
    whole is at fault and cannot go on.
    """

    def __init__(
        self,
        name: str,
        message: str,
        details: Mapping[str, object] | None = None,
        *,
        request_id: int = 0,
    ) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message
        self.details: dict[str, object] = dict(details or {})
        self.request_id = request_id


class LocalProtocolError(ProtocolError):
    """Report that this side tried something that the protocol does not allow; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """Report that the other side sent something that the protocol does not allow.

    `arrived` holds the messages, as (request id, message), that the same bytes completed before the fault.
    """

    arrived: Sequence[tuple[int, object]] = ()


def limit_exceeded(
    fault: type[ProtocolErrorT], what: str, limit: str, allowed: float, got: float, *, request_id: int = 0
) -> ProtocolErrorT:
    """Return the error for `got` of something of which the server's limit allows less; its details name the limit."""
    got = min(got, 2**63 - 1)  # a hostile frame announces more than a reply about it could hold
    message = f"{what} {got}, the server's limit {limit} is {allowed}"
    return fault("limit_exceeded", message, {"limit": limit, "allowed": allowed, "got": got}, request_id=request_id)

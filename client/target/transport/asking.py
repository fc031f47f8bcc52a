"""Define what a session needs of a connection, whatever carries its requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gputune.client.errors import TargetError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Progress


class Asking(Protocol):
    """Use a connection that is ready for requests. Not for several threads at once. Every method raises TargetError;
    connection_lost and stopping mean that another connection has to be made.

    address: where it leads; device: the device's identity; limits: what is accepted there; server: what the server says
    about itself; local: whether descriptors can be sent; idle_seconds: how long nothing has been sent; over: says when
    what is under way is to be cancelled, None for never.
    """

    over: Callable[[], bool] | None

    @property
    def address(self) -> str: ...

    @property
    def device(self) -> dict[str, object]: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def server(self) -> dict[str, object]: ...

    @property
    def local(self) -> bool: ...

    @property
    def idle_seconds(self) -> float: ...

    def ask(
        self, request: Any, on_progress: Callable[[Progress], None] | None = None, descriptor: int | None = None
    ) -> Any:
        """Return the reply to a request, which may be an Error."""

    def ask_all(self, request_of: Callable[[], tuple[int, Any] | None], answered: Callable[[int, Any], object]) -> None:
        """Ask what request_of gives until that is None; answered(number, reply) hears of each reply."""

    def ping(self) -> None:
        """Return when the server has answered."""

    def pings(self, count: int) -> None:
        """Send so many pings."""

    def refusal(self, reply: Any) -> TargetError:
        """Return the error for a reply which is not the one that was asked for."""

    def hang_up(self) -> None:
        """Wake a thread that waits for a reply; only `close` may follow."""

    def close(self) -> None:
        """End the connection. May be called twice."""

"""Feed hostile input to a server's connection, driven as a daemon drives it, without the daemon."""

from typing import Any

from gputune.server.protocol.connection import Connection, State
from gputune.server.protocol.errors import RemoteProtocolError
from gputune.server.protocol.messages import Error, Hello, Progress, Proof, Welcome

from .hostile import Hostile
from .talk import LIMITS, TOKEN, feed, pair


class Victim:
    """Says hello and welcome, answers or leaves open, says last words."""

    def __init__(self, authenticated: bool) -> None:
        self.faults: list[str] = []  # names of the errors that were sent
        self.requests = 0  # that were let through
        self.connection = pair()[1] if authenticated else Connection("server", "victim", TOKEN)

    def swallow(self, item: Hostile) -> None:
        """Takes an input in, up to the end or to the first fault that ends the connection."""
        try:
            for arrived in feed(self.connection, item.data, item.steps):
                self._answer(arrived)
        except RemoteProtocolError as error:
            self._answer(error.arrived)
            self._refuse(error)
            self.connection.close()

    def _answer(self, arrived: Any) -> None:
        for request_id, message in arrived:
            if isinstance(message, RemoteProtocolError):
                self._refuse(message)
            elif isinstance(message, Hello):
                self.connection.send(self.connection.hello())
            elif isinstance(message, Proof):
                self.connection.send(Welcome(LIMITS, {}, {}))
            else:
                self.requests += 1
                self.connection.send(Progress("queued", 0, 1, ""), request_id)
                if request_id % 2:
                    self.connection.send(Error("unknown_buffer", "as nothing was uploaded"), request_id)

    def _refuse(self, error: RemoteProtocolError) -> None:
        self.faults.append(error.name)
        if self.connection.state is not State.CLOSED:
            self.connection.send(Error(error.name, error.message, error.details), error.request_id)

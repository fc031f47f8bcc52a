"""What follows from two hellos: do the versions go together, do both sides have a token, do they know the same one?"""

from __future__ import annotations

from gputune.server.protocol import authentication
from gputune.server.protocol.authentication import Role
from gputune.server.protocol.errors import LocalProtocolError, RemoteProtocolError
from gputune.server.protocol.messages import Hello


class Handshake:
    """One side's view. `hello` is its own; token: what the other side must know too, None when there is none."""

    def __init__(self, side: Role, protocol: int, software: str, token: bytes | None) -> None:
        self._side = side
        self._peer: Role = "server" if side == "client" else "client"
        self._token = token
        self._said: dict[Role, Hello] = {}
        authenticates = "none" if token is None else "token"
        self.hello = Hello(protocol, software, authentication.fresh_nonce(), authenticates)  # type: ignore[arg-type]
        self.mismatch = ""  # why the two versions do not go together

    def said(self, who: Role, hello: Hello) -> RemoteProtocolError | None:
        """A hello was sent or has arrived. The error that ends the connection when it cannot go on with it; for a
        server, `mismatch` says so when it is about versions, since the client is told by the server's hello."""
        self._said[who] = hello
        if who == self._side:
            return None
        if not hello.software.isprintable():  # it is logged, before anybody has proven anything
            return RemoteProtocolError(
                "bad_message", f"the {self._peer}'s hello does not name its software in one line"
            )
        ours = self.hello
        if hello.protocol != ours.protocol:
            older = self._side if ours.protocol < hello.protocol else self._peer
            self.mismatch = (
                f"the {self._side} ({ours.software}) speaks protocol {ours.protocol}, "
                f"the {self._peer} ({hello.software}) speaks protocol {hello.protocol}; "
                f"update gputune on the {older}'s machine"
            )
            return RemoteProtocolError("version_mismatch", self.mismatch) if self._side == "client" else None
        if not authentication.is_nonce(hello.nonce):
            return RemoteProtocolError("bad_message", f"the {self._peer}'s hello has no challenge of 64 digits")
        return self._tokens(ours.authentication == "token", hello.authentication == "token")

    def mac(self, role: Role) -> str:
        """What `role` has to answer to both hellos. Raises LocalProtocolError when they were not said yet."""
        if len(self._said) < 2:
            raise LocalProtocolError("unexpected_message", "nothing can be proven before both hellos")
        return authentication.mac(self._token, role, self._said["client"], self._said["server"])

    def check(self, got: str) -> None:
        """Raises RemoteProtocolError (authentication_failed) unless `got` is what the other side has to answer."""
        if not authentication.matches(got, self.mac(self._peer)):
            text = f"the {self._peer} does not know the token that the {self._side} has"
            raise RemoteProtocolError("authentication_failed", text)

    def _tokens(self, ours: bool, theirs: bool) -> RemoteProtocolError | None:
        servers, clients = (ours, theirs) if self._side == "server" else (theirs, ours)
        if servers and not clients:
            return RemoteProtocolError(
                "token_required",
                "the server asks for a token and the client has none; pass --token_file or set GPUTUNE_TOKEN",
            )
        if clients and not servers and self._side == "client":
            return RemoteProtocolError(
                "token_unused",
                "the client has a token and the server asks for none, so it may be somebody else's; "
                "start it with the token, or connect without one",
            )
        return None

"""Draw conclusions from two hellos: are the versions compatible, do both sides have a token, what are the keys?"""

from __future__ import annotations

from gputune.server.protocol import authentication
from gputune.server.protocol.authentication import Role
from gputune.server.protocol.errors import RemoteProtocolError
from gputune.server.protocol.frame_mac import FrameMac
from gputune.server.protocol.messages import Hello


class Handshake:
    """Hold one side's view. `hello` is its own; token: what the other side must know too, None when there is none."""

    def __init__(self, side: Role, protocol: int, software: str, token: bytes | None) -> None:
        self._side = side
        self._peer: Role = "server" if side == "client" else "client"
        self._token = token
        self._said: dict[Role, Hello] = {}
        authenticates = "none" if token is None else "token"
        salt = "" if token is None or side == "client" else authentication.SALT
        self.hello = Hello(protocol, software, authentication.fresh_nonce(), authenticates, salt)  # type: ignore[arg-type]
        self.mismatch = ""  # why the two versions do not go together

    def said(self, who: Role, hello: Hello) -> RemoteProtocolError | None:
        """Note a hello that was sent or has arrived. Return the error that ends the connection when it cannot go on
        with it. For a server, `mismatch` says so when it is about versions, since the client is told by the server's
        hello."""
        self._said[who] = hello
        if who == self._side:
            return None
        if not hello.software.isprintable():  # it is logged, before the token is proven
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
        if self._side == "client" and hello.authentication == "token" and not authentication.is_salt(hello.salt):
            return RemoteProtocolError("bad_message", "the server's hello has no salt of 32 digits")
        return self._tokens(ours.authentication == "token", hello.authentication == "token")

    def frame_mac(self, sender: Role) -> FrameMac | None:
        """Return the MACs for the frames that `sender` sends after both hellos; None where there is no token."""
        if self._token is None:
            return None
        key = authentication.frame_key(self._token, sender, self._said["client"], self._said["server"])
        return FrameMac(key)

    def stranger(self) -> RemoteProtocolError:
        """Return the error that ends the connection when the first MAC of the other side is wrong."""
        text = f"the {self._peer} does not know the token that the {self._side} has"
        return RemoteProtocolError("authentication_failed", text)

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
                "the client has a token and the server asks for none, so it may belong to another user; "
                "start it with the token, or connect without one",
            )
        return None

"""Test the proof of a token: which side refuses which, and that keys fit only one connection and direction."""

import hashlib
import hmac
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputune.server.protocol import authentication, codec, framing
from gputune.server.protocol.connection import Connection, State
from gputune.server.protocol.errors import LocalProtocolError, RemoteProtocolError
from gputune.server.protocol.frame_mac import FrameMac
from gputune.server.protocol.messages import PROTOCOL_VERSION, Error, Hello, Ping, Proof, Welcome

from .talk import LIMITS, TOKEN, deliver, pair, raw

OTHER = b"a token of somebody else"
CLIENT = Hello(PROTOCOL_VERSION, "gputune 1", "a" * 64, "token")
SERVER = Hello(PROTOCOL_VERSION, "gputune 2", "b" * 64, "token", authentication.SALT)


def agreed(clients: bytes | None, servers: bytes | None) -> tuple[Connection, Connection]:
    """Two sides after both hellos."""
    client, server = Connection("client", "gputune 1", clients), Connection("server", "gputune 2", servers)
    deliver(client.send(client.hello()), server)
    deliver(server.send(server.hello()), client)
    return client, server


@pytest.mark.parametrize("token", [None, TOKEN])
def test_sides_that_agree_get_to_requests(token: bytes | None) -> None:
    client, server = pair(token=token)
    assert deliver(client.send(Ping(), 1), server) == [(1, Ping())]


def test_a_server_refuses_who_does_not_know_its_token() -> None:
    client, server = agreed(OTHER, TOKEN)
    with pytest.raises(RemoteProtocolError, match="authentication_failed: the client does not know the token"):
        deliver(client.send(Proof()), server)
    with pytest.raises(LocalProtocolError, match="unexpected_message"):
        server.send(Welcome(LIMITS, {"secret": 1}, {}))
    refusal = server.send(Error("authentication_failed", "the client does not know the token"))
    assert server.state is State.CLOSED
    # no MAC of the server: who connects could compare guesses with it
    assert b"".join(refusal) == b"".join(raw(Error("authentication_failed", "the client does not know the token"), 0))
    with pytest.raises(RemoteProtocolError, match="authentication_failed: the server does not know the token"):
        deliver(refusal, client)


def test_a_client_refuses_a_server_that_does_not_know_its_token() -> None:
    client, impostor = agreed(TOKEN, OTHER)
    client.send(Proof())
    mac = FrameMac(authentication.frame_key(OTHER, "server", client.hello(), impostor.hello()))
    welcome = framing.encode(codec.pack(Welcome(LIMITS, {}, {}), 0), mac=mac)
    with pytest.raises(RemoteProtocolError, match="authentication_failed: the server does not know the token"):
        deliver(welcome, client)
    assert client.state is State.CLOSED
    with pytest.raises(LocalProtocolError, match="closed"):
        client.send(Ping(), 1)


def test_a_server_with_a_token_answers_a_client_without_one_by_its_hello_and_an_error() -> None:
    client, server = Connection("client", "gputune 1"), Connection("server", "gputune 2", TOKEN)
    with pytest.raises(RemoteProtocolError, match="token_required") as at_server:
        deliver(client.send(client.hello()), server)
    assert at_server.value.arrived == [(0, client.hello())]
    hello = server.send(server.hello())
    with pytest.raises(RemoteProtocolError, match=r"token_required.*--token_file"):
        deliver(hello, client)
    assert client.state is State.CLOSED
    for data in (raw(Proof(), 0), raw(client.hello(), 0)):
        with pytest.raises(RemoteProtocolError, match="token_required"):
            deliver(data, server)
    server.send(Error("token_required", at_server.value.message))
    assert server.state is State.CLOSED


def test_a_client_with_a_token_keeps_away_from_a_server_without_one() -> None:
    client, server = Connection("client", "gputune 1", TOKEN), Connection("server", "gputune 2")
    deliver(client.send(client.hello()), server)
    with pytest.raises(RemoteProtocolError, match="token_unused"):
        deliver(server.send(server.hello()), client)
    assert client.state is State.CLOSED


@pytest.mark.parametrize("nonce", ["", "a" * 63, "g" * 64, "A" * 64])
def test_a_hello_without_a_challenge_is_refused(nonce: str) -> None:
    with pytest.raises(RemoteProtocolError, match=r"bad_message.*challenge"):
        deliver(raw(replace(CLIENT, nonce=nonce), 0), Connection("server", "s", TOKEN))
    with pytest.raises(RemoteProtocolError, match=r"bad_message.*challenge"):
        deliver(raw(replace(SERVER, nonce=nonce), 0), pair(State.GREETED, TOKEN)[0])


@pytest.mark.parametrize("salt", ["", "a" * 31, "g" * 32])
def test_a_hello_of_a_server_without_a_salt_is_refused(salt: str) -> None:
    with pytest.raises(RemoteProtocolError, match=r"bad_message.*salt"):
        deliver(raw(replace(SERVER, salt=salt), 0), pair(State.GREETED, TOKEN)[0])


def test_what_was_recorded_on_another_connection_proves_nothing() -> None:
    first, its_server = pair(State.AGREED, TOKEN)
    hello, proof = raw(first.hello(), 0), first.send(Proof())
    assert deliver(proof, its_server) == [(0, Proof())]
    server = Connection("server", "gputune 2", TOKEN)
    deliver(hello, server)
    server.send(server.hello())
    with pytest.raises(RemoteProtocolError, match="authentication_failed"):
        deliver(proof, server)


def test_what_is_sent_back_proves_nothing() -> None:
    client, server = pair(State.AGREED, TOKEN)
    proof = client.send(Proof())
    deliver(proof, server)
    with pytest.raises(RemoteProtocolError, match="authentication_failed"):
        deliver(proof, client)


@pytest.mark.parametrize(
    ("side", "change", "name"),
    [
        ("client", {"software": "gputune 0"}, "authentication_failed"),
        ("client", {"nonce": "0" * 64}, "authentication_failed"),
        ("client", {"authentication": "none"}, "token_required"),
        ("client", {"protocol": PROTOCOL_VERSION - 1}, "version_mismatch"),
        ("server", {"software": "gputune 0"}, "authentication_failed"),
        ("server", {"nonce": "0" * 64}, "authentication_failed"),
        ("server", {"salt": "0" * 32}, "authentication_failed"),
        ("server", {"authentication": "none"}, "token_unused"),
        ("server", {"protocol": PROTOCOL_VERSION - 1}, "version_mismatch"),
    ],
)
def test_a_hello_that_is_changed_on_the_way_ends_the_connection(side: str, change: dict[str, Any], name: str) -> None:
    """Nothing can be negotiated away: each side's keys depend on what it said and on what it heard."""
    client, server = Connection("client", "gputune 1", TOKEN), Connection("server", "gputune 2", TOKEN)
    faults = []
    try:
        client.send(client.hello())
        deliver(raw(replace(client.hello(), **(change if side == "client" else {})), 0), server)
        server.send(server.hello())
        if server.mismatch:
            faults.append("version_mismatch")
        deliver(raw(replace(server.hello(), **(change if side == "server" else {})), 0), client)
        deliver(client.send(Proof()), server)
    except (RemoteProtocolError, LocalProtocolError) as error:
        faults.append(error.name)
    assert faults[0] == name
    assert State.READY not in (client.state, server.state)


def test_a_peer_that_sends_no_macs_is_refused() -> None:
    """There is no frame without one behind the hellos, the proof included."""
    client, server = pair(State.AGREED, TOKEN)
    with pytest.raises(RemoteProtocolError, match="bad_frame"):
        deliver(raw(Proof(), 0), server)
    client.send(Proof())
    with pytest.raises(RemoteProtocolError, match="authentication_failed"):
        deliver(raw(Welcome(LIMITS, {}, {}), 0), client)


def test_the_key_is_this_one() -> None:
    """Other programs can make it from this description: a length of four bytes before each text."""
    version, salt = str(PROTOCOL_VERSION), authentication.SALT
    client, server = (version, "gputune 1", "a" * 64, "token", ""), (version, "gputune 2", "b" * 64, "token", salt)
    texts = ("gputune frames 1", "client", *client, *server)
    message = b"".join(len(text).to_bytes(4, "little") + text.encode() for text in texts)
    stretched = hashlib.scrypt(TOKEN, salt=salt.encode(), n=16384, r=8, p=1, dklen=32)
    right = hmac.digest(stretched, message + b"\x01", "sha256")
    assert authentication.frame_key(TOKEN, "client", CLIENT, SERVER) == right


def test_the_key_depends_on_everything() -> None:
    keys = {authentication.frame_key(token, "client", CLIENT, SERVER) for token in (TOKEN, OTHER)}
    keys.add(authentication.frame_key(TOKEN, "server", CLIENT, SERVER))
    changes = (
        {"protocol": PROTOCOL_VERSION + 1},
        {"software": "gputune 10"},
        {"nonce": "c" * 64},
        {"authentication": "none"},
    )
    for change in changes:
        keys.add(authentication.frame_key(TOKEN, "client", replace(CLIENT, **change), SERVER))
        keys.add(authentication.frame_key(TOKEN, "client", CLIENT, replace(SERVER, **change)))
    keys.add(authentication.frame_key(TOKEN, "client", CLIENT, replace(SERVER, salt="0" * 32)))
    moved = replace(CLIENT, software="gputune 1" + "a", nonce="a" * 63)  # the same characters, cut elsewhere
    keys.add(authentication.frame_key(TOKEN, "client", moved, SERVER))
    assert len(keys) == 3 + 2 * len(changes) + 2


def test_a_token_is_stretched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each salt: a client that connects again, and a server with many clients, wait for it once."""
    calls: list[dict[str, Any]] = []
    scrypt = hashlib.scrypt

    def counted(token: bytes, **options: Any) -> bytes:
        calls.append(options)
        return scrypt(token, **options)

    monkeypatch.setattr(hashlib, "scrypt", counted)
    for _ in range(3):
        pair(token=b"a token that is used here only")
    assert len(calls) == 1
    assert calls[0]["n"] * calls[0]["r"] * 128 == 16 << 20  # bytes of memory


def test_macs_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    client, server = pair(token=TOKEN)
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda *given: compared.append(given))
    with pytest.raises(RemoteProtocolError, match="bad_mac"):
        deliver(client.send(Ping(), 1), server)
    assert len(compared) == 1


def test_a_token_is_read_without_white_space(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("  0123456789abcdef\n")
    file.chmod(0o600)
    assert authentication.read_token(file) == authentication.read_token(" 0123456789abcdef ") == b"0123456789abcdef"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_token_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef")
    file.chmod(mode)
    if os.name == "posix":
        with pytest.raises(ValueError, match=f"mode {mode:03o}.*chmod 600"):
            authentication.read_token(file)


def test_what_is_no_token_is_refused_in_one_line(tmp_path: Path) -> None:
    sources: dict[Path | str, str] = {
        "0123456789abcde": "the token has 15 characters; a token has 16 to 4096.*random: make one with python3 -c",
        " " * 20: "the token has 0 characters",
        "x" * 5000: "more than 4096",
        "\udcff" * 20: "not UTF-8",
        tmp_path / "missing": "missing cannot be read: No such file",
        tmp_path: "cannot be read: Is a directory",
    }
    for name, data in (("binary", b"\xff" * 20), ("long", b"x" * 100_000), ("short", b"short\n")):
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o600)
        sources[tmp_path / name] = {"binary": "not UTF-8", "long": "more than 4096", "short": "has 5 characters"}[name]
    for source, says in sources.items():
        with pytest.raises(ValueError, match=says) as caught:
            authentication.read_token(source)
        assert "\n" not in str(caught.value)

"""The proof of a token: who is refused by whom, and that an answer fits one connection and one direction only."""

import hashlib
import hmac
import os
from dataclasses import replace
from pathlib import Path

import pytest

from gputune.server.protocol import authentication
from gputune.server.protocol.connection import Connection, State
from gputune.server.protocol.errors import LocalProtocolError, RemoteProtocolError
from gputune.server.protocol.messages import PROTOCOL_VERSION, Error, Hello, Ping, Proof, Welcome

from .talk import LIMITS, TOKEN, deliver, pair, raw

OTHER = b"a token of somebody else"
CLIENT = Hello(PROTOCOL_VERSION, "gputune 1", "a" * 64, "token")
SERVER = Hello(PROTOCOL_VERSION, "gputune 2", "b" * 64, "token")


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
        deliver(client.send(client.proof()), server)
    with pytest.raises(LocalProtocolError, match="unexpected_message"):
        server.send(server.welcome(LIMITS, {"secret": 1}, {}))
    server.send(Error("authentication_failed", "the client does not know the token"))
    assert server.state is State.CLOSED


def test_a_client_refuses_a_server_that_does_not_know_its_token() -> None:
    client, _ = pair(State.PROVEN)
    impostor = Connection("server", "gputune 2", OTHER)
    deliver(raw(client.hello(), 0), impostor)
    impostor.send(impostor.hello())
    with pytest.raises(RemoteProtocolError, match="authentication_failed: the server does not know the token"):
        deliver(raw(impostor.welcome(LIMITS, {}, {}), 0), client)
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
    for data in (raw(Proof(""), 0), raw(client.hello(), 0)):
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
    with pytest.raises(RemoteProtocolError, match="authentication_failed"):
        deliver(raw(Proof("0" * 64), 0), server)


@pytest.mark.parametrize("nonce", ["", "a" * 63, "g" * 64, "A" * 64])
def test_a_hello_without_a_challenge_is_refused(nonce: str) -> None:
    with pytest.raises(RemoteProtocolError, match=r"bad_message.*challenge"):
        deliver(raw(replace(CLIENT, nonce=nonce), 0), Connection("server", "s", TOKEN))
    with pytest.raises(RemoteProtocolError, match=r"bad_message.*challenge"):
        deliver(raw(replace(SERVER, nonce=nonce), 0), pair(State.GREETED)[0])


def test_what_was_recorded_on_another_connection_proves_nothing() -> None:
    first, its_server = pair(State.AGREED)
    hello, proof = raw(first.hello(), 0), raw(first.proof(), 0)
    assert deliver(proof, its_server) == [(0, first.proof())]
    server = Connection("server", "gputune 2", TOKEN)
    deliver(hello, server)
    server.send(server.hello())
    with pytest.raises(RemoteProtocolError, match="authentication_failed"):
        deliver(proof, server)


def test_what_is_sent_back_proves_nothing() -> None:
    client, server = pair(State.AGREED)
    own = client.proof().mac
    deliver(client.send(client.proof()), server)
    with pytest.raises(RemoteProtocolError, match="authentication_failed"):
        deliver(raw(Welcome(own, LIMITS, {}, {}), 0), client)


def test_nothing_can_be_proven_before_both_hellos() -> None:
    for connection in (*pair(State.START), *pair(State.GREETED)):
        with pytest.raises(LocalProtocolError, match="before both hellos"):
            connection.proof()


def test_the_answer_is_this_one() -> None:
    """Other programs can make it from this description: a length of four bytes before each text."""
    version = str(PROTOCOL_VERSION)
    client, server = (version, "gputune 1", "a" * 64, "token"), (version, "gputune 2", "b" * 64, "token")
    texts = ("gputune proof 1", "client", *client, *server)
    message = b"".join(len(text).to_bytes(4, "little") + text.encode() for text in texts)
    assert authentication.mac(TOKEN, "client", CLIENT, SERVER) == hmac.digest(TOKEN, message, "sha256").hex()
    assert authentication.mac(None, "client", CLIENT, SERVER) == ""
    assert hashlib.sha256().digest_size * 2 == 64


def test_the_answer_depends_on_everything() -> None:
    answers = {authentication.mac(TOKEN, "client", CLIENT, SERVER), authentication.mac(OTHER, "client", CLIENT, SERVER)}
    answers.add(authentication.mac(TOKEN, "server", CLIENT, SERVER))
    answers.add(authentication.mac(TOKEN, "client", SERVER, CLIENT))
    later = {"protocol": PROTOCOL_VERSION + 1}
    changes = (later, {"software": "gputune 10"}, {"nonce": "c" * 64}, {"authentication": "none"})
    for change in changes:
        answers.add(authentication.mac(TOKEN, "client", replace(CLIENT, **change), SERVER))
        answers.add(authentication.mac(TOKEN, "client", CLIENT, replace(SERVER, **change)))
    moved = replace(CLIENT, software="gputune 1" + "a", nonce="a" * 63)  # the same characters, cut elsewhere
    answers.add(authentication.mac(TOKEN, "client", moved, SERVER))
    assert len(answers) == 4 + 2 * len(changes) + 1


def test_answers_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert not authentication.matches("täuschung", "ab")
    assert compared == [("täuschung".encode(), b"ab")]


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
        "0123456789abcde": "the token has 15 characters; a token has 16 to 4096",
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

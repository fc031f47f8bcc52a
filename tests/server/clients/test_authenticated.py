"""Test which clients are let in: by a token in both directions, over TLS, and when the server may listen without."""

import os
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputune.server.clients.authentication import Authentication, server_context
from gputune.server.clients.listener import Exposed, Listener
from gputune.server.protocol.connection import Connection
from gputune.server.protocol.errors import RemoteProtocolError
from gputune.server.protocol.frame_mac import FrameMac
from gputune.server.protocol.messages import (
    PROTOCOL_VERSION,
    DownloadBuffer,
    Error,
    Hello,
    Ping,
    Pong,
    Proof,
    UploadBuffer,
)
from stress.server import wire
from tests.server.conftest import batch_of, serving
from tests.server.peer import Peer, converse, frame
from tests.server.workers.fake_worker import works
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.slow  # each starts processes

Make = Callable[..., Any]
TOKEN = "correct horse battery staple"


# --- the token --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[Any]:
    with serving(worker=works, authentication=Authentication(TOKEN.encode())) as (_, (host, port)):
        yield SimpleNamespace(host=host, port=port, peer=partial(Peer, (host, port)))


def test_who_knows_the_token_is_let_in(guarded: Any) -> None:
    with guarded.peer(token=TOKEN.encode()) as peer:
        assert bytes(peer.ask(DownloadBuffer(peer.upload(b"secret"))).data) == b"secret"


@pytest.mark.parametrize(
    ("authentication", "proof", "name"),
    [
        ("none", (), "token_required"),
        ("token", (wire.frame(Proof(), mac=FrameMac(bytes(32))),), "authentication_failed"),
        ("token", (frame(Proof()),), "bad_frame"),
    ],
)
def test_who_does_not_gets_the_hello_and_a_reason(
    guarded: Any, authentication: Any, proof: tuple[bytes, ...], name: str
) -> None:
    answers = converse(guarded, frame(Hello(PROTOCOL_VERSION, "liar", "0" * 64, authentication)), *proof)
    assert [type(answer) for answer in answers] == [Hello, Error]
    assert answers[1].name == name
    assert "null" not in answers[1].message


def test_nothing_can_be_asked_before_the_proof(guarded: Any) -> None:
    for request in (Ping(), UploadBuffer(bytes(100)), UploadBuffer(bytes(1 << 20))):
        with socket.create_connection((guarded.host, guarded.port), timeout=PATIENCE_SECONDS) as sock:
            connection = Connection("client", "thief", TOKEN.encode())
            sock.sendall(b"".join(connection.send(connection.hello())))
            assert len(connection.filled(sock.recv_into(connection.space()))) == 1
            connection.send(Proof())  # which stays here
            sock.sendall(wire.frame(request, 1, connection._sending)[: 8 << 10])
            with pytest.raises(RemoteProtocolError, match="authentication_failed"):
                connection.filled(sock.recv_into(connection.space()))


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        ((), {"GPUTUNE_TOKEN": ""}, "0 characters"),
        ((), {"GPUTUNE_TOKEN": "short"}, "5 characters"),
        (("--token_file", "/no/such/file"), {}, "/no/such/file cannot be read"),
        (("--host", "0.0.0.0"), {}, "give a secret with --token_file or GPUTUNE_TOKEN"),
        (("--host", "::"), {}, "give a secret with --token_file or GPUTUNE_TOKEN"),
        (("--tls_key", "key"), {}, "--tls_key needs --tls_cert"),
        (("--tls_ca", "ca"), {}, "--tls_ca needs --tls_cert"),
        (("--tls_cert", "/no/such/file"), {}, "/no/such/file cannot be used as certificate and key"),
    ],
)
def test_what_would_not_be_safe_is_refused_in_one_line(
    arguments: tuple[str, ...],
    environment: dict[str, str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    failing_start: Make,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    code, line, said_before = failing_start("--port", "0", "--device", "null", *arguments)
    assert (code, said_before) == (2, "")  # before anything else, also before the device is looked for
    assert says in line


def test_an_address_is_bound_only_when_it_is_protected() -> None:
    with pytest.raises(Exposed, match=r"--host 0\.0\.0\.0 can be reached from the network"):
        Listener("0.0.0.0", 0)
    Listener("0.0.0.0", 0, protected=True).socket.close()
    Listener("localhost", 0).socket.close()


# --- TLS --------------------------------------------------------------------------------------------------


class Authority:
    """Certificates made by the openssl command: an authority, and what it signs."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.certificate, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        self._openssl("req", "-x509", *_NEW_KEY, "-keyout", self.key, "-out", self.certificate, "-subj", f"/CN={name}")

    def sign(self, name: str) -> tuple[Path, Path]:
        """(certificate, key) of a server or a client at 127.0.0.1."""
        request, certificate, key = (self.folder / f"{name}.{end}" for end in ("csr", "pem", "key"))
        extensions = self.folder / f"{name}.extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n")
        self._openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        signing = ("-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", "2")
        self._openssl("x509", "-req", "-in", request, "-out", certificate, *signing, "-extfile", extensions)
        return certificate, key

    def context(self, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
        """What a client uses that trusts this authority."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        return context

    def _openssl(self, *arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=self.folder, timeout=30)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("theirs"), "theirs")


def test_handshakes_that_never_end_keep_nobody_out(ours: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputune.server.clients.admission.SILENT_AT_MOST", 2)
    monkeypatch.setattr("gputune.server.clients.admission.UNPROVEN_AT_MOST", 2)
    authentication = Authentication(TOKEN.encode(), server_context(*ours.sign("server"), None))
    with serving(worker=works, authentication=authentication) as (daemon, address), ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(address, timeout=PATIENCE_SECONDS)) for _ in range(20)
        ]
        with Peer(address, TOKEN.encode(), ours.context()) as peer:
            assert peer.ask(Ping()) == Pong()
            for sock in strangers[:16]:
                with suppress(ConnectionError):
                    assert sock.recv(1) == b""
            assert daemon._admission.standing <= 4


def test_requests_and_replies_travel_over_tls(ours: Authority) -> None:
    authentication = Authentication(TOKEN.encode(), server_context(*ours.sign("server"), None))
    with (
        serving(worker=works, authentication=authentication) as (_, address),
        Peer(address, TOKEN.encode(), ours.context()) as peer,
    ):
        large = os.urandom(5 << 20)
        handle = peer.upload(large)
        assert bytes(peer.ask(DownloadBuffer(handle)).data) == large
        data = peer.upload(bytes(64))
        assert peer.ask(batch_of(data, data)).best == 0
        numbers = [peer.send(DownloadBuffer(handle)) for _ in range(8)]  # more than the buffers between us hold
        assert all(bytes(peer.reply(number).data) == large for number in numbers)


def test_a_client_that_does_not_trust_the_server_keeps_away(
    ours: Authority, theirs: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    authentication = Authentication(tls=server_context(*ours.sign("server"), None))
    with serving(worker=works, authentication=authentication) as (_, address):
        with pytest.raises(ssl.SSLCertVerificationError):
            Peer(address, tls=theirs.context())
        with pytest.raises((OSError, EOFError, RemoteProtocolError)):
            Peer(address)  # no TLS at all
        with Peer(address, tls=ours.context()) as peer:
            assert peer.ask(Ping()) == Pong()
    assert caplog.text == ""  # handshakes cannot fill the log


@pytest.mark.own("its options name a token, certificates and the network")
def test_a_server_with_a_token_may_listen_to_the_network_and_asks_clients_for_a_certificate(
    launch_server: Make, ours: Authority, theirs: Authority
) -> None:
    certificate, key = ours.sign("server")
    files = ("--tls_cert", str(certificate), "--tls_key", str(key), "--tls_ca", str(ours.certificate))
    server = launch_server("--host", "0.0.0.0", *files, GPUTUNE_TOKEN=TOKEN)
    peer = partial(Peer, ("127.0.0.1", server.port), token=TOKEN.encode())
    for context in (ours.context(), ours.context(*theirs.sign("stranger"))):
        with pytest.raises((OSError, EOFError)):  # in TLS 1.3 the client hears of it when it reads
            peer(tls=context)
    with peer(tls=ours.context(*ours.sign("friend"))) as friend:
        assert friend.ask(Ping()) == Pong()
    (worker,) = server.children()
    assert TOKEN.encode() not in Path(f"/proc/{worker}/environ").read_bytes(), "no child sees the token"


def test_files_that_do_not_go_together_are_named(ours: Authority, theirs: Authority, tmp_path: Path) -> None:
    certificate, key = ours.sign("server")
    _, other_key = theirs.sign("server")
    with pytest.raises(
        ValueError, match=rf"{certificate} and {other_key} cannot be used as certificate and key.*mismatch"
    ):
        server_context(certificate, other_key, None)
    with pytest.raises(ValueError, match=rf"{key} has no certificates to check clients with"):
        server_context(certificate, key, key)
    encrypted = tmp_path / "encrypted.key"
    command = ["openssl", "pkey", "-in", str(key), "-aes256", "-passout", "pass:secret", "-out", str(encrypted)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    with pytest.raises(ValueError, match="the key is encrypted"):
        server_context(certificate, encrypted, None)

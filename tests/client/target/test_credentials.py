"""Test tokens and TLS from the host's side: what is read, what is proven, and what a user sees if it does not fit."""

import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gputune.client.errors import ConfigError, TargetError
from gputune.client.target.client import TargetClient
from gputune.client.target.transport.credentials import Credentials, read_credentials
from gputune.client.target.transport.target_connection import probe
from gputune.server.protocol.messages import Hello
from tests.client.fake_target import fake_target

TOKEN = "correct horse battery staple"


def connect(target: Any, **credentials: Any) -> TargetClient:
    return TargetClient.connect("127.0.0.1", target.port, Credentials(**credentials))


class TestTokens:
    def test_a_shared_token_opens_the_session(self) -> None:
        with fake_target(token=TOKEN) as target, connect(target, token=TOKEN) as client:
            client.ping()

    @pytest.mark.parametrize(
        ("theirs", "ours", "name", "words"),
        [
            (TOKEN, None, "token_required", "give the one that it was started with, by --token_file or GPUTUNE_TOKEN"),
            (None, TOKEN, "token_unused", "drop --token_file and GPUTUNE_TOKEN here"),
            (TOKEN, TOKEN + "!", "authentication_failed", "the tokens of the two sides differ"),
        ],
    )
    def test_another_ends_it_with_what_to_do(self, theirs: str | None, ours: str | None, name: str, words: str) -> None:
        with fake_target(token=theirs) as target:
            with pytest.raises(TargetError, match=words) as caught:
                connect(target, token=ours)
            assert (caught.value.name, caught.value.exit_code) == (name, 4)
            assert target.address in str(caught.value)
            if name != "authentication_failed":
                assert {type(message) for _, message in target.heard} == {Hello}, "nothing is sent after the hello"

    def test_a_probe_needs_none_and_can_ask_whether_it_fits(self) -> None:
        with fake_target(token=TOKEN) as target:
            assert probe("127.0.0.1", target.port, 5) == "gputune fake"
            assert probe("127.0.0.1", target.port, 5, Credentials(token=TOKEN)) == "gputune fake"
            with pytest.raises(TargetError, match="token_required"):
                probe("127.0.0.1", target.port, 5, Credentials())

    def test_a_file_comes_before_the_variable(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.touch(0o600)
        file.write_text(f"{TOKEN}\n", encoding="utf-8")
        read = read_credentials({"GPUTUNE_TOKEN": "another long enough token"}, file)
        assert (read.token, read.options) == (TOKEN, ("--token_file",))
        assert TOKEN not in repr(read)
        assert read_credentials({"GPUTUNE_TOKEN": f" {TOKEN} "}) == Credentials(TOKEN)
        assert read_credentials({"GPUTUNE_TOKEN": " "}) == Credentials()

    def test_bad_ones_are_one_clear_line(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"^GPUTUNE_TOKEN: .* has 5 characters"):
            read_credentials({"GPUTUNE_TOKEN": "short"})
        with pytest.raises(ConfigError, match=r"^--token_file: .*nowhere cannot be read: No such file"):
            read_credentials({}, tmp_path / "nowhere")
        open_to_all = tmp_path / "open"
        open_to_all.write_text(TOKEN, encoding="utf-8")
        open_to_all.chmod(0o644)
        with pytest.raises(ConfigError, match="chmod 600"):
            read_credentials({}, open_to_all)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates that sign themselves: `server` for 127.0.0.1, `client`, and `elsewhere` for another host."""
    folder = tmp_path_factory.mktemp("certificates")
    for name, place in (("server", "IP:127.0.0.1"), ("client", "DNS:client"), ("elsewhere", "DNS:elsewhere")):
        command = (
            f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} "
            f"-addext subjectAltName={place} -keyout {name}.key -out {name}.pem"
        )
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder


def server_context(folder: Path, name: str = "server", asks: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    if asks:
        context.load_verify_locations(folder / "client.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class TestTls:
    def test_both_sides_show_certificates_and_large_data_comes_through(self, certificates: Path) -> None:
        ca, cert, key = (certificates / name for name in ("server.pem", "client.pem", "client.key"))
        credentials = read_credentials({"GPUTUNE_TOKEN": TOKEN}, None, ca, cert, key)
        assert credentials.options == ("--tls_ca", "--tls_cert", "--tls_key")
        with (
            fake_target(token=TOKEN, tls=server_context(certificates, asks=True)) as target,
            TargetClient.connect("127.0.0.1", target.port, credentials) as client,
        ):
            client.upload(bytes(3_000_001))
            client.pings(100)
        assert len(target.requests(1)[0].data) == 3_000_001

    @pytest.mark.parametrize(
        ("server", "ca", "words"),
        [
            ("server", "client", "--tls_ca must name the certificate that signed it"),
            ("elsewhere", "elsewhere", "it must be made for 127.0.0.1"),
        ],
    )
    def test_a_certificate_must_be_signed_and_be_for_this_host(
        self, certificates: Path, server: str, ca: str, words: str
    ) -> None:
        credentials = read_credentials({}, None, certificates / f"{ca}.pem")
        with (
            fake_target(tls=server_context(certificates, server)) as target,
            pytest.raises(TargetError, match=words) as caught,
        ):
            TargetClient.connect("127.0.0.1", target.port, credentials)
        assert (caught.value.name, caught.value.exit_code) == ("tls_failed", 4)

    def test_sides_that_do_not_both_use_it_say_so(self, certificates: Path) -> None:
        with fake_target() as target, pytest.raises(TargetError, match=r"drop --tls_ca here \[tls_failed\]"):
            TargetClient.connect("127.0.0.1", target.port, read_credentials({}, None, certificates / "server.pem"))
        with (
            fake_target(tls=server_context(certificates)) as target,
            pytest.raises(TargetError, match=r"--tls_cert needs --tls_ca here \[not_a_target_server\]"),
        ):
            TargetClient.connect("127.0.0.1", target.port)

    def test_a_server_that_asks_for_a_certificate_says_so(self, certificates: Path) -> None:
        with (
            fake_target(tls=server_context(certificates, asks=True)) as target,
            pytest.raises(TargetError, match="--tls_cert and --tls_key"),
        ):
            TargetClient.connect("127.0.0.1", target.port, read_credentials({}, None, certificates / "server.pem"))

    def test_options_that_cannot_be_used_are_one_clear_line(self, certificates: Path, tmp_path: Path) -> None:
        ca, cert, key = (certificates / name for name in ("server.pem", "client.pem", "client.key"))
        with pytest.raises(ConfigError, match="--tls_cert needs --tls_ca"):
            read_credentials({}, None, None, cert, key)
        with pytest.raises(ConfigError, match="give both or none"):
            read_credentials({}, None, ca, cert)
        with pytest.raises(ConfigError, match=r"--tls_ca .*nowhere cannot be read: No such file"):
            read_credentials({}, None, tmp_path / "nowhere")
        with pytest.raises(ConfigError, match=r"--tls_cert .* not made for each other"):
            read_credentials({}, None, ca, cert, certificates / "server.key")
        with pytest.raises(ConfigError, match=r"--tls_ca .*: not in PEM form"):
            read_credentials({}, None, key)

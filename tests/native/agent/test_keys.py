"""Test the agent's tokens, nonces and keys against Python's, and a whole handshake with a Python client."""

import ctypes
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gputune.runtime.native.declarations import MESSAGE_BYTES
from gputune.server.protocol import authentication, codec
from gputune.server.protocol.connection import HANDSHAKE_LIMITS, Connection, State
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import FROM_CLIENT, PROTOCOL_VERSION, Error, Hello, Ping, Pong, Proof, Welcome

from .library import Reader, Refused, Writer, library

pytestmark = pytest.mark.usefixtures("c_compiler")

TOKEN = b"a token of the tests"
KINDS = codec.registry((*FROM_CLIENT, Hello, Proof))


class CToken(ctypes.Structure):
    _fields_ = (("nbytes", ctypes.c_size_t), ("bytes", ctypes.c_uint8 * (4 * authentication.MOST_CHARACTERS + 1)))


class CMessage(ctypes.Structure):
    _fields_ = (("code", ctypes.c_int), ("message", ctypes.c_char * MESSAGE_BYTES))


class CHello(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_char_p) for name in ("protocol", "software", "nonce", "authentication", "salt"))

    @classmethod
    def of(cls, hello: Hello) -> "CHello":
        texts = str(hello.protocol), hello.software, hello.nonce, hello.authentication, hello.salt
        return cls(*(text.encode() for text in texts))


def token_of(name: str, source: object) -> bytes:
    """Return the token that a function of the agent reads. Raises ValueError with what it says."""
    token, error = CToken(), CMessage()
    if getattr(library(), f"token_of_{name}")(ctypes.byref(token), source, ctypes.byref(error)):
        raise ValueError(error.message.decode(errors="replace"))
    return bytes(token.bytes[: token.nbytes])


def written(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "token"
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    return path


# --- tokens -----------------------------------------------------------------------------------------------------------

SPACES = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens")


@given(
    st.text(SPACES, max_size=4),
    st.text(max_size=30) | st.binary(max_size=30),
    st.text(SPACES, max_size=4),
)
@example("", "é" * 16, "\n")
@example("", "0123456789abcde", " ")
@example(SPACES, "0123456 \0 89abcdef\U0001f600", SPACES)
@example("", "x" * 4096, "\n" * 300)
@example("", "x" * 4097, "")
@example("", "\U0001f600" * 4096, " ")
@example("", "\U0001f600" * 4097, "")
def test_a_token_file_is_read_as_python_reads_it(folder: Path, before: str, token: str | bytes, after: str) -> None:
    content = token if isinstance(token, bytes) else token.encode()
    path = written(folder, before.encode() + content + after.encode())
    try:
        right, why = authentication.read_token(path), ""
    except ValueError as error:
        right, why = None, str(error)
    if right is not None:
        assert token_of("file", os.fsencode(path)) == right
    else:
        with pytest.raises(ValueError) as refused:
            token_of("file", os.fsencode(path))
        assert str(refused.value) == why


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o666, 0o4644])
def test_a_token_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, b"0123456789abcdef", mode)
    with pytest.raises(ValueError, match=f"{path} can be used by others .mode {mode:03o}.*; run chmod 600"):
        token_of("file", os.fsencode(path))


def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    (tmp_path / "folder").mkdir(mode=0o700)
    for name, why in (("missing", "No such file"), ("folder", "Is a directory"), ("x" * 1000, "File name too long")):
        with pytest.raises(ValueError, match=f"^the token file .*{why}") as refused:
            token_of("file", os.fsencode(tmp_path / name))
        assert "\n" not in str(refused.value)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_token_is_the_first_line_of_a_descriptor() -> None:
    reading, writing = os.pipe()
    os.write(writing, b" 0123456789abcdef \nwhat follows\nshort\n")
    assert token_of("line", reading) == b"0123456789abcdef"
    assert os.read(reading, 13) == b"what follows\n"
    with pytest.raises(ValueError, match="the token has 5 characters; a token has 16 to 4096"):
        token_of("line", reading)
    os.write(writing, b"0123456789abcdef")
    os.close(writing)
    assert token_of("line", reading) == b"0123456789abcdef"
    with pytest.raises(ValueError, match="the token has 0 characters"):
        token_of("line", reading)
    os.close(reading)
    with pytest.raises(ValueError, match="the token cannot be read: Bad file descriptor"):
        token_of("line", reading)


def test_a_token_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    find = ctypes.CDLL(None).getenv
    find.restype = ctypes.c_char_p
    for value, right in ((" 0123456789abcdef\n", b"0123456789abcdef"), ("x" * 20_000, None), ("short", None)):
        monkeypatch.setenv("GPUTUNE_TEST_TOKEN", value)
        assert find(b"GPUTUNE_TEST_TOKEN") == value.encode()
        if right is None:
            with pytest.raises(ValueError, match=r"^GPUTUNE_TEST_TOKEN has .* characters"):
                token_of("variable", b"GPUTUNE_TEST_TOKEN")
        else:
            assert token_of("variable", b"GPUTUNE_TEST_TOKEN") == right
        assert find(b"GPUTUNE_TEST_TOKEN") is None


# --- nonces and keys --------------------------------------------------------------------------------------------------


def fresh_digits(digits: int) -> str:
    text, error = ctypes.create_string_buffer(b"?" * 80), CMessage()
    if library().fresh_digits(text, ctypes.c_size_t(digits), ctypes.byref(error)):
        raise OSError(error.message.decode())
    assert text.raw[digits:] == b"\0" + b"?" * (79 - digits) + b"\0"
    return text.value.decode()


def test_nonces_and_salts_are_random_digits() -> None:
    found = [fresh_digits(64) for _ in range(40)]
    assert all(map(authentication.is_nonce, found)) and authentication.is_salt(fresh_digits(32))
    assert len(set(found)) == 40
    for place in range(64):
        assert len({nonce[place] for nonce in found}) > 8  # chance would need one in many millions


def test_without_random_numbers_there_is_no_nonce() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    library()
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="/dev/urandom cannot be read"):
            fresh_digits(64)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    "text", ["", "a" * 63, "a" * 65, "A" * 64, "g" + "a" * 63, "a" * 63 + " ", "0123456789abcdef" * 4]
)
def test_what_is_no_nonce_is_known(text: str) -> None:
    assert library().are_digits(text.encode(), ctypes.c_size_t(64)) == authentication.is_nonce(text)


def stretched(token: bytes, salt: str) -> bytes:
    own, key, error = CToken(len(token)), ctypes.create_string_buffer(32), CMessage()
    ctypes.memmove(own.bytes, token, len(token))
    if library().stretch_token(ctypes.byref(own), salt.encode(), key, ctypes.byref(error)):
        raise MemoryError(error.message.decode())
    return key.raw


def frame_key(token_key: bytes, side: str, client: Hello, server: Hello) -> bytes:
    key = ctypes.create_string_buffer(32)
    library().frame_key(token_key, side.encode(), ctypes.byref(CHello.of(client)), ctypes.byref(CHello.of(server)), key)
    return key.raw


CLIENT = Hello(PROTOCOL_VERSION, "gputune 1", "a" * 64, "token")
SERVER = Hello(PROTOCOL_VERSION, "gputune 2", "b" * 64, "token", "5" * 32)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=200)


@given(names, names, st.integers(0, 2**31 - 1))
def test_keys_are_those_of_python(client_name: str, server_name: str, protocol: int) -> None:
    client = replace(CLIENT, software=client_name, protocol=protocol)
    server = replace(SERVER, software=server_name, authentication="none")
    token_key = authentication.stretched(TOKEN, server.salt)
    for side in ("client", "server"):
        assert frame_key(token_key, side, client, server) == authentication.frame_key(TOKEN, side, client, server)


def test_a_token_is_stretched_as_by_python() -> None:
    assert stretched(TOKEN, SERVER.salt) == authentication.stretched(TOKEN, SERVER.salt)
    library().refuse_memory(True)
    try:
        with pytest.raises(MemoryError, match="not enough memory"):
            stretched(TOKEN, SERVER.salt)
    finally:
        library().refuse_memory(False)


# --- a handshake ------------------------------------------------------------------------------------------------------


@contextmanager
def agreed(token: bytes) -> Iterator[tuple[Connection, socket.socket, Reader, Writer]]:
    """Give a client with a token, its socket, and the agent's reader and writer after both hellos."""
    client, (here, there) = Connection("client", "gputune 1", token), socket.socketpair()
    with here, there, Reader(HANDSHAKE_LIMITS) as reader, Writer(there.fileno()) as writer:
        here.sendall(b"".join(client.send(client.hello())))
        arrived = reader.receive(there.fileno())
        assert arrived is not None
        _, hello = codec.unpack(*arrived, KINDS)  # type: ignore[arg-type]
        own = Hello(PROTOCOL_VERSION, "gputune-agent 1", fresh_digits(64), "token", fresh_digits(32))
        writer.send(codec.pack(own, 0).header)
        assert client.filled(here.recv_into(client.space())) == [(0, own)]
        token_key = stretched(TOKEN, own.salt)
        reader.change(HANDSHAKE_LIMITS, frame_key(token_key, "client", hello, own))
        here.sendall(b"".join(client.send(Proof())))
        writer.change(frame_key(token_key, "server", hello, own))
        yield client, here, reader, writer


def test_a_client_and_the_agent_agree() -> None:
    with agreed(TOKEN) as (client, here, reader, writer):
        proof = reader.receive(writer.descriptor)
        assert proof is not None and codec.unpack(*proof, KINDS) == (0, Proof())  # type: ignore[arg-type]
        reader.change(Limits())
        welcome = Welcome(Limits(), {}, {})
        writer.send(codec.pack(welcome, 0).header)
        assert client.filled(here.recv_into(client.space())) == [(0, welcome)]
        assert client.state is State.READY
        for number in (1, 2):
            here.sendall(b"".join(client.send(Ping(), number)))
            ping = reader.receive(writer.descriptor)
            assert ping is not None and codec.unpack(*ping, KINDS) == (number, Ping())  # type: ignore[arg-type]
            writer.send(codec.pack(Pong(), number).header)
            assert client.filled(here.recv_into(client.space())) == [(number, Pong())]


def test_a_client_with_another_token_is_refused() -> None:
    with agreed(b"a token of somebody else") as (client, here, reader, writer):
        with pytest.raises(Refused, match="bad_mac"):
            reader.receive(writer.descriptor)
        writer.change(None)
        writer.send(codec.pack(Error("authentication_failed", "the client does not know the token"), 0).header)
        with pytest.raises(Exception, match="authentication_failed"):
            client.filled(here.recv_into(client.space()))

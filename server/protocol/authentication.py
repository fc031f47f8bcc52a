"""How the two sides of a connection show each other that they know the token, without sending it.

Each side's Hello carries a challenge, 64 fresh random digits. Proof (from the client) and Welcome (from the
server) answer both at once with an HMAC-SHA256 under the token of who is speaking and of both hellos, so an
answer fits one connection and one direction only: what was recorded on another connection, or is sent back to
where it came from, proves nothing. Where neither side has a token, both answers are empty.

This says who is there, not that nobody listens: against that there is TLS.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Literal

from gputune.server.protocol.messages import Hello

Role = Literal["client", "server"]

LEAST_CHARACTERS = 16
MOST_CHARACTERS = 4096
_NONCE_DIGITS = 64
_LABEL = "gputune proof 1"


def fresh_nonce() -> str:
    """A challenge that was never used before: 64 hexadecimal digits."""
    return secrets.token_hex(_NONCE_DIGITS // 2)


def is_nonce(text: str) -> bool:
    """Whether a challenge from outside has the form of one."""
    return len(text) == _NONCE_DIGITS and set(text) <= set("0123456789abcdef")


def mac(token: bytes | None, role: Role, client: Hello, server: Hello) -> str:
    """What `role` answers to these hellos: 64 hexadecimal digits, or "" without a token."""
    if token is None:
        return ""
    message = bytearray()
    for text in (_LABEL, role, *_texts(client), *_texts(server)):
        encoded = text.encode()
        message += len(encoded).to_bytes(4, "little") + encoded  # a length before each text: no two sets look alike
    return hmac.new(token, message, "sha256").hexdigest()


def matches(got: str, right: str) -> bool:
    """Whether `got` is the right answer, in a time that does not say how much of it is."""
    return hmac.compare_digest(got.encode(), right.encode())


def read_token(source: Path | str) -> bytes:
    """The token in a file (Path) or in a text, without white space around it.

    Raises ValueError with one line: what is wrong with which file or text, and what to do.
    """
    where = f"the token file {source}" if isinstance(source, Path) else "the token"
    text = _contents(source, where).strip() if isinstance(source, Path) else source.strip()
    if not LEAST_CHARACTERS <= len(text) <= MOST_CHARACTERS:
        raise ValueError(
            f"{where} has {'more than ' if len(text) > MOST_CHARACTERS else ''}{min(len(text), MOST_CHARACTERS)} "
            f"characters; a token has {LEAST_CHARACTERS} to {MOST_CHARACTERS}, all of them unguessable"
        )
    try:
        return text.encode()
    except UnicodeEncodeError:  # from an environment variable that is not UTF-8
        raise ValueError(f"{where} is not UTF-8 text") from None


def _texts(hello: Hello) -> tuple[str, ...]:
    return str(hello.protocol), hello.software, hello.nonce, hello.authentication


def _contents(path: Path, where: str) -> str:
    try:
        with path.open("rb") as file:
            # asked of the open file, so that nobody can exchange it between the question and the reading
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if os.name == "posix" and mode & 0o077:
                raise ValueError(f"{where} can be used by others (mode {mode:03o}); run chmod 600 {path}")
            return file.read(4 * MOST_CHARACTERS + 1).decode()
    except OSError as error:
        raise ValueError(f"{where} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not UTF-8 text") from None

"""Read the token, and derive the keys that two sides with the same token have for a connection.

    stretched token = scrypt(token, salt of the server's hello)        N = 2^14, r = 8, p = 1: 16 MiB, RFC 7914
    key of a side   = HKDF-Expand(stretched token, side + both hellos)             SHA-256, 32 bytes, RFC 5869

Every frame after the two hellos carries a MAC under the key of the side that sends it (frame_mac.py). The first frame
of each side shows that the side knows the token. No frame can be omitted, changed or taken from elsewhere: each hello
holds a fresh challenge of 64 random digits, and the keys depend on all that both say, versions included.

The client's first frame comes before the server's, as in SCRAM (RFC 5802), and a server sends its refusal without a
MAC. Who connects therefore learns nothing to compare with a guess at the token. Who reads along does, as does a false
server: there each guess costs one scrypt. Frames can be read on the way, since they are not encrypted; use TLS against
that.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from functools import lru_cache
from pathlib import Path
from typing import Literal

from gputune.server.protocol.messages import Hello

Role = Literal["client", "server"]

LEAST_CHARACTERS = 16
MOST_CHARACTERS = 4096
GOOD_TOKEN = "make one with python3 -c 'import secrets; print(secrets.token_hex(32))'"
SALT = secrets.token_hex(16)
"""Of this process when it is a server: what is stretched for it is of no use at another one."""
_NONCE_DIGITS = 64
_LABEL = "gputune frames 1"
_SCRYPT = {"n": 1 << 14, "r": 8, "p": 1, "maxmem": 32 << 20, "dklen": 32}
_STRETCHED = 8  # tokens and salts of a process whose keys are kept; reconnecting costs nothing then


def fresh_nonce() -> str:
    """Return a challenge that was never used before: 64 hexadecimal digits."""
    return secrets.token_hex(_NONCE_DIGITS // 2)


def is_nonce(text: str) -> bool:
    """Return whether a challenge from outside has the form of one."""
    return len(text) == _NONCE_DIGITS and _is_hexadecimal(text)


def is_salt(text: str) -> bool:
    """Return whether a salt from outside has the form of one."""
    return len(text) == len(SALT) and _is_hexadecimal(text)


@lru_cache(_STRETCHED)
def stretched(token: bytes, salt: str) -> bytes:
    """Return the token as a key of 32 bytes, at such a cost that guesses are slow: about 50 ms and 16 MiB."""
    return hashlib.scrypt(token, salt=salt.encode(), **_SCRYPT)


def frame_key(token: bytes, side: Role, client: Hello, server: Hello) -> bytes:
    """Return the key for the MACs of the frames that `side` sends after these hellos: 32 bytes."""
    message = bytearray()
    for text in (_LABEL, side, *_texts(client), *_texts(server)):
        encoded = text.encode()
        message += len(encoded).to_bytes(4, "little") + encoded  # a length before each text: no two sets look alike
    return hmac.digest(stretched(token, server.salt), message + b"\x01", "sha256")


def read_token(source: Path | str) -> bytes:
    """Return the token in a file (Path) or in a text, without white space around it.

    Raises ValueError with one line: what is wrong with which file or text, and what to do.
    """
    where = f"the token file {source}" if isinstance(source, Path) else "the token"
    text = _contents(source, where).strip() if isinstance(source, Path) else source.strip()
    if not LEAST_CHARACTERS <= len(text) <= MOST_CHARACTERS:
        raise ValueError(
            f"{where} has {'more than ' if len(text) > MOST_CHARACTERS else ''}{min(len(text), MOST_CHARACTERS)} "
            f"characters; a token has {LEAST_CHARACTERS} to {MOST_CHARACTERS}, all of them random: {GOOD_TOKEN}"
        )
    try:
        return text.encode()
    except UnicodeEncodeError:  # from an environment variable that is not UTF-8
        raise ValueError(f"{where} is not UTF-8 text") from None


def _texts(hello: Hello) -> tuple[str, ...]:
    return str(hello.protocol), hello.software, hello.nonce, hello.authentication, hello.salt


def _is_hexadecimal(text: str) -> bool:
    return set(text) <= set("0123456789abcdef")


def _contents(path: Path, where: str) -> str:
    try:
        with path.open("rb") as file:
            # asked of the open file, so that it cannot be exchanged between the question and the reading
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if os.name == "posix" and mode & 0o077:
                raise ValueError(f"{where} can be used by others (mode {mode:03o}); run chmod 600 {path}")
            return file.read(4 * MOST_CHARACTERS + 1).decode()
    except OSError as error:
        raise ValueError(f"{where} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not UTF-8 text") from None

"""Read or create this installation's secret, with which performance caches protect compiled programs
(cache/programs.py).

The secret is in the user's data folder and is created when it is first needed. SECRET_FILE can name another file, which
is never created, so that machines of a farm or a CI can share a secret. Another user who knows the secret could make
programs that run as this user. A file that another user owns, can read or can write is therefore refused.
"""

import errno
import logging
import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from gputune.cache import CacheError
from gputune.client.folders import default_secret_file
from gputune.core.files import open_file

log = logging.getLogger(__name__)

SECRET_FILE = "GPUTUNE_CACHE_SECRET_FILE"
"""The environment variable: the path of a file with SECRET_BYTES random bytes."""
SECRET_BYTES = 32
REMEDY = f"(umask 077; head -c {SECRET_BYTES} /dev/urandom > FILE)"


def secret_file() -> Path:
    """Return the path of the secret, which may not be there yet."""
    named = os.environ.get(SECRET_FILE)
    return Path(named) if named else default_secret_file()


def secret_for(cache_mode: str) -> bytes | None:
    """Return the secret under which programs of a cache are kept. A cache that is forgotten has one of its own, and a
    frozen one needs none that is not there yet. Raises CacheError."""
    if cache_mode == "off":
        return secrets.token_bytes(SECRET_BYTES)
    return known_secret() if cache_mode == "frozen" else own_secret()


def known_secret() -> bytes | None:
    """Return the secret of this installation, None if there is none yet. Raises CacheError for a file that is refused,
    and if SECRET_FILE names one that cannot be read."""
    path = secret_file()
    try:
        return _read(path)
    except OSError as error:
        if not os.environ.get(SECRET_FILE):
            return None
        raise CacheError(
            f"the secret {path} that {SECRET_FILE} names cannot be read: {error.strerror}; make one by {REMEDY}"
        ) from None


def own_secret() -> bytes | None:
    """Return the secret of this installation, made now if there is none; None, with a warning, if it cannot be made.
    Raises what known_secret does."""
    if (found := known_secret()) is not None:
        return found
    path = secret_file()
    try:
        _make(path)
        return _read(path)
    except OSError as error:
        log.warning(
            f"compiled programs are not kept: the secret {path} cannot be made ({error.strerror}); name one in "
            f"{SECRET_FILE}, made by {REMEDY}"
        )
        return None


def _read(path: Path) -> bytes:
    """Return the secret in a file. Raises CacheError if it is not a secret that its user alone can read, OSError if it
    cannot be opened."""
    _check(path, path.stat())  # a file of another user often cannot be opened
    with open_file(path) as file:
        _check(path, os.fstat(file.fileno()))
        return file.read(SECRET_BYTES)


def _check(path: Path, status: os.stat_result) -> None:
    """Raise CacheError for what is not a secret that its user alone can read."""
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        why = "is no regular file"
    elif status.st_uid != os.geteuid():
        why = "belongs to another user"
    elif mode & 0o077:
        why = f"can be used by other users (mode {mode:03o}, not 600)"
    elif status.st_size != SECRET_BYTES:
        why = f"has {status.st_size} bytes, not {SECRET_BYTES}"
    else:
        return
    raise CacheError(f"the secret of performance caches {path} {why}: make another by {REMEDY}")


def _make(path: Path) -> None:
    """Put a new secret there, complete from the first moment, unless another process is faster. Raises OSError."""
    if not path.is_absolute():
        raise FileNotFoundError(errno.ENOENT, "there is no home folder")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mode 600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink()

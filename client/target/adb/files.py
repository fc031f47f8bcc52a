"""Put files into gputune's folder on a device: programs that stay there, and secrets that only the shell user reads."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gputune.client.errors import TargetError
from gputune.client.target.adb.device import SHELL_SECONDS, AdbDevice

log = logging.getLogger(__name__)

FOLDER = "/data/local/tmp/gputune"
PRIVATE = f"{FOLDER}/private"  # tokens and temporary files, closed to everyone but the shell user
_DAYS_KEPT = 30


class DeviceFiles:
    """Keep the folder on one device. left: how many seconds of so many a step may take. Every method raises
    TargetError."""

    def __init__(self, device: AdbDevice, left: Callable[[float], float]) -> None:
        self._device = device
        self._left = left

    def install(self, content: bytes, kind: str, name: str, mode: int) -> str:
        """Copy a program to the device, if it is not there as it is here; return its path there.

        kind: in words; name: with {} where the file's name has the digest of its content."""
        digest = hashlib.sha256(content).hexdigest()
        # Named by content: another version may be running from its own file.
        path = f"{FOLDER}/{name.format(digest[:8])}"
        old = f"-mtime +{_DAYS_KEPT} -exec rm -rf {{}} +"
        self._must(
            f"mkdir -p {PRIVATE} && chmod 755 {FOLDER} && chmod 700 {PRIVATE} && touch -c {path} && "
            f"find {FOLDER} -mindepth 1 -maxdepth 1 -type f {old} && find {PRIVATE} -mindepth 1 -maxdepth 1 {old}"
        )
        if self._digest(path) != digest:
            size = f"{len(content) // 1000} kB"
            log.info(f"copying the {kind} to device {self._device.serial} ({size})")
            part = f"{path}.{secrets.token_hex(4)}"
            self._device.push(content, part, mode)
            if self._digest(part) != digest:
                self._must(f"rm -f {part}")
                raise TargetError("adb_failed", f"device {self._device.serial}: {part} did not arrive as it was sent")
            self._must(f"chmod {mode:o} {part} && mv -f {part} {path}")
        return path

    @contextmanager
    def token(self, token: str) -> Iterator[str]:
        """Yield the path of a file with a token, for as long as the program that reads it starts."""
        path = f"{PRIVATE}/token-{secrets.token_hex(8)}"
        try:
            self._device.push(token.encode(), path, 0o600)
            self._must(f"chmod 600 {path}")
            yield path
        finally:
            with suppress(TargetError):  # it has been read; a device that is gone loses it with the old ones
                self._device.run(f"rm -f {path}", self._left(SHELL_SECONDS))

    def _digest(self, path: str) -> str:
        """Return the SHA-256 of a file on the device; something else when it is not there."""
        return self._device.run(f"sha256sum {path}", self._left(SHELL_SECONDS)).output.partition(" ")[0]

    def _must(self, command: str) -> None:
        ran = self._device.run(command, self._left(SHELL_SECONDS))
        if ran.code:
            reason = ran.last_line or f"exit code {ran.code}"
            raise TargetError("adb_failed", f"device {self._device.serial}: `{command}` failed: {reason}")

"""Keep compiled programs in a performance cache: its kernel repository.

A compiled program can do all that its user can, and no checksum says that it computes what its source says. So each is
kept with a MAC under a secret of the installation that has compiled it. The MAC covers the digest of all that
identifies the program: source, options, sizes and compiler, so no program can stand in another's place. Who owns the
file says nothing, because a copied cache belongs to the user. A program without a right MAC is not used, and neither is
any if there is no secret.

Programs are found for any task and model, and the least recently used go first. They do not travel: exports have none.
"""

import hashlib
import hmac
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from gputune.cache.database import Database
from gputune.cache.schema import FIRST_WITH_MACS
from gputune.core.identity import DeviceIdentity
from gputune.core.json_text import canonical_json
from gputune.core.launches import Launch

MOST_PROGRAM_BYTES = 256 << 20
"""Limit of what the kernel repository of a file may hold."""

_COLUMNS = "digest, binary, binary_sha256, mac"

Maker: TypeAlias = Literal["own", "foreign", "damaged"]


def compiler_of(device: DeviceIdentity, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return what identifies the compiler of a device. settings: those of the target that change code."""
    return {
        "device": device.name,
        "compute_units": device.compute_units,
        "platform": device.platform,
        "platform_version": device.platform_version,
        "device_version": device.device_version,
        "driver": device.driver_version,
        "settings": dict(settings),
    }


def program_digest(main: Launch, compiler: Mapping[str, Any]) -> str:
    """Return the digest of a program: of its source and options, of the sizes that some compilers make code for, and of
    the compiler."""
    kernels = [[kernel.entry, kernel.global_size, kernel.local_size] for kernel in main.sequence]
    what = {"source": main.source_sha256, "options": main.options, "kernels": kernels, "compiler": compiler}
    return hashlib.sha256(canonical_json(what).encode()).hexdigest()


class Programs(Database):
    """Keep the programs of a performance cache file, by their digests."""

    def program_of(self, digest: str) -> bytes | None:
        """Return the binary of a program, which counts as used now; None if there is none that this installation has
        compiled. One that another has compiled is noted in `foreign`."""
        if not self._has_macs:
            return None
        rows = self._rows(f"SELECT {_COLUMNS} FROM program WHERE digest = ?", (digest,))
        if not rows:
            return None
        match self._maker(rows[0]):
            case "damaged":
                self._warn(f"performance cache {self.path}: a program of the kernel repository is damaged and not used")
                return None
            case "foreign":
                self.foreign.add(digest)
                return None
        if self.writable and digest not in self._used:
            self._used.add(digest)
            with self._keeping("note the use of a program"):
                self._connection.execute("UPDATE program SET used_at = ? WHERE digest = ?", (time.time(), digest))
        return bytes(rows[0][1])

    def keep_program(self, digest: str, binary: bytes, most_bytes: int = MOST_PROGRAM_BYTES) -> None:
        """Keep a program, unless there is no secret; those not used for longest make room for it."""
        if self.secret is None:
            return
        sha256 = hashlib.sha256(binary).hexdigest()
        with self._keeping("store a program"):
            self._connection.execute(
                f"INSERT OR REPLACE INTO program ({_COLUMNS}, used_at) VALUES (?, ?, ?, ?, ?)",
                (digest, binary, sha256, _mac(self.secret, digest, sha256), time.time()),
            )
            self._forget_programs_beyond(most_bytes)

    def forget_programs(self, most_bytes: int = 0) -> None:
        """Keep no more programs than so many bytes, those used last."""
        with self._transaction("empty the kernel repository"):
            self._forget_programs_beyond(most_bytes)

    def makers(self) -> Counter[Maker]:
        """Count the programs by whether this installation has compiled them; a damaged one is of none."""
        if not self._has_macs:
            (count,) = self._rows("SELECT count(*) FROM program")[0] if self._has("program") else (0,)
            return Counter({"foreign": count})
        rows = self._each(f"SELECT {_COLUMNS} FROM program")
        return Counter(map(self._maker, rows))

    def program_bytes(self) -> int:
        """Return what all programs take."""
        if not self._has("program"):
            return 0
        return int(self._rows("SELECT coalesce(sum(length(binary)), 0) FROM program")[0][0])

    @property
    def _has_macs(self) -> bool:
        """Return whether the file is of this version; one of an older version that is only read is not."""
        return int(self._rows("PRAGMA user_version")[0][0]) >= FIRST_WITH_MACS

    def _maker(self, row: Sequence[Any]) -> Maker:
        digest, binary, binary_sha256, mac = row
        if not isinstance(digest, str) or not isinstance(binary, bytes):
            return "damaged"
        sha256 = hashlib.sha256(binary).hexdigest()
        if sha256 != binary_sha256:
            return "damaged"
        own = self.secret is not None and hmac.compare_digest(
            mac if isinstance(mac, bytes) else b"", _mac(self.secret, digest, sha256)
        )
        return "own" if own else "foreign"

    def _forget_programs_beyond(self, most_bytes: int) -> None:
        """Inside the caller's transaction."""
        self._connection.execute(
            "DELETE FROM program WHERE digest IN (SELECT digest FROM (SELECT digest,"
            " sum(length(binary)) OVER (ORDER BY used_at DESC, digest) AS total FROM program) WHERE total > ?)",
            (most_bytes,),
        )


def _mac(secret: bytes, digest: str, binary_sha256: str) -> bytes:
    """Return the MAC of a program's row; the first word keeps it apart from MACs of other things under the secret."""
    text = canonical_json(["program", digest, binary_sha256])
    return hmac.digest(secret, text.encode(), hashlib.sha256)

"""Keep which features a device has proved, in a small file of the user's cache for each device and driver.

The file is known by all that decides an answer: the device, its driver, the settings that change code, and on a CPU the
instructions that the system lists, because virtual machines give different processors one name. What a file says is
believed only if no other user could have written it. A file that is broken is as no file, and is written anew.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

from gputune.core.bounds import Name, Sha256, Within, in_files
from gputune.core.decoder import decode
from gputune.core.files import open_file
from gputune.core.identity import DeviceIdentity
from gputune.core.json_text import canonical_json, json_text, json_value
from gputune.core.ownership import untrusted
from gputune.core.quirks import unset_defaults
from gputune.core.whole_file import whole_file
from gputune.runtime.devices.settings import deciding

log = logging.getLogger(__name__)

LARGEST_BYTES = 64 << 10
LONGEST_REASON = 400
PROCESSORS_FILE = Path("/proc/cpuinfo")
_DECIDING = ("platform", "platform_version", "name", "vendor", "driver_version", "device_version", "driver")
_INSTRUCTIONS = ("flags", "Features")  # as x86 and Arm call them


@in_files(closed=True)
@dataclass(frozen=True)
class Answer:
    """Say why a feature is not there, or nothing. probe: the digest of the test."""

    probe: Sha256
    reason: Annotated[str, Within(0, LONGEST_REASON)]


@in_files(closed=True)
@dataclass(frozen=True)
class _File:
    answers: Annotated[Mapping[Name, Answer], Within(0, 256)]


class Proofs:
    """The kept answers of one device, under the settings of this process."""

    def __init__(self, identity: DeviceIdentity) -> None:
        self._identity = identity

    def read(self) -> Mapping[str, Answer]:
        """Return the kept answers by feature; none if there is no file to be believed."""
        path = self._path
        try:
            if path is None or untrusted(path):
                return {}
            with open_file(path) as file:
                content = file.read(LARGEST_BYTES + 1)
            return decode(_File, json_value(content)).answers if len(content) <= LARGEST_BYTES else {}
        except (OSError, ValueError) as error:
            log.debug("nothing is known of the device's features: %s", error)
            return {}

    def add(self, answers: Mapping[str, Answer]) -> None:
        """Keep answers next to those that are there, if the folder can be written to."""
        path = self._path
        if path is None:
            return
        kept = {name: asdict(answer) for name, answer in {**self.read(), **answers}.items()}
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with whole_file(path) as unfinished:
                unfinished.write_text(json_text({"answers": kept}))
        except OSError as error:
            log.debug("the device's features are asked for again next time: %s", error)

    @cached_property
    def _path(self) -> Path | None:
        """Return where they lie; None for a user without a home folder."""
        named = os.environ.get("XDG_CACHE_HOME")
        try:
            folder = (Path(named) if named else Path.home() / ".cache") / "gputune" / "features"
        except RuntimeError:
            return None
        decides: dict[str, object] = {name: getattr(self._identity, name) for name in _DECIDING}
        decides |= {"extensions": self._identity.extensions, "settings": _settings()}
        if self._identity.device_type == "cpu":
            decides["instructions"] = _instructions()
        return folder / f"{hashlib.sha256(canonical_json(decides).encode()).hexdigest()[:32]}.json"


def _settings() -> dict[str, str]:
    """Return the settings under which drivers run in every process of gputune."""
    return deciding({**os.environ, **unset_defaults(os.environ)})


def _instructions() -> str:
    """Return what the system says of the first processor's instructions; empty if it says nothing."""
    try:
        with PROCESSORS_FILE.open(encoding="utf-8", errors="replace") as lines:
            return next((line for line in lines if line.startswith(_INSTRUCTIONS)), "")
    except OSError:
        return ""

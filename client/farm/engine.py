"""Define the interface of farm engines, which carry frames to devices and say which devices exist; each has one file.

An engine knows nothing about tasks or models, and does no queueing, blaming or repeating. At most one batch is on its
way to a device at a time. A call that is lost with its device ends with DeviceGone.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Literal, Protocol, TypeAlias, get_args

from gputune.client.errors import GputuneError
from gputune.core.identity import DeviceIdentity
from gputune.core.version import software_version
from gputune.server.protocol.messages import PROTOCOL_VERSION

Order: TypeAlias = Literal["open", "ask", "close", "cancel", "renew", "drain"]
"""What the host of a device is asked: open or close a session, pass a request on, end the request under way, keep the
device for a job, take nothing new and leave."""
ORDERS: tuple[str, ...] = get_args(Order)
WAIT_SECONDS = 1.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,79}")
"""Of a device, a job or a session."""


class FarmError(GputuneError):
    """Report what is wrong with a farm, or with how it was asked."""

    exit_code = 4


class DeviceGone(Exception):
    """Report that the device has left the farm, or whatever held it has died; what it was asked is lost."""


class DeviceAbsent(DeviceGone):
    """Report that the device was not there any more, and was asked nothing."""


@dataclass(frozen=True)
class Call:
    """Hold what goes to the host of a device: an order, for which job and session, with the frame of a request."""

    order: Order
    job: str = ""
    session: str = ""
    frame: bytes = b""

    def __post_init__(self) -> None:
        """Raise ValueError for what no client of ours sends."""
        named = all(not name or (isinstance(name, str) and NAME.fullmatch(name)) for name in (self.job, self.session))
        if self.order not in ORDERS or not named or not isinstance(self.frame, bytes):
            raise ValueError("the call is not from a client of a farm")


@dataclass(frozen=True)
class Versions:
    """List what has to be the same everywhere in a farm."""

    gputune: str = field(default_factory=software_version)
    protocol: int = PROTOCOL_VERSION
    python: str = field(default_factory=lambda: ".".join(platform.python_version_tuple()[:2]))

    def difference(self, other: Mapping[str, object]) -> str:
        """Return what is not the same there, empty where all is."""
        mine = vars(self)
        return "; ".join(
            f"{name} {other.get(name)!r}, not {mine[name]!r}" for name in mine if other.get(name) != mine[name]
        )

    def to_dict(self) -> dict[str, object]:
        """Return the three as plain values."""
        return dict(vars(self))


@dataclass(frozen=True)
class Announced:
    """Hold what a device's host says of it when it joins, and, in `report`, now and then.

    tier: of the device's performance cache; settings: of its target that change code or time; simulated: nothing is
    computed there.
    """

    name: str
    tier: str
    device: Mapping[str, object]
    settings: Mapping[str, object]
    simulated: bool
    report: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def read(cls, plain: object, report: object = None) -> Announced:
        """Return what another process has sent. Raises FarmError for what makes no sense."""
        try:
            assert isinstance(plain, Mapping)
            texts = [plain[name] for name in ("name", "tier")]
            assert all(isinstance(text, str) and NAME.fullmatch(text.replace("/", "-")) for text in texts)
            assert isinstance(plain["device"], Mapping) and isinstance(plain["settings"], Mapping)
            identity = DeviceIdentity.from_dict(plain["device"]).to_dict()
        except (AssertionError, KeyError, ValueError) as error:
            raise FarmError(f"a worker announced a malformed device: {error or 'fields are missing'}") from None
        said = {str(name): value for name, value in report.items()} if isinstance(report, Mapping) else {}
        settings = {str(name): str(value) for name, value in plain["settings"].items()}
        return cls(texts[0], texts[1], identity, settings, plain.get("simulated") is True, said)

    def to_dict(self) -> dict[str, object]:
        """Return it as `read` takes it, without the report."""
        plain = {**vars(self), "device": dict(self.device), "settings": dict(self.settings)}
        del plain["report"]
        return plain

    @property
    def described(self) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """Return the identity, and the settings where a server says them."""
        return self.device, {"settings": self.settings}


class Engine(Protocol):
    """Reach the hosts of devices. Any thread may call it."""

    def devices(self) -> Mapping[str, Announced]:
        """Return the devices that are there now, by name. Raises FarmError where that cannot be known at all any
        more."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Take `changed`, which hears, in any thread, that devices may have come or gone."""

    def call(self, device: str, call: Call, heard: Callable[[bytes], None] | None = None) -> bytes:
        """Return the frame with which the device's host answers. `heard` gets frames that it sends before that, in the
        thread that calls, also when the device is lost after that. Raises DeviceGone when that happens, DeviceAbsent
        when it is not there and nothing was sent."""

    def close(self) -> None:
        """End what this side holds of the farm. May be called twice."""


class Mailbox:
    """Hold frames that come from a host, for the thread that waits for its answer. lost: whether that will not come."""

    def __init__(self) -> None:
        self.lost = False
        self._frames: SimpleQueue[bytes | None] = SimpleQueue()

    def put(self, frame: bytes) -> None:
        """Take a frame before the answer."""
        self._frames.put(frame)

    def end(self) -> None:
        """Note that the answer is there."""
        self._frames.put(None)

    def lose(self) -> None:
        """Note that the device is lost."""
        self.lost = True
        self._frames.put(None)

    def read(self, heard: Callable[[bytes], None] | None, seconds: float = WAIT_SECONDS) -> bool:
        """Pass a frame on if one comes, and return whether the wait is over."""
        try:
            frame = self._frames.get(timeout=seconds)
        except Empty:
            return False
        if frame is not None and heard is not None:
            heard(frame)
        return frame is None


def checked_name(text: str, what: str) -> str:
    """Return the text, if it can be a name. Raises FarmError."""
    if not NAME.fullmatch(text):
        raise FarmError(f"{what} {text!r} is not a name: use letters, digits and . _ : -, at most 80")
    return text

"""Open the host of a device: first its lock, then its server, then the check."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping

from gputune.client.addresses import parse_address
from gputune.client.errors import ConfigError
from gputune.client.farm.hosts.device_host import DeviceHost
from gputune.client.farm.hosts.device_lock import DeviceLock
from gputune.client.target.connecting import AdbRequest, choose_target
from gputune.client.target.transport.credentials import NONE, Credentials
from gputune.client.target.transport.stream import address_text
from gputune.client.target.transport.target_connection import TargetConnection
from gputune.core.identity import DeviceIdentity
from gputune.runtime.devices.discovery import SIMULATED


def hosted(
    name: str | None,
    device: str | None,
    target: str | None = None,
    adb: AdbRequest | None = None,
    credentials: Credentials = NONE,
    environment: Mapping[str, str] | None = None,
) -> DeviceHost:
    """Return the host of a device of this machine, of a target server, or of a phone. name: by default this machine's,
    with the device. Raises FarmError where another worker has the device, TargetError, ConfigError."""
    if target is not None and "," in target:
        raise ConfigError("a farm worker has one device; start one for each address of --target")
    what = _what(device, target, adb)
    lock = None if device is not None else DeviceLock(what)
    try:
        chosen = choose_target(target, environment or {}, device, credentials=credentials, adb=adb)
        if device is not None:
            try:
                lock = _lock_of(chosen.dial)
            except BaseException:
                chosen.close()
                raise
        return DeviceHost(name or _named(what), chosen, lock)
    except BaseException:
        if lock is not None:
            lock.close()
        raise


def _what(device: str | None, target: str | None, adb: AdbRequest | None) -> str:
    if adb is not None:
        return f"adb {adb.serial or 'device'}"
    if target is not None:
        return f"target {address_text(*parse_address(target, '--target'))}"
    return f"device {device}"


def _lock_of(dial: Callable[[], TargetConnection]) -> DeviceLock | None:
    """By identity, whatever the option called it; none for simulated devices, of which there are as many as are
    wanted."""
    connection = dial()
    try:
        identity = DeviceIdentity.from_dict(connection.device)
    finally:
        connection.close()
    if identity.platform in SIMULATED:
        return None
    return DeviceLock(f"device {identity.name} of {identity.platform}")


def _named(what: str) -> str:
    return re.sub(r"[^A-Za-z0-9._:-]+", "-", f"{platform.node() or 'host'}-{what}").strip("-.:_")[:80]

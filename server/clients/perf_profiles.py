"""Apply the perf profiles of connections: the clocks and power that the device should have while it works for each.

Votes are made here, in the daemon, so that no killed worker leaves clocks changed. They run on threads, because a
control may be slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from gputune.core.identity import DeviceIdentity
from gputune.runtime.power.instances import Power, controls_of, live_votes
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.messages import PerfProfileSet, SetPerfProfile


class FarPower(Protocol):
    """Vote by a profile on another machine, as Power does on this one. controls: names of what steers the device."""

    profile: PerfProfile
    controls: tuple[str, ...]

    def set_profile(self, profile: PerfProfile) -> None: ...

    def start(self, phase: Literal["execute"]) -> None: ...

    def done(self, phase: Literal["execute"]) -> None: ...

    def close(self) -> None: ...


@dataclass
class _Chosen:
    """Hold the profile of one connection, once it is in force. exchanging: held while another one takes its place;
    gone: the connection is, and what comes into force afterwards is taken back."""

    power: Power | FarPower | None = None
    exchanging: asyncio.Lock = field(default_factory=asyncio.Lock)
    gone: bool = False


class PerfProfiles:
    """Keep the profiles of all connections to a server with this device. default: for those that have set none; far:
    makes a FarPower of a profile, if an agent has the device. Raises ValueError if that does not know the default."""

    def __init__(
        self,
        device: DeviceIdentity,
        default: PerfProfile | None = None,
        far: Callable[[PerfProfile], FarPower] | None = None,
    ) -> None:
        self._device = device
        self._far = far
        self._of: dict[object, _Chosen] = {}
        self._default = None if default is None else self._power(default)

    @property
    def default_controls(self) -> Sequence[str]:
        """Return the names of what steers the device for the default; may wait for slow controls."""
        return () if self._default is None else self._controls(self._default)

    async def set(self, client: object, request: SetPerfProfile) -> PerfProfileSet:
        """Exchange the profile of a connection. Raises ProtocolError for what is none."""
        try:
            profile = PerfProfile.from_dict(request.profile)
        except ValueError as error:
            raise ProtocolError("bad_message", f"perf profile: {error}"[:4000]) from None
        chosen = self._of.setdefault(client, _Chosen())
        async with chosen.exchanging:  # one after the other, in their order
            try:
                if chosen.power is None:
                    chosen.power = await asyncio.to_thread(self._power, profile)
                else:
                    await asyncio.to_thread(chosen.power.set_profile, profile)
            except ValueError as error:  # no agent votes by it
                raise ProtocolError("bad_message", f"perf profile: {error}"[:4000]) from None
            if chosen.gone:
                await asyncio.to_thread(chosen.power.close)
        controls = () if profile.silent else await asyncio.to_thread(self._controls, chosen.power)
        return PerfProfileSet(tuple(name[:200] for name in controls[:64]))

    @asynccontextmanager
    async def voted(self, client: object) -> AsyncIterator[None]:
        """Vote while the device works for a connection."""
        chosen = self._of.get(client)
        power = self._default if chosen is None or chosen.power is None else chosen.power
        if power is None or power.profile.silent:
            yield
            return
        await asyncio.to_thread(power.start, "execute")
        try:
            yield
        finally:
            await asyncio.to_thread(power.done, "execute")

    def _power(self, profile: PerfProfile) -> Power | FarPower:
        return Power(profile, self._device) if self._far is None else self._far(profile)

    def _controls(self, power: Power | FarPower) -> Sequence[str]:
        return controls_of(self._device) if isinstance(power, Power) else power.controls

    def leave(self, client: object) -> None:
        """Note that the connection is gone, and take its votes back."""
        if (chosen := self._of.pop(client, None)) is not None:
            chosen.gone = True
            if chosen.power is not None:
                asyncio.get_running_loop().run_in_executor(None, chosen.power.close)

    def close(self) -> None:
        """Take all votes back; may wait for slow controls."""
        while self._of:
            _, chosen = self._of.popitem()
            chosen.gone = True
            if chosen.power is not None:
                chosen.power.close()
        if self._default is not None:
            self._default.close()

    def state(self) -> dict[str, Any]:
        """Return what StatusReport says: the profiles in force by how many connections have them, and what was asked of
        the device's controls beside what they are at."""
        named: dict[str, int] = {}
        for chosen in self._of.values():
            if (power := chosen.power) is not None:
                named[power.profile.name] = named.get(power.profile.name, 0) + 1
        found: dict[str, Any] = {"perf_profiles": named} if named else {}
        if self._default is not None:
            found["default_perf_profile"] = self._default.profile.name
        if self._far is None and (votes := live_votes()):
            found["votes"] = votes
        return found

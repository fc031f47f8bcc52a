"""Vote for the clocks of a device behind an agent, by the settings of a profile."""

from __future__ import annotations

import logging
import threading

from gputune.core.errors import DeviceError, DeviceNotFound
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.server.agent.agent_connection import ANSWER_SECONDS, AgentConnection
from gputune.server.agent.messages import SetVotes, Vote

log = logging.getLogger("gputune.server.agent")


class AgentPower:
    """Vote by the perf profile of one client on an agent's device, as Power is on those of this machine. Its votes end
    with its connection, which is made once more where it is lost. controls: the files by which the device is
    steered."""

    def __init__(self, profile: PerfProfile, address: str, place: int) -> None:
        """Set the profile. Raises ValueError for an agent that cannot be reached."""
        self.profile = PerfProfile()
        self.controls: tuple[str, ...] = ()
        self._address, self._place = address, place
        self._turn = threading.Lock()
        self._connection: AgentConnection | None = None
        self.set_profile(profile)

    def set_profile(self, profile: PerfProfile) -> None:
        """Exchange the profile, between inferences. Raises ValueError as the constructor does."""
        self.profile = profile.copy()
        try:
            with self._turn:
                self._voting()
        except (DeviceError, DeviceNotFound) as error:
            raise ValueError(str(error)) from None

    def start(self, phase: str) -> None:
        """Vote in front of an inference. What the agent does not do is written to the log: it costs no inference."""
        self._vote(True)

    def done(self, phase: str) -> None:
        """Vote behind an inference."""
        self._vote(False)

    def close(self) -> None:
        """Take back whatever it has voted for."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()

    def _vote(self, begins: bool) -> None:
        with self._turn:
            try:
                connection = self._connection
                if connection is None or connection.closed:
                    connection = self._voting()
                connection.ask(Vote(begins))
            except (DeviceError, DeviceNotFound) as error:
                log.warning("the device's clocks were not voted for: %s", error)

    def _voting(self) -> AgentConnection:
        """Tell the agent the settings, over a connection that works; return that."""
        if self._connection is None or self._connection.closed:
            self._connection = AgentConnection(self._address, answer_seconds=ANSWER_SECONDS)
        settings = () if self.profile.silent else self.profile.places
        self.controls = self._connection.ask(SetVotes(self._place, settings)).controls
        return self._connection

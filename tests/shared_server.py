"""Share one target server between the tests of a process of pytest: a server that starts takes seconds."""

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.client.target.embedded_server import EmbeddedServer
from gputune.client.target.reconnecting import RECONNECT_SECONDS, Reconnecting
from gputune.client.target.transport.credentials import Credentials
from gputune.client.target.transport.target_connection import CONNECT_SECONDS, dial

LEFT_SECONDS = 20.0
"""How long connections of a test may take to end."""


class SharedServer:
    """A target server, which `reset` gives to the next test as if it was new. It counts requests and restarts of its
    worker further, and what its driver has compiled is still there.

    device: as for `gputune-target-server`; host, port, token, pid: of the server that runs now.
    """

    def __init__(self, device: str | None = None) -> None:
        self._device = device
        self._start()

    def _start(self) -> None:
        self._server = EmbeddedServer.start(self._device)
        self.host, self.port, self.token = self._server.host, self._server.port, self._server.token
        self.pid = self._server._process.pid

    def connect(self, reconnect_seconds: float = RECONNECT_SECONDS) -> TargetClient:
        dialled = partial(dial, self.host, self.port, CONNECT_SECONDS, Credentials(self.token))
        return TargetClient(Reconnecting(dialled, seconds=reconnect_seconds))

    def variables(self) -> Mapping[str, str]:
        """Return the variables by which commands find it."""
        return {"TARGET_SERVER_SOCKET": f"{self.host}:{self.port}", "GPUTUNE_TOKEN": self.token}

    def reset(self, seconds: float = LEFT_SECONDS) -> bool:
        """Wait until it has no clients, and nothing of theirs. Start another one where this does not come within these
        seconds, or the server has ended. Return whether it is the same."""
        deadline = time.monotonic() + seconds
        with suppress(TargetError), self.connect(0.0) as client:
            while time.monotonic() < deadline:
                told = client.status()
                if (told.clients, told.queued, told.running) == (1, 0, "") and "perf_profiles" not in told.state:
                    return True
                time.sleep(0.01)
        self._server.kill()
        self._server.stop()
        self._start()
        return False

    def stop(self) -> None:
        self._server.stop()

"""Perf profiles of connections to a server on the null device."""

import pytest

from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.client.target.embedded_server import EmbeddedServer
from gputune.client.target.transport.credentials import Credentials
from gputune.runtime.power.profiles.perf_profile import PerfProfile


@pytest.mark.slow
def test_a_session_has_a_perf_profile_until_it_ends() -> None:
    server = EmbeddedServer.start("null")
    try:
        how = Credentials(token=server.token)
        with TargetClient.connect(server.host, server.port, how) as client:
            assert "perf_profiles" not in client.status().state
            controls = client.set_perf_profile(PerfProfile.from_preset("burst"))
            assert client.status().state["perf_profiles"] == {"burst": 1}
            named = client.server["settings"]
            assert isinstance(named, dict) and ("gputune.perf_profile" in named) == bool(controls)
            client.upload(b"four")
            client.set_perf_profile(PerfProfile.from_preset("power_saver"))
            assert client.status().state["perf_profiles"] == {"power_saver": 1}
            wrong = PerfProfile()
            wrong.to_dict = lambda: {"general": {"DSP_HYSTERESIS_TIME_US": -1}}  # type: ignore[method-assign]
            with pytest.raises(TargetError, match="DSP_HYSTERESIS_TIME_US"):
                client.set_perf_profile(wrong)
        with TargetClient.connect(server.host, server.port, how) as another:
            assert "perf_profiles" not in another.status().state
    finally:
        server.stop()

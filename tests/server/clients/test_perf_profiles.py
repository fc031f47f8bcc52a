"""Test perf profiles of connections to a server on the null device."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gputune.client.errors import TargetError
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.power.instances import Power
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.server.clients import perf_profiles
from gputune.server.clients.perf_profiles import PerfProfiles
from gputune.server.clients.service import Service
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import SetPerfProfile
from tests.server.workers.test_pool import Client
from tests.waiting import PATIENCE_SECONDS


@pytest.mark.parametrize("how", ["leaves", "leaves before it is answered", "the server ends"])
async def test_a_profile_that_comes_into_force_too_late_is_taken_back(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control is slow, and the client, or the server, does not wait for it."""
    begun, go_on = threading.Event(), threading.Event()
    powers: list[str] = []

    class SlowPower(Power):
        def __init__(self, profile: PerfProfile, device: Any) -> None:
            begun.set()
            assert go_on.wait(PATIENCE_SECONDS)
            super().__init__(profile, device)
            powers.append("made")

        def close(self) -> None:
            super().close()
            powers.append("closed")

    monkeypatch.setattr(perf_profiles, "Power", SlowPower)

    assert NULL_REPORT.identity is not None
    profiles = PerfProfiles(NULL_REPORT.identity)
    workers = SimpleNamespace(forget=lambda buffers, contexts: False)
    service = Service(workers, Limits(), None, profiles)  # type: ignore[arg-type]
    client = Client()
    service.join(client)
    for number in range(2):
        service.request(client, number + 1, SetPerfProfile(PerfProfile.from_preset("burst").to_dict()))
    if how != "leaves before it is answered":
        assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
    if how == "the server ends":
        profiles.close()
    else:
        service.leave(client)
    before = profiles.state()
    go_on.set()
    assert before == {}
    await asyncio.gather(*service._telling)
    assert profiles.state() == {} and powers.count("made") == (1 if begun.is_set() else 0)
    assert powers[-1:] == ["closed"] * begun.is_set()


@pytest.mark.slow
def test_a_session_has_a_perf_profile_until_it_ends(shared_server: Any) -> None:
    with shared_server.connect() as client:
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
    with shared_server.connect() as another:
        assert "perf_profiles" not in another.status().state

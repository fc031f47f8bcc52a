"""Test votes for the clocks of a device behind an agent: the journal on its machine shows them."""

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.agents.process import AgentProcess
from gputune.client.target.connecting import choose_target
from gputune.runtime.devices.discovery import AGENT_TOKEN_VARIABLE, DeviceReport
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.server.agent.agent_connection import AgentConnection
from gputune.server.agent.messages import SetVotes
from gputune.server.agent.votes import AgentPower
from tests.native.compiling import compiler
from tests.opencl.server.conftest import TOKEN
from tests.waiting import becomes

BURST = PerfProfile.from_preset("burst")
pytestmark = pytest.mark.own("a machine whose votes are in a folder of the test")


@pytest.fixture
def agent(report: DeviceReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentProcess]:
    if compiler() is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setenv(AGENT_TOKEN_VARIABLE, TOKEN)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with closing(AgentProcess(report, TOKEN)) as process:
        yield process


def votes(folder: Path) -> str:
    """Return the votes of all processes of the agent's machine."""
    return "".join(path.read_text(encoding="utf-8") for path in folder.glob("gputune-power/*.votes"))


def test_a_vote_is_in_force_while_the_device_works(agent: AgentProcess, tmp_path: Path) -> None:
    power = AgentPower(BURST, agent.address, 0)
    before = votes(tmp_path)
    power.start("execute")
    assert becomes(lambda: '"dcvs":false' in votes(tmp_path))
    power.done("execute")
    assert becomes(lambda: '"dcvs":false' not in votes(tmp_path))  # after the time that the preset keeps it
    power.set_profile(PerfProfile.from_preset("power_saver"))
    power.start("execute")
    assert becomes(lambda: votes(tmp_path) not in ("", before))
    power.close()
    assert becomes(lambda: '"bus"' not in votes(tmp_path))


def test_what_the_agent_stops_in_the_midst_of_is_taken_back(agent: AgentProcess, tmp_path: Path) -> None:
    power = AgentPower(BURST, agent.address, 0)
    power.start("execute")
    assert becomes(lambda: '"dcvs":false' in votes(tmp_path))
    agent.process.terminate()
    assert agent.process.wait() == 0
    assert '"bus"' not in votes(tmp_path)
    power.close()


def test_a_lost_agent_costs_no_inference(agent: AgentProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    power = AgentPower(BURST, agent.address, 0)
    agent.process.kill()
    agent.process.wait()
    with caplog.at_level(logging.WARNING, "gputune.server.agent"):
        power.start("execute")
    assert "were not voted for" in caplog.text
    agent.keep()

    def votes_again() -> bool:
        power.start("execute")
        return '"dcvs":false' in votes(tmp_path)

    assert becomes(votes_again)
    power.close()


def test_what_an_agent_does_not_vote_by_is_refused(agent: AgentProcess) -> None:
    with pytest.raises(ValueError, match="cannot be reached"):
        AgentPower(BURST, "127.0.0.1:1", 0)
    with closing(AgentConnection(agent.address)) as connection:
        whole = BURST.places
        for place, settings, why in (
            (9, whole, "there are [0-9]+ devices"),
            (0, whole[:-1], "a perf profile has 62 numbers, not 61"),
            (0, (10, *whole[1:]), "place 0 of a vote is from 0 to 9, not 10"),
            (0, (*whole[:9], 1 << 31, *whole[10:]), "place 9 of a vote is from 0 to 2147483647, not -1"),
            (0, (*whole[:60], 1 << 62, 0), "a hysteresis is from 0 to 60000000 us"),
        ):
            with pytest.raises(Exception, match=why):
                connection.ask(SetVotes(place, settings))


def test_a_client_votes_through_the_target_server(
    agent: AgentProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TARGET_SERVER_SOCKET", raising=False)
    with choose_target(None, {}, device=agent.device) as target, target.connect() as client:
        client.set_perf_profile(BURST)
        assert client.status().state["perf_profiles"] == {"burst": 1}
        assert becomes(lambda: '"bus"' in votes(tmp_path))
        own = BURST.copy()
        own.set_sleep_latency_start(77)
        client.set_perf_profile(own)
        assert client.status().state["perf_profiles"] == {"custom": 1}
        client.upload(b"four")
    assert becomes(lambda: '"bus"' not in votes(tmp_path))

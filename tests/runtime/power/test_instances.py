"""Test perf profiles of loaded contexts: what is voted when, with a steering that only records it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import LaunchFailed
from gputune.runtime import load, load_group
from gputune.runtime.backends.null import NullBackend
from gputune.runtime.power import arbiter, instances
from gputune.runtime.power.actuators.base import Problem
from gputune.runtime.power.profiles.chosen import PROFILE_SETTING, setting_of
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.records import NOTHING, Corner, Vote
from gputune.runtime.power.steering import Applied

X = {"x": np.ones((2, 4), np.float32)}


@dataclass
class NotingSteering:
    """Has one control, and notes the corners of its core that were asked for."""

    key: str
    asked: list[Corner] = field(default_factory=list)

    def originals(self) -> dict[str, str]:
        return {}

    def adopt(self, originals: Mapping[str, str]) -> None: ...

    def apply(self, vote: Vote, own: Vote) -> Applied:
        self.asked.append(vote.core.target)
        return Applied(vote, {"core": float(vote.core.target)}, {"core": 1.0}, ())

    def restore(self, originals: Mapping[str, str]) -> Sequence[Problem]:
        self.asked.append(NOTHING.core.target)
        return []

    def wait(self, limit_s: float) -> bool:
        return True


@pytest.fixture
def steering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotingSteering]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    noting = NotingSteering(f"made up for {tmp_path.name}")
    monkeypatch.setattr(instances, "find_steering", lambda device: noting)
    yield noting
    arbiter.arbiter_of(noting.key, lambda: noting).close()


def quick() -> PerfProfile:
    """Burst, but that votes are taken back at once."""
    profile = PerfProfile.from_preset("burst")
    profile.set_dsp_hysteresis_time_us(0)
    return profile


def test_votes_are_made_around_loading_inferences_and_closing(context_path: Path, steering: NotingSteering) -> None:
    profile = quick()
    start, done = (profile.vote("execute", moment).core.target for moment in ("start", "done"))
    with load(context_path, "null", perf_profile=profile) as executor:
        loaded = len(steering.asked)
        assert steering.asked[0] == profile.vote("init", "start").core.target
        executor.run(X)
        executor.run(X)
        assert steering.asked[loaded:] == [start, done, start, done]
        assert executor.perf_profile == profile
    assert steering.asked[-1] == Corner.DISABLE


def test_a_profile_can_be_exchanged_between_inferences(context_path: Path, steering: NotingSteering) -> None:
    with load(context_path, "null") as executor:
        executor.run(X)
        assert steering.asked == [] and executor.perf_profile is None
        executor.set_perf_profile("power_saver")
        executor.run(X)
        slow = max(steering.asked)
        executor.set_perf_profile(quick())
        executor.run(X)
        assert max(steering.asked) == quick().vote("execute", "start").core.target > slow
        with pytest.raises(ValueError, match="burst"):
            executor.set_perf_profile("bursty")
        executor.set_perf_profile("system_settings")
        asked = len(steering.asked)
        executor.run(X)
        assert len(steering.asked) == asked


def test_what_fails_takes_its_vote_back(
    context_path: Path, steering: NotingSteering, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise LaunchFailed("the device is gone")

    with load(context_path, "null", perf_profile=quick()) as executor:
        with monkeypatch.context() as patched, pytest.raises(LaunchFailed):
            patched.setattr(NullBackend, "read", fail)
            executor.run(X)
        assert steering.asked[-1] == quick().vote("execute", "done").core.target


def test_contexts_of_a_group_have_profiles_of_their_own(context_path: Path, steering: NotingSteering) -> None:
    with load_group([context_path], "null", streams=2) as group:
        group.set_perf_profile(quick(), "context")
        group.run("context", X)
        assert max(steering.asked) == quick().vote("execute", "start").core.target


def test_a_profile_is_a_setting_only_where_it_changes_something() -> None:
    burst, own = PerfProfile.from_preset("burst"), quick()
    assert setting_of(burst, ["cpufreq"]) == {PROFILE_SETTING: "burst"}
    assert setting_of(own, ["cpufreq"])[PROFILE_SETTING].startswith("custom ")
    assert setting_of(burst, []) == setting_of(PerfProfile(), ["cpufreq"]) == setting_of(None, ["cpufreq"]) == {}

"""Test a tuning space with one of every way to fail: the right variant wins, and every failure has its name."""

import re
from pathlib import Path

import pytest

from gputune.cache import PerformanceCache
from gputune.client.model.plan import Task
from gputune.client.tuning.outcome import Outcome
from gputune.client.tuning.search import task_search
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.tuner import Tuner
from tests.opencl.runtime import planted
from tests.shared_server import SharedServer

TASK = Task(planted.PlantedFamily.op, planted.Doubled(), 1)


def tune(server: SharedServer, cache_file: Path) -> tuple[Outcome, dict[int, str], int]:
    """The outcome, the message of each variant's last trial, and how many variants were sent to be measured."""
    with server.connect() as client, PerformanceCache.open(cache_file) as cache:
        (outcome,) = Tuner([client], cache, EFFORTS["quick"]).tune([TASK])
        (summary,) = cache.tasks()
        trials = cache.trials_of(summary.task, summary.validity)
        messages = {trial.configuration["PLANT"]: trial.message for trial in trials}
        assert all((trial.status == "ok") == bool(trial.samples_ns) for trial in trials)
        return outcome, messages, client.requests["profile"]


@pytest.mark.long("a tuning that a bad kernel ends is what a user sees first, and no other test has all ways to fail")
def test_six_failures_cost_one_variant_each_and_are_paid_once(
    server: SharedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_search, "family_of", lambda op: planted.PlantedFamily())
    outcome, messages, requests = tune(server, tmp_path / "cache.sqlite")
    assert outcome.trials == {"compile": 1, "correctness": 2, "crash": 1, "device_limits": 1, "ok": 2, "timeout": 1}
    assert outcome.configuration == {"PLANT": planted.FASTEST}, (outcome.default_ns, outcome.tuned_ns, outcome.drift)
    assert re.search(r"differ|NaN|error|wrong", messages[planted.WRONG])
    assert re.search(r"outside", messages[planted.OUTSIDE])
    assert re.search(r"launching.*\d s", messages[planted.ENDLESS])
    assert re.search(r"SIGSEGV", messages[planted.SEGFAULT])
    assert re.search(r"local memory", messages[planted.LOCAL_MEMORY])
    assert re.search(r"inpt", messages[planted.NO_COMPILE])
    assert requests >= 1

    again, _, requests = tune(server, tmp_path / "cache.sqlite")
    assert again.hit
    assert requests == 0

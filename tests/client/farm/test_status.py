"""Test the status page of a farm."""

from dataclasses import replace

import pytest

from gputune.client.cli.tables import print_block
from gputune.client.farm.engine import Announced
from gputune.client.farm.jobs import FarmJob, JobPart
from gputune.client.farm.status import devices_table, farm_page, jobs_table
from tests.client.farm.conftest import MakeHost
from tests.client.pages.reading import Page, cells, words

VOTES = "votes on cpu <i>: min hz 2e+09, now min hz 1.8e+09"


@pytest.mark.parametrize(("width", "shown"), [("100", False), ("200", True)])
def test_a_narrow_terminal_leaves_out_what_a_narrow_page_does(
    width: str, shown: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    print_block(devices_table({"a": Announced("a", "tier-1", {}, {}, True, {"running": "Conv [b]", "trials": 1200})}))
    out = capfd.readouterr().out
    assert all(each in out for each in ("tier-1", "at work", "Conv [b]", "1,200"))
    assert ("health check" in out) == shown


def test_a_job_that_has_not_begun_shows_what_it_asks_for() -> None:
    asked = {"models": ["/m/net.onnx", "/m/two.onnx"], "tiers": ["null-cu1"]}
    block = jobs_table([FarmJob("j2", "me", asked, "failed", 0.0, 0.0)])
    assert cells(block) == [["j2", "me", "1970-01-01 00:00:00", "net.onnx, two.onnx", "null-cu1", "failed", "", ""]]


def test_the_page_shows_devices_and_jobs_whatever_they_are_called(make_host: MakeHost) -> None:
    host = make_host("a")
    vote = {"requested": {"min_hz": 2e9}, "effective": {"min_hz": 1800000000.0}}
    state = {"gpu_mhz": 900, "perf_profiles": {"burst": 2}, "votes": {"cpu <i>": vote}}
    busy = {**host.report(), "running": "Conv <b>", "trials_per_minute": 41, "job": "j1", "state": state}
    devices = {"a": replace(host.announced, report=busy), "b": replace(host.announced, name="b", report={"speed": "x"})}
    part = JobPart("/m/<i>.onnx", "null-cu1", "queued")
    page = farm_page(devices, [FarmJob("j1", "me", {}, "running", 0.0, 0.0, (part,))], "127.0.0.1:8786", 2)
    said = words(Page(page).blocks)
    for shown in ("Conv <b>", "<i>.onnx", "41", "gpu mhz 900", "perf profiles burst 2", VOTES, "at work", "free"):
        assert shown in said
    assert '<meta http-equiv="refresh" content="2">' in page

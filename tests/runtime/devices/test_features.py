"""Test which features a device proves: by children that compute, compute something else, say nothing, or die."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputune.runtime.devices import features, proofs
from gputune.runtime.devices.discovery import NULL_REPORT, DeviceReport, Probed
from gputune.runtime.devices.features import FEATURES_MARK, AskedOnce, Probe, features_of
from gputune.runtime.devices.proofs import Proofs
from gputune.runtime.devices.recording import Header, write

PROBE = Probe("", (0,), (1,), device_type="cpu")


class Children:
    """Answer in the place of probes, each time with the next of the answers."""

    def __init__(self, *answers: Probed) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, arguments: Sequence[str], environment: Mapping[str, str], time_limit_s: float) -> Probed:
        self.asked += arguments[2:]
        return self.answers.pop(0)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(features, "PROBES", dict.fromkeys("abcd", PROBE) | {"e": replace(PROBE, device_type="gpu")})
    yield


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Children:
    found = Children()
    monkeypatch.setattr(features, "run_probe", found)
    return found


def of_type(device_type: str = "cpu", **identity: Any) -> DeviceReport:
    assert NULL_REPORT.identity is not None
    return replace(
        NULL_REPORT, identity=replace(NULL_REPORT.identity, platform="P", device_type=device_type, **identity)
    )


def answer(reason: str = "", lasts: bool = True) -> Probed:
    return Probed("noise\n" + FEATURES_MARK + json.dumps([reason, lasts]) + "\n")


def kept_file(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "gputune" / "features").iterdir()
    return file


def test_each_feature_has_a_child_of_its_own(children: Children) -> None:
    died = Probed("", "the driver crashed with SIGILL", "SIGILL")
    children.answers = [answer(), answer("it computes [2]"), died, answer()]
    assert features_of(of_type()) == {
        "a": "",
        "b": "it computes [2]",
        "c": "the driver crashed with SIGILL",
        "d": "",
        "e": "the device is no GPU",
    }
    assert children.asked == ["a", "b", "c", "d"]


def test_no_child_is_started_for_what_a_device_cannot_have(children: Children) -> None:
    assert not any(reason == "" for reason in features_of(of_type("accelerator")).values())
    assert features_of(of_type(), ["sorcery"]) == {"sorcery": "this gputune has no test for it"}
    assert children.asked == []


def test_answers_are_kept_for_the_device_its_driver_and_the_settings(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    children.answers = [answer(), answer("no")]
    assert features_of(of_type(), ["a", "b"]) == features_of(of_type(), ["a", "b"]) == {"a": "", "b": "no"}
    assert features_of(of_type(global_memory_bytes=5, compute_units=7), ["a"]) == {"a": ""}, "these vary by themselves"
    monkeypatch.delenv("POCL_AFFINITY")
    assert features_of(of_type(), ["a"]) == {"a": ""}, "processes that open the driver set it to its default"
    assert children.asked == ["a", "b"]
    for changed in ("name", "platform_version", "driver_version", "device_version"):
        children.answers = [answer("other")]
        assert features_of(of_type(**{changed: "other"}), ["a"]) == {"a": "other"}, changed
    children.answers = [answer("instructions"), answer("settings"), answer("fresh")]
    monkeypatch.setattr(proofs, "_instructions", lambda: "flags: fpu")
    assert features_of(of_type(), ["a"]) == {"a": "instructions"}
    monkeypatch.setenv("POCL_AFFINITY", "17")
    assert features_of(of_type(), ["a"]) == {"a": "settings"}
    assert features_of(of_type(), ["a"], fresh=True) == {"a": "fresh"} == features_of(of_type(), ["a"])


def test_another_test_is_another_question(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    children.answers = [answer(), answer("no more")]
    assert features_of(of_type(), ["a"]) == {"a": ""}
    monkeypatch.setattr(features, "PROBES", {"a": replace(PROBE, wanted=(2,))})
    assert features_of(of_type(), ["a"]) == {"a": "no more"}


@pytest.mark.parametrize(
    "passing",
    [
        answer("it computes nothing now", lasts=False),
        Probed("", "the driver crashed with SIGALRM", "SIGALRM"),
        Probed("", "the driver crashed with SIGKILL", "SIGKILL"),
        Probed("", "the driver hung for more than 60 s"),
        Probed("", "the probe ended with code 1"),
        Probed(""),
    ],
)
def test_what_a_busy_machine_may_do_is_believed_in_one_process_only(children: Children, passing: Probed) -> None:
    children.answers = [passing, answer()]
    ask = AskedOnce(of_type())
    assert ask(["a"])["a"]
    assert ask(["a"])["a"], "a run sees one answer"
    assert children.asked == ["a"]
    assert AskedOnce(of_type())(["a"]) == {"a": ""}


def test_a_late_probe_says_so(children: Children) -> None:
    children.answers = [Probed("", "the driver crashed with SIGALRM", "SIGALRM"), Probed("")]
    assert features_of(of_type(), ["a", "b"]) == {"a": "it took longer than 3 s", "b": "it was not answered"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"answers": []}',
        b'{"answers": {"a": {"probe": "0", "reason": ""}}}',
        b'{"answers": {"a": {"probe": "DIGEST", "reason": 0}}}',
        b'{"answers": {"a": {"probe": "DIGEST", "reason": "", "more": 1}}}',
        b"[" * 100_000,
        b'{"answers": {"a": {"probe": "DIGEST", "reason": ""}}}' + b" " * (1 << 17),
    ],
)
def test_a_broken_file_is_as_none(children: Children, tmp_path: Path, content: bytes) -> None:
    children.answers = [answer("no"), answer("still no")]
    features_of(of_type(), ["a"])
    kept_file(tmp_path).write_bytes(content.replace(b"DIGEST", PROBE.digest.encode()))
    assert features_of(of_type(), ["a"]) == {"a": "still no"} == features_of(of_type(), ["a"])


def test_a_file_of_another_user_is_not_believed(children: Children, tmp_path: Path) -> None:
    children.answers = [answer(), answer("no")]
    features_of(of_type(), ["a"])
    kept_file(tmp_path).chmod(0o666)
    assert features_of(of_type(), ["a"]) == {"a": "no"}


def test_a_folder_that_cannot_be_made_costs_a_probe_each_time(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gputune").write_text("in the way")
    children.answers = [answer(), answer("later")]
    assert features_of(of_type(), ["a"]) == {"a": ""}
    assert features_of(of_type(), ["a"]) == {"a": "later"}
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError()))
    identity = of_type().identity
    assert identity is not None
    assert Proofs(identity).read() == {}


def test_a_device_that_computes_nothing_has_what_is_recorded(children: Children, tmp_path: Path) -> None:
    assert features_of(NULL_REPORT, ["a"]) == {"a": "the device computes nothing"}
    identity = NULL_REPORT.identity
    assert identity is not None
    for name, recorded in (("one", ()), ("two", ("a",))):
        header = Header("Op", {}, identity, 1, ("P",), (), {"sample_ns": 1}, recorded)
        assert Header.from_line(header.to_line()) == header
        assert ("features" in header.to_line()) == bool(recorded), "recordings of before stay as they are"
        write(tmp_path / f"{name}.jsonl.gz", header, ())
    replay = replace(NULL_REPORT, identity=replace(identity, platform="replay"), driver_file=str(tmp_path))
    assert features_of(replay, ["a", "b"]) == {"a": "", "b": "the recording does not have it"}
    assert features_of(replace(replay, driver_file="nowhere"), ["a"]) == {"a": "the recording does not have it"}
    assert children.asked == []

"""Test the replay backend and the recordings that it answers from; nothing here needs hardware."""

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core.batches import Profiled
from gputune.core.errors import BuildFailed, DeviceError, DeviceNotFound
from gputune.core.launches import Launch, Variant
from gputune.runtime.backends import Backend, Bound, ProgramCache, open_backend
from gputune.runtime.devices import recording
from gputune.runtime.devices.discovery import NULL_REPORT, REPLAY, DeviceReport, choose, find
from gputune.runtime.devices.recording import BadRecording, Header, Row, launch_digest, program_digest
from gputune.runtime.measuring.launching import execute
from tests.variants import measure_on, numbered

assert NULL_REPORT.identity is not None
DEVICE = dataclasses.replace(NULL_REPORT.identity, name="Recorded GPU", platform="P", device_type="gpu", driver="p.icd")
SIZE = 64
SAMPLE_NS = 1e6
PREPARE = Launch("pack", "pack", "", (SIZE,), (8,), ("w", "packed"))
FAILURES = {
    7: ("compile", "no such type"),
    8: ("correctness", "3 of 64 elements are wrong"),
    9: ("crash", "the worker ended with SIGSEGV"),
}


def main(tile: int) -> Launch:
    return Launch("source", "f", f"-DTILE={tile}", (SIZE,), (8,), ("x", "packed", tile, "output"))


def row(tile: int, **fields: Any) -> Row:
    launch = main(tile)
    program = program_digest(launch.source, launch.options)
    status, message = FAILURES.get(tile, ("ok", ""))
    values: dict[str, Any] = {
        "values": (tile,),
        "status": status,
        "message": message,
        "program": program,
        "launch": launch_digest(program, launch.entry, launch.global_size, launch.local_size, launch.arguments),
        "timing": "event",
        "samples_ns": (1e4 * tile, 1.02e4 * tile, 0.99e4 * tile) if status == "ok" else (),
        "compile_ns": 1000 + tile,
        "first_launch_ns": 2_000_000 + tile,
    }
    return Row(**{**values, **fields})


def header(**fields: Any) -> Header:
    digest = launch_digest(
        program_digest(PREPARE.source, PREPARE.options), "pack", PREPARE.global_size, PREPARE.local_size, ("w", "p")
    )
    values: dict[str, Any] = {
        "op": "MatMul",
        "problem": {"m": 8},
        "device": DEVICE,
        "space_size": 12,
        "parameters": ("TILE",),
        "prepare": (digest,),
        "measured": {"sample_ns": SAMPLE_NS},
    }
    return Header(**{**values, **fields})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A recording of the tiles 2 to 9, of which 7 to 9 failed."""
    path = tmp_path / "f.jsonl.gz"
    recording.write(path, header(), map(row, range(2, 10)))
    return path


@pytest.fixture
def device(path: Path) -> Backend:
    return open_backend(choose([], f"replay:{path}").report)


def bind(device: Backend, launch: Launch) -> Bound:
    program = device.build(launch.source, launch.options)
    arguments = [a if isinstance(a, int) else device.allocate(64) for a in launch.arguments]
    return device.bind(program, launch.entry, launch.global_size, launch.local_size, arguments)


def run(device: Backend, *tiles: int) -> Profiled:
    values = np.arange(SIZE, dtype=np.float32)
    buffers = {"x": device.upload(values), "w": device.upload(values)}
    variants = numbered(Variant({"TILE": tile}, (PREPARE,), main(tile), {"packed": 256}) for tile in tiles)
    wanted = device.upload(values)
    times: dict[str, Any] = {"samples": 3, "sample_ns": int(SAMPLE_NS), "warm_up_ns": 2_000_000}
    return measure_on(ProgramCache(device), variants, buffers, wanted, **times)


def test_a_file_gives_back_what_was_written(path: Path) -> None:
    read = recording.read(path)
    assert (read.header, read.rows) == (header(), tuple(map(row, range(2, 10))))
    before = path.read_bytes()
    recording.write(path, read.header, read.rows)
    assert path.read_bytes() == before, "the same content gives the same bytes"


def test_launches_take_the_recorded_times_in_the_recorded_order(device: Backend) -> None:
    bound = bind(device, main(5))
    first = device.first_launch(bound, lambda: None)
    assert (first.event_ns, first.wall_ns) == (50_000, 2_000_005)
    assert device.build(main(4).source, main(4).options).build_ns == 1004
    seen = [device.time(bound, launches).event_ns / launches for launches in (20, 20, 10, 11, 7, 13, 1)]
    assert seen == [50_000, 51_000, 49_500, 49_500, 50_000, 50_000, 51_000], "a sample lasts a millisecond"


def test_timestamps_follow_each_other_and_take_the_recorded_times(device: Backend) -> None:
    bound = bind(device, main(5))
    times = device.enqueue_timed(30 * [bound])()
    assert (times[:, 3] - times[:, 2]).tolist() == 20 * [50_000] + 10 * [51_000]
    assert times[1:, 2].tolist() == times[:-1, 3].tolist()


def test_a_recorded_race_is_won_by_the_recorded_best_again_and_again(device: Backend, path: Path) -> None:
    measured = run(device, 6, 4, 2, 3)
    assert measured.best == 2
    assert set(measured.trials[2].samples_ns) == {20_000, 20_400, 19_800}
    assert [trial.compile_ns for trial in measured.trials] == [1006, 1004, 1002, 1003]
    again = run(open_backend(choose([], f"replay:{path}").report), 6, 4, 2, 3)
    assert [trial.samples_ns for trial in again.trials] == [trial.samples_ns for trial in measured.trials]


def test_what_failed_fails_again_with_its_status(device: Backend) -> None:
    measured = run(device, 7, 8, 9, 3)
    assert [(trial.status, trial.message) for trial in measured.trials] == [*FAILURES.values(), ("ok", "")]
    assert measured.best == 3


def test_unknown_launches_are_refused_by_name(device: Backend) -> None:
    (trial,) = run(device, 10).trials
    assert trial.status == "constraints"
    for word in ("'f'", "-DTILE=10", "f.jsonl.gz", "8 of the 12 configurations of a MatMul"):
        assert word in trial.message
    for changed in ({"local_size": (4,)}, {"arguments": ("x", "packed", 3, "output")}, {"entry": "g"}):
        with pytest.raises(DeviceError, match="not in the recording"):
            bind(device, dataclasses.replace(main(2), **changed))
    with pytest.raises(BuildFailed):
        device.load_binary(b"gputune-null")


def test_binaries_are_loaded_and_weights_are_prepared(device: Backend) -> None:
    program = device.load_binary(device.harvest(device.build(main(3).source, main(3).options)))
    buffers = [device.allocate(64) for _ in range(3)]
    bound = device.bind(program, "f", (SIZE,), (8,), [buffers[0], buffers[1], 3, buffers[2]])
    assert device.time(bound, 1).event_ns == 30_000
    made = execute(ProgramCache(device), [PREPARE], {"w": device.allocate(256)}, {"packed": 256})
    assert not made["packed"].any(), "nothing is computed"


def test_what_the_host_has_timed_has_no_device_clock(tmp_path: Path) -> None:
    recording.write(tmp_path / "w.jsonl.gz", header(), [row(2, timing="wall")])
    backend = open_backend(choose([], f"replay:{tmp_path / 'w.jsonl.gz'}").report)
    bound = bind(backend, main(2))
    timing = backend.time(bound, 3)
    assert (timing.event_ns, timing.wall_ns) == (0, 60_000)
    times = backend.enqueue_timed([bound])()
    assert times[0, 2] == times[0, 3]


def test_a_replayed_device_is_none_of_its_platform(path: Path) -> None:
    choice = find(f"replay:{path}")
    identity = choice.report.identity
    assert identity is not None and (identity.platform, identity.driver) == (REPLAY, "")
    assert (identity.name, identity.device_type) == (DEVICE.name, "gpu"), "its limits and its tier are the device's"
    assert choice.report.environment() == {}
    assert DeviceReport.from_dict(choice.report.to_dict()) == choice.report, "this is how it comes to a worker"
    assert "Recorded GPU" in choice.explanation[0] and path.name in choice.explanation[0]


def test_a_folder_holds_recordings_of_one_device(path: Path) -> None:
    other = path.with_name("other.jsonl.gz")
    recording.write(other, header(op="Pool"), [row(11)])
    device = open_backend(choose([], f"replay:{path.parent}").report)
    assert [trial.status for trial in run(device, 11, 2).trials] == ["ok", "ok"]
    recording.write(other, header(device=dataclasses.replace(DEVICE, name="Another")), [row(11)])
    with pytest.raises(DeviceNotFound, match=r"different devices \(name\)"):
        choose([], f"replay:{path.parent}")
    path.unlink()
    other.unlink()
    with pytest.raises(DeviceNotFound, match="holds no recordings"):
        choose([], f"replay:{path.parent}")


def test_a_recording_that_is_gone_is_no_device_any_more(path: Path) -> None:
    report = choose([], f"replay:{path}").report
    path.unlink()
    with pytest.raises(DeviceNotFound, match="No such file"):
        open_backend(report)


def line(fields: dict[str, Any], **changed: Any) -> str:
    fields = {name: value for name, value in {**fields, **changed}.items() if value is not ...}
    return json.dumps(fields)


HEADER = json.loads(header().to_line())
ROW = json.loads(recording.row_line(row(2)))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "no recording"),
        (["[]"], "not a JSON object"),
        (["[" * 100_000], "not a JSON object"),
        ([line(HEADER, gputune_recording=99)], "99, this version reads 1"),
        ([line(HEADER, gputune_recording=...)], "None, this version"),
        ([line(HEADER, op=...)], "Header lacks op"),
        ([line(HEADER, extra=1)], "'extra'"),
        ([line(HEADER, device={"name": "x"})], "device: DeviceIdentity lacks"),
        ([line(HEADER, parameters=[1])], "parameters"),
        ([line(HEADER, measured={})], "sample_ns"),
        ([line(HEADER, measured={"sample_ns": float("inf")})], "sample_ns"),
        ([line(HEADER), line(ROW), "{"], "line 3"),
        ([line(HEADER), line(ROW, status="great")], "line 2: status"),
        ([line(HEADER), line(ROW, status=["ok"])], "line 2: status"),
        ([line(HEADER), line(ROW, samples_ns=[])], "samples_ns"),
        ([line(HEADER), line(ROW, status="crash")], "samples_ns"),
        ([line(HEADER), line(ROW, samples_ns=[1.0, -1.0])], "samples_ns"),
        ([line(HEADER), line(ROW, samples_ns=[10**400])], "samples_ns"),
        ([line(HEADER), line(ROW, samples_ns=[float("nan")])], "samples_ns"),
        ([line(HEADER), line(ROW, values=[1, 2])], "values: 2 of 1 parameters"),
        ([line(HEADER), line(ROW, values=[True])], "values[0]: expected a 64-bit integer"),
        ([line(HEADER), line(ROW, compile_ns=-1)], "compile_ns"),
        ([line(HEADER), line(ROW), line(ROW)], "twice"),
    ],
)
def test_what_is_no_recording_is_one_clear_line(tmp_path: Path, lines: list[str], words: str) -> None:
    path = tmp_path / "bad.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    with pytest.raises(BadRecording) as caught:
        recording.read(path)
    assert words in str(caught.value) and str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:40],
        lambda data: data[:-1],
        lambda data: data[:30] + b"\0\0\0\0" + data[34:],
        lambda _: b"\xff",
    ],
)
def test_damaged_files_are_refused(path: Path, damage: Callable[[bytes], bytes]) -> None:
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadRecording):
        recording.read(path)


def test_a_file_does_not_grow_without_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "LARGEST_BYTES", 1000)
    with pytest.raises(BadRecording, match="more than 1000 bytes"):
        recording.read(path)

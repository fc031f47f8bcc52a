"""Test gputune profile-viewer."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from gputune.client.viewer.outputs import SCHEMATIC_COMMAND
from gputune.client.viewer.schematic import write_schematic
from gputune.runtime.profiling.log import LogWriter
from gputune.runtime.profiling.records import FINALIZE, NODE, Span
from tests.client.commands import Gputune, read_json
from tests.client.viewer.made_up_profiles import NAMES, schematic_of
from tests.client.viewer.read_back import read_chrome
from tests.runtime.profiling import made_up
from tests.runtime.profiling.made_up import BEGUN_NS


@dataclass(frozen=True)
class Files:
    log: Path
    schematic: Path
    folder: Path

    def config(self, **features: bool) -> Path:
        path = self.folder / "config.json"
        path.write_text(json.dumps({"features": features}))
        return path

    def made(self) -> set[str]:
        return {path.name for path in (self.folder / "made").iterdir()}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    graph = made_up.graph(NAMES)
    log = made_up.write_log(tmp_path / "a.log", [graph], made_up.inferences(3, [40_000, 7_000, 90_000, 1_000]))
    write_schematic(tmp_path / "net_schematic.bin", schematic_of(graph))
    return Files(log, tmp_path / "net_schematic.bin", tmp_path)


def test_the_name_of_the_output_says_what_is_written(files: Files, gputune: Gputune) -> None:
    made = files.folder / "made"
    starts = {"a.html": b"<!DOCTYPE", "a.csv": b"Msg Timestamp,", "a.json": b"{\n"}
    for name, start in starts.items():
        ran = gputune("profile-viewer", "--input_log", files.log, "--output", made / name)
        assert ran.code == 0, ran.err
        assert (made / name).read_bytes().startswith(start)
    assert files.made() == set(starts)  # without a schematic there is no topology
    for name in ("chrometrace.json", "run.trace.json"):
        ran = gputune(
            "profile-viewer", "--input_log", files.log, "--schematic", files.schematic, "--output", made / name
        )
        assert ran.code == 0, ran.err
        assert read_chrome(made / name).count("launch") == 12
    assert files.made() == {*starts, "chrometrace.json", "run.trace.json", "net_htp.json"}


BESIDE = {
    "htp_json": "net_htp.json",
    "qhas_schema": "qhas_schema.json",
    "qhas_json": "net_qnn_htp_analysis_summary.json",
}


@pytest.mark.parametrize("feature", [*BESIDE, "traceback"])
def test_features_decide_what_lies_beside(feature: str, files: Files, gputune: Gputune) -> None:
    config = files.config(**{"htp_json": False, feature: True})
    given = ("--input_log", files.log, "--schematic", files.schematic, "--config", config)
    ran = gputune("profile-viewer", *given, "--output", files.folder / "made" / "chrometrace.json")
    assert ran.code == 0, ran.err
    assert files.made() == {"chrometrace.json", *([BESIDE[feature]] if feature in BESIDE else [])}
    assert all(read_json(files.folder / "made" / name) for name in files.made())


def test_what_is_left_out_says_what_it_needs(files: Files, gputune: Gputune) -> None:
    ran = gputune("profile-viewer", "--input_log", files.log, "--output", files.folder / "trace.json")
    [line] = [one for one in ran.err.splitlines() if "left out" in one]
    assert "_htp.json was left out: it needs the schematic, a file that says what each launch stands for; " in line
    assert line.endswith(f"`{SCHEMATIC_COMMAND}` writes it next to the context binary, then give --schematic")


def test_a_chrometrace_has_the_names_of_the_log_without_a_schematic(files: Files, gputune: Gputune) -> None:
    ran = gputune("profile-viewer", "--input_log", files.log, "--output", files.folder / "chrometrace.json")
    assert ran.code == 0, ran.err
    events = read_json(files.folder / "chrometrace.json")
    found = {event.get("name") for event in (events["traceEvents"] if isinstance(events, dict) else events)}
    assert found >= {"conv1", "conv2", "relu", "add"}


def test_what_begins_behind_the_zoom_is_left_out(files: Files, gputune: Gputune) -> None:
    assert "graph net of net.bin: 3 inferences" in gputune("profile-viewer", "--input_log", files.log).out
    assert (
        "graph net of net.bin: 1 inference"
        in gputune("profile-viewer", "--input_log", files.log, "--zoom_end", "0").out
    )


def test_without_an_output_the_terminal_says_it_in_short(files: Files, gputune: Gputune) -> None:
    ran = gputune("profile-viewer", "--input_log", files.log, "--schematic", files.schematic)
    assert ran.code == 0, ran.err
    assert "graph net of net.bin: 3 inferences of 0.234 ms on average" in ran.out
    rows = {line.split()[0]: line.split()[-1] for line in ran.out.splitlines() if line}
    assert (rows["kernels"], rows["rest"]) == ("59.1%", "0.2%")
    slowest = [line.split()[0] for line in ran.out.splitlines() if "(Conv)" in line or line.startswith("conv")]
    assert slowest == ["conv2", "conv1", "relu", "add"]
    assert max(map(len, ran.out.splitlines())) <= 80


def test_the_phases_of_a_generation_are_told_without_inferences(files: Files, gputune: Gputune) -> None:
    with LogWriter((files.folder / "phases.log").open("wb"), made_up.header()) as log:
        log.add(Span("finalize/compiling", NODE, BEGUN_NS, BEGUN_NS + 2_000_000))
        log.add(Span("finalize", FINALIZE, BEGUN_NS, BEGUN_NS + 3_500_000))
    ran = gputune("profile-viewer", "--input_log", files.folder / "phases.log")
    assert (ran.code, [line.split() for line in ran.out.splitlines()]) == (
        0,
        [["phase", "ms"], ["finalize", "3.5"], ["compiling", "2.0"]],
    )


@pytest.mark.parametrize(("allowed", "code"), [("5%", 12), ("30%", 0)])
def test_what_is_slower_than_allowed_has_an_exit_code(allowed: str, code: int, files: Files, gputune: Gputune) -> None:
    """Against an earlier log in which the third launch took 75 us of its 90, in 20 inferences of each."""
    graph = made_up.graph(NAMES)
    logs = [
        made_up.write_log(files.folder / name, [graph], made_up.inferences(20, [40_000, 7_000, took_ns, 1_000]))
        for name, took_ns in (("now.log", 90_000), ("was.log", 75_000))
    ]
    given = ("--input_log", logs[0], "--schematic", files.schematic, "--compare", logs[1], "--fail_over", allowed)
    ran = gputune("profile-viewer", *given)
    assert (ran.code, "conv2" in ran.out) == (code, True), ran.err
    assert gputune("profile-viewer", *given[:-2]).code == 0

"""Test input lists and result files."""

import io
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gputune.client.cli import net_run as cli
from gputune.client.errors import ConfigError
from gputune.client.input_lists import InputLine, files_named, read_input_list, read_inputs
from gputune.client.outputs import file_stem, file_stems
from gputune.client.progress import SILENT, Progress
from gputune.client.run.inferences import Extent, run
from gputune.client.run.net_run import write_result
from gputune.client.run.profiling import lines_of
from gputune.client.target.embedded_server import EmbeddedServer
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.client.tuning.measuring.quiet import LoadRecord, Quiet, Read
from gputune.runtime.context.records import TensorRecord
from gputune.runtime.devices import load
from gputune.runtime.profiling.log import read_log
from tests.client import models
from tests.client.commands import read_json

ONE = (TensorRecord("x", (2, 3)),)
TWO = (*ONE, TensorRecord("y", (4,)))


def listed(folder: Path, text: str) -> Path:
    path = folder / "inputs.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_lines_name_inputs_and_may_leave_out_a_single_name(tmp_path: Path) -> None:
    lines = read_input_list(listed(tmp_path, "# comment\n\nx:=a.raw\nb.raw\n"), ONE)
    assert [line.files["x"].name for line in lines] == ["a.raw", "b.raw"]
    (line,) = read_input_list(listed(tmp_path, "y:=b.raw x:=a.raw"), TWO)
    assert {name: file.name for name, file in line.files.items()} == {"x": "a.raw", "y": "b.raw"}


def test_a_line_behind_an_empty_one_begins_anew_each_time(tmp_path: Path) -> None:
    lines = read_input_list(listed(tmp_path, "0.raw\n1.raw\n# comment\n2.raw\n \n# comment\n3.raw\n"), ONE)
    assert [line.begins for line in lines] == [True, False, False, True]
    for number in range(4):
        np.full((2, 3), number, np.float32).tofile(tmp_path / f"{number}.raw")
    told: list[object] = []
    lines = [InputLine({"x": tmp_path / line.files["x"]}, line.place, line.begins) for line in lines]

    def infer(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        told.append(int(inputs["x"][0, 0]))
        return {}, 1

    list(run(infer, ONE, lines, Extent(6, warmup=1), begin=lambda: told.append("begin")))
    assert told == ["begin", 0, "begin", 0, 1, 2, "begin", 3, "begin", 0, 1]


def test_files_without_elements_may_be_named_for_inputs_that_a_graph_does_not_have(tmp_path: Path) -> None:
    np.save(tmp_path / "empty.npy", np.zeros((1, 0, 4), np.float32))
    np.save(tmp_path / "full.npy", np.zeros((1, 1, 4), np.float32))
    (tmp_path / "empty.raw").touch()
    text = f"x:=a.raw past:={tmp_path}/empty.npy more:={tmp_path}/empty.raw"
    (line,) = read_input_list(listed(tmp_path, text), ONE)
    assert list(line.files) == ["x"]
    for name in ("full.npy", "gone.raw", "inputs.txt"):
        with pytest.raises(ConfigError, match="there is no input 'past'"):
            read_input_list(listed(tmp_path, f"x:=a.raw past:={tmp_path}/{name}"), ONE)


def test_what_has_blanks_stands_in_double_quotes(tmp_path: Path) -> None:
    inputs = (TensorRecord("an x", (2,)), TensorRecord("it's", (2,)))
    text = '"an x:=a file.raw" it\'s:="b \'2\'.raw"\nit\'s:=c\\d.raw "an x":=#e.raw'
    first, second = read_input_list(listed(tmp_path, text), inputs)
    assert {name: str(file) for name, file in first.files.items()} == {"an x": "a file.raw", "it's": "b '2'.raw"}
    assert {name: str(file) for name, file in second.files.items()} == {"an x": "#e.raw", "it's": "c\\d.raw"}


def test_a_path_with_a_blank_but_no_quotes_is_told_of_quotes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="input 'x' is given twice; write x:=FILE without spaces, or a path with "):
        read_input_list(listed(tmp_path, "x:=my file.raw"), ONE)


def test_the_files_of_a_list_are_known_before_its_inputs_are(tmp_path: Path) -> None:
    path = listed(tmp_path, '# x:=no.raw\n\nx:=a.raw "y:=b c.npy"\n  # no\nd.raw\n')
    assert files_named(path) == [Path("a.raw"), Path("b c.npy"), Path("d.raw")]
    assert files_named(listed(tmp_path, 'a.raw\n"b.raw\n')) == [Path("a.raw")]  # which is refused when it is read
    os.mkfifo(tmp_path / "pipe")
    assert files_named(tmp_path / "missing") == files_named(tmp_path / "pipe") == []


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_a_graph_without_inputs_runs_once(tmp_path: Path, text: str) -> None:
    (line,) = read_input_list(listed(tmp_path, text), ())
    assert read_inputs(line, ()) == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no inputs"),
        ('x:="a.raw', "inputs.txt:1: a quote is not closed"),
        ("z:=a.raw y:=b", r"inputs.txt:1: there is no input 'z'; the inputs are 'x', 'y'"),
        ("x:=a.raw x:=b.raw", "input 'x' is given twice$"),
        ("\nx:=a.raw", "inputs.txt:2: no file for input 'y'"),
        ("a.raw", "names no input; write NAME:=a.raw"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_input_list(listed(tmp_path, text), TWO)


def test_raw_and_npy_inputs_are_read_and_checked(tmp_path: Path) -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    (tmp_path / "a.raw").write_bytes(value.tobytes())
    np.save(tmp_path / "a.npy", value)
    np.save(tmp_path / "wide.npy", value.astype(np.float64))
    np.save(tmp_path / "big.npy", value.astype(">f4"))
    (tmp_path / "short.raw").write_bytes(b"1234")
    (tmp_path / "no.npy").write_bytes(b"not an array")
    text = "\n".join(
        str(tmp_path / name) for name in ("a.raw", "a.npy", "wide.npy", "big.npy", "short.raw", "no.npy", "gone.raw")
    )
    raw, npy, wide, big, short, no, gone = read_input_list(listed(tmp_path, text), ONE)
    np.testing.assert_array_equal(read_inputs(raw, ONE)["x"], value)
    np.testing.assert_array_equal(read_inputs(npy, ONE)["x"], value)
    for line, complaint in (
        (wide, r"holds float64\[2, 3\], input 'x' takes float32\[2, 3\]"),
        (big, r"holds big-endian float32\[2, 3\], input 'x' takes float32\[2, 3\]"),
        (short, "has 4 bytes, input 'x' takes 24"),
        (no, "is no array file"),
        (gone, "cannot be read: No such file"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            read_inputs(line, ONE)


def archive() -> bytes:
    content = io.BytesIO()
    np.savez(content, x=np.zeros((2, 3), np.float32))
    return content.getvalue()


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\3\4 no archive", archive()], ids=["empty", "PK", "broken", "npz"])
def test_a_file_that_is_no_array_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.npy"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"inputs.txt:1: .*a.npy is (no array file|an archive)"):
        read_inputs(InputLine({"x": file}, "inputs.txt:1"), ONE)


@pytest.mark.parametrize(("num_inferences", "kept"), [(3, ""), (4, "a"), (9, "abc")])
def test_inputs_are_kept_where_they_are_needed_again(
    monkeypatch: pytest.MonkeyPatch, num_inferences: int, kept: str
) -> None:
    loaded: list[weakref.ref[Any]] = []

    def read(line: InputLine, *_: object) -> dict[str, Any]:
        value = np.full(1, float(line.place))
        loaded.append(weakref.ref(value))
        return {"x": value}

    monkeypatch.setattr("gputune.client.run.inferences.read_inputs", read)

    def infer(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        return {"y": float(inputs["x"][0])}, 1

    alive: list[bool] = []
    results: list[float] = []
    for one in run(infer, ONE, [InputLine({}, place) for place in "012"], Extent(num_inferences)):
        results.append(float(one.outputs["y"]))
        if one.number == 2:
            alive = [value() is not None for value in loaded]
    assert results == [float(number % 3) for number in range(num_inferences)]
    assert len(loaded) == 3
    assert alive == [name in kept or name == "c" for name in "abc"]  # the last one is in use


def test_results_of_all_outputs_have_names_of_their_own(tmp_path: Path) -> None:
    outputs = {name: np.full(1, index, np.float32) for index, name in enumerate(("a/b", "a_b", "A_B", "c"))}
    write_result(tmp_path, outputs, npy=False)
    stems = file_stems(outputs)
    assert stems == {"a/b": "a_b.3", "a_b": "a_b", "A_B": "A_B.2", "c": "c"}
    for name, value in outputs.items():
        assert (tmp_path / f"{stems[name]}.raw").read_bytes() == value.tobytes()


def test_results_stay_in_their_folder(tmp_path: Path) -> None:
    value = np.ones((1, 2), dtype=np.float32)
    write_result(tmp_path / "Result_0", {"../a/b": value, "c": value}, npy=True)
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*")) == [
        "Result_0/_._a_b.npy", "Result_0/_._a_b.raw", "Result_0/c.npy", "Result_0/c.raw",
    ]  # fmt: skip
    assert file_stem("save_infer_model/scale_0.tmp_1") == "save_infer_model_scale_0.tmp_1"


def test_the_table_of_a_profile_shows_the_slowest_first_and_sums_up_the_rest() -> None:
    operations = [{"operation": f"op{n}", "mean_ns": 1000.0 * n, "share": n / 156} for n in range(1, 13)]
    content = {"operations": operations, "mean_inference_ns": 156e3, "inside": {"inferences": 0, "unmarked": ""}}
    heading, *rows, every, whole = lines_of(content, None)
    assert heading.split() == ["mean", "share", "operation"]
    assert [row.split()[-1] for row in rows[:3]] == ["op12", "op11", "op10"]
    assert rows[0].split() == ["12.0", "us", "7.7%", "op12"]
    assert rows[-1].split() == ["3.0", "us", "1.9%", "2", "others", "together"]
    assert every.split()[:5] == ["78.0", "us", "50.0%", "all", "operations;"]
    assert whole.split()[:5] == ["156.0", "us", "100.0%", "an", "inference,"]
    assert len(rows) == 11


def test_a_local_run_is_profiled_by_operation(net_run: Any, tmp_path: Path) -> None:
    ran = net_run("--num_inferences", 5, "--profile", tmp_path / "profile.json")
    assert ran.code == 0, ran.err
    profile = read_json(tmp_path / "profile.json")
    assert (profile["device"], profile["inferences"], len(profile["inference_ns"])) == ("null", 5, 5)
    (operation,) = profile["operations"]
    assert (operation["operation"], operation["median_ns"]) == ("double", profile["operations_ns"])
    assert operation["share"] == pytest.approx(operation["mean_ns"] / profile["mean_inference_ns"])
    assert f"{operation['share']:.1%}  double" in ran.err
    log = read_log(tmp_path / "results" / "profilelogs" / "gputune-profiling-data.log")
    assert (log.header.level, log.complete, len(log.inferences)) == ("detailed", True, 5)
    assert "round_trip_ns" not in read_json(tmp_path / "summary.json")


class Looked(Quiet):
    """Notes what is asked of it, and looks nowhere."""

    def __init__(self, machines: Sequence[Read], progress: Progress, minutes: int | None = None, **how: Any) -> None:
        super().__init__(machines, progress, minutes, **how)
        self.asked = list(machines), minutes, how
        self.steps: list[str] = []

    def settle(self) -> None:
        self.steps.append("settled")

    def end(self) -> None:
        self.steps.append("ended")


def executor(kind: Any, computes: bool, device_type: str) -> Any:
    """An executor as far as it says where it runs."""
    made = kind.__new__(kind)
    made.computes, made.device = computes, SimpleNamespace(device_type=device_type)
    return made


@pytest.mark.parametrize("device_type", ["cpu", "gpu"])
def test_the_machine_with_the_device_is_to_be_quiet(monkeypatch: pytest.MonkeyPatch, device_type: str) -> None:
    """This one, which is known since the command began, or the target; none where nothing is computed."""
    monkeypatch.setattr(cli, "Quiet", Looked)
    whole, began = device_type == "cpu", {"clock_seconds": 1.0}

    def looked(*executors: Any) -> Any:
        jobs: Any = {str(place): SimpleNamespace(executor=one) for place, one in enumerate(executors)}
        with cli._quiet(jobs, 7, SILENT, began) as quiet:
            assert isinstance(quiet, Looked) and quiet.steps == ["settled"]
        assert quiet.steps == ["settled", "ended"]
        return quiet.asked

    here, there = (executor(kind, True, device_type) for kind in (SimpleNamespace, RemoteExecutor))
    assert looked(here, here) == ([load.read], 7, {"whole": whole, "since": began})
    assert looked(there) == ([there.state], 7, {"whole": whole})
    assert looked(executor(SimpleNamespace, False, device_type))[0] == []


def test_a_summary_has_the_load_of_the_machine(net_run: Any, tmp_path: Path) -> None:
    assert net_run("--wait_for_quiet", 1).code == 0
    assert read_json(tmp_path / "summary.json")["load"] == LoadRecord().to_dict(), "nothing is computed"


def test_a_shared_buffer_is_a_memory_handle_of_which_nothing_is_copied(net_run: Any, tmp_path: Path) -> None:
    for options, copied, reason in (((), 64, "an array was given"), (("--shared_buffer",), 0, "")):
        ran = net_run("--num_inferences", 3, *options)
        assert ran.code == 0, ran.err
        memory = read_json(tmp_path / "summary.json")["memory"]
        assert memory["inferences"] == 3
        for name, counted in memory["last"].items():
            assert counted["bytes_copied"] == (copied and memory["load"][name]["allocations"] * counted["bytes_copied"])
            assert bool(counted["bytes_copied"]) == bool(copied)
            assert counted["reason"].startswith(reason)


def test_a_broken_token_stops_only_what_uses_a_running_server(net_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUNE_TOKEN", "short")
    assert net_run().code == 0
    ran = net_run("--target", "127.0.0.1:1")
    assert (ran.code, "GPUTUNE_TOKEN: the token has 5 characters" in ran.last_line) == (2, True)


def test_a_target_that_the_environment_names_is_not_used(net_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARGET_SERVER_SOCKET", "127.0.0.1:1")
    assert net_run().code == 0


def test_a_run_on_a_target_is_that_of_this_machine_with_round_trips(
    net_run: Any, tmp_path: Path, null_target: tuple[object, ...]
) -> None:
    local = net_run()
    y = tmp_path / "results" / "Result_1" / "y.raw"
    assert local.code == 0
    content = y.read_bytes()
    y.unlink()
    options = (*null_target, "--profile", tmp_path / "profile.json")
    ran = net_run("--num_inferences", 3, *options)
    assert ran.code == 0, ran.err
    assert "round trip" in ran.err
    summary, profile = read_json(tmp_path / "summary.json"), read_json(tmp_path / "profile.json")
    for more, said in ((("--device", "null"), "drop --device"), (("--graph", "other"), "there is no graph 'other'")):
        refused = net_run(*options, *more)
        assert (refused.code, said in refused.last_line) == (2, True)
    assert y.read_bytes() == content
    assert summary["target"] == null_target[1]
    assert len(summary["round_trip_ns"]) == len(summary["inference_ns"]) == 3
    assert all(trip > own > 0 for trip, own in zip(summary["round_trip_ns"], summary["inference_ns"], strict=True))
    assert summary["load_round_trip_ns"] > summary["load_ns"] > 0
    assert [entry["operation"] for entry in profile["operations"]] == ["double"]


@pytest.mark.slow
def test_the_waiting_null_device_is_a_target_like_any_other(net_run: Any, tmp_path: Path) -> None:
    server = EmbeddedServer.start("waiting")
    try:
        (tmp_path / "token").touch(0o600)
        (tmp_path / "token").write_text(server.token)
        options = ("--target", f"{server.host}:{server.port}", "--token_file", tmp_path / "token")
        ran = net_run("--num_inferences", 3, *options, "--profile", tmp_path / "profile.json")
        assert ran.code == 0, ran.err
    finally:
        server.stop()
    profile = read_json(tmp_path / "profile.json")
    assert profile["device"] == "waiting"
    assert min(profile["inference_ns"]) >= profile["operations_ns"] > 0, "the time of the model has passed"


def test_what_computes_nothing_is_not_verified(net_run: Any, tmp_path: Path) -> None:
    model = models.build("(float[2, 4] x) => (float[8] y)", "s = Constant<value_ints=[8]>() y = Reshape(x, s)")
    ran = net_run("--verify", models.save(model, tmp_path))
    assert ran.code == 2 and "--verify: the device null computes nothing" in ran.last_line

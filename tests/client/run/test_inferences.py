"""Test how many inferences net-run runs, and what it reports of them."""

import csv
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.client.durations import parse_duration
from gputune.client.errors import ConfigError
from gputune.client.run.inferences import Extent
from gputune.client.tuning.measuring.quiet import Quiet
from gputune.runtime.application.percentiles import in_words, percentiles_ns
from tests.client.commands import Gputune, Ran, read_json
from tests.client.contexts import small_context

Run = Callable[..., Ran]


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("Result_*"))


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=50))
def test_percentiles_are_those_of_numpy_over_the_raw_list(took_ns: list[int]) -> None:
    wanted = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9}
    assert percentiles_ns(took_ns) == {name: np.percentile(took_ns, percent) for name, percent in wanted.items()}


def test_the_summary_has_percentiles_of_what_it_lists(net_run: Run, tmp_path: Path) -> None:
    ran = net_run("--num_inferences", 1000)
    summary = read_json(tmp_path / "summary.json")
    assert len(summary["inference_ns"]) == 1000
    for name, value in summary["percentiles_ns"].items():
        assert value == np.percentile(summary["inference_ns"], float(name[1:]), method="linear")
    assert in_words(summary["percentiles_ns"], 1000) in ran.last_line


@pytest.mark.parametrize(
    ("count", "begin", "told"),
    [(1, "1 inference on", []), (9, "9 inferences on", ["median"]), (10, "10 ", ["p50", "p90", "p99", "p99.9"])],
)
def test_few_inferences_have_no_percentiles(net_run: Run, count: int, begin: str, told: list[str]) -> None:
    line = net_run("--num_inferences", count).last_line
    assert line.startswith(begin)
    assert [part.split()[0] for part in line.split(", ")[2:]] == told


@pytest.mark.parametrize(("content", "said"), [(None, "cannot be read"), (bytes(5), "has 5 bytes")])
def test_files_of_inputs_are_looked_at_before_the_machine(
    net_run: Run, tmp_path: Path, content: bytes | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of later lines, too: nothing has run by then."""
    with (tmp_path / "inputs.txt").open("a") as file:
        file.write(f"{tmp_path}/last.raw\n")
    if content is not None:
        (tmp_path / "last.raw").write_bytes(content)
    monkeypatch.setattr(Quiet, "settle", lambda quiet: pytest.fail("the machine was watched"))
    ran = net_run()
    assert ran.code == 2 and said in ran.last_line
    assert written(tmp_path / "results") == []


def test_warmup_counts_nowhere(net_run: Run, tmp_path: Path) -> None:
    ran = net_run("--warmup", 5, "--export_times", tmp_path / "times.json")
    assert ran.code == 0, ran.err
    summary = read_json(tmp_path / "summary.json")
    assert (summary["warmup"], len(summary["inference_ns"]), summary["memory"]["inferences"]) == (5, 3, 8)
    times = read_json(tmp_path / "times.json")
    assert [row["inference_ns"] for row in times] == summary["inference_ns"]
    assert [row["inference"] for row in times] == [0, 1, 2]
    assert times[0]["begin_ns"] == 0
    assert all(row["begin_ns"] + row["inference_ns"] <= after["begin_ns"] for row, after in pairwise(times))
    assert written(tmp_path / "results") == ["Result_0", "Result_1", "Result_2"]


def test_a_duration_ends_a_run(net_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun_s = [0.0]

    def clock() -> float:
        begun_s[0] += 1.0
        return begun_s[0]

    assert net_run("--duration", "0.05").code == 0
    count = len(read_json(tmp_path / "summary.json")["inference_ns"])
    assert written(tmp_path / "results") == [f"Result_{place}" for place in range(min(count, 3))]
    monkeypatch.setattr("gputune.client.run.inferences.time.perf_counter", clock)
    assert list(Extent(1, seconds=4.0).numbers()) == [0, 1, 2, 3]
    assert list(Extent(1, seconds=0.1).numbers()) == [0]


@pytest.mark.parametrize(("number", "kept"), [(0, 0), (2, 2), (9, 3)])
def test_only_the_first_results_are_kept(net_run: Run, tmp_path: Path, number: int, kept: int) -> None:
    assert net_run("--keep_num_outputs", number, "--num_inferences", 7).code == 0
    assert written(tmp_path / "results") == [f"Result_{place}" for place in range(kept)]


def test_times_of_several_contexts_have_their_names(gputune: Gputune, tmp_path: Path) -> None:
    for name in ("a", "b"):
        small_context(tmp_path / f"{name}.bin")
    (tmp_path / "x.raw").write_bytes(bytes(32))
    (tmp_path / "one.txt").write_text(f"{tmp_path}/x.raw\n")
    ran = gputune(
        "net-run", "--retrieve_context", f"{tmp_path}/a.bin,{tmp_path}/b.bin", "--num_inferences", 2, "--output_dir",
        tmp_path / "out", "--input_list", f"{tmp_path}/one.txt,{tmp_path}/one.txt", "--export_times",
        tmp_path / "times" / "t.CSV",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    with (tmp_path / "times" / "t.CSV").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["context"], row["inference"]) for row in rows] == [("a", "0"), ("a", "1"), ("b", "0"), ("b", "1")]
    begins = [int(row["begin_ns"]) for row in rows]
    assert begins[0] == 0
    assert begins == sorted(begins)


@pytest.mark.parametrize(("text", "seconds"), [("30", 30), ("0.5", 0.5), ("10s", 10), ("1h30m", 5400)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, "--duration") == seconds


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1e3", "400000h", "9" * 400, "9" * 400 + "h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--duration: .* is not a time"):
        parse_duration(text, "--duration")

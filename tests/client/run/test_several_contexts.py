"""Test net-run of several contexts: lists of files, results and summaries by name, and shared or private arenas."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputune.client.generation.ep_context import EpContextFile
from gputune.client.lists import comma_separated
from gputune.client.run.contexts import SHARES
from gputune.runtime.context.packing import distinct
from tests.client.commands import Generate, Gputune, Ran, read_json
from tests.client.contexts import small_context

Run = Callable[..., Ran]
HEAD = ("schema", "gputune_version")
"""What each summary says of itself."""


@pytest.fixture
def run(gputune: Gputune, tmp_path: Path) -> Run:
    """net-run of contexts, with an input list of one line and one of two."""
    (tmp_path / "x.raw").write_bytes(bytes(32))
    (tmp_path / "one.txt").write_text(f"{tmp_path}/x.raw\n")
    (tmp_path / "two.txt").write_text(f"{tmp_path}/x.raw\n{tmp_path}/x.raw\n")

    def run_them(contexts: str, *options: object) -> Ran:
        named = ",".join(f'"{tmp_path / name}"' for name in contexts.split(" "))
        return gputune(
            "net-run", "--retrieve_context", named, "--output_dir", tmp_path / "results",
            "--summary_json", tmp_path / "summary.json", *options,
        )  # fmt: skip

    return run_them


@pytest.fixture
def lists(tmp_path: Path) -> tuple[str, str]:
    """--input_list for two contexts."""
    return "--input_list", f"{tmp_path}/one.txt,{tmp_path}/two.txt"


def results(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("share", [True, False])
def test_every_context_has_its_list_results_and_summary(run: Run, lists: Any, tmp_path: Path, share: bool) -> None:
    small_context(tmp_path / "a.bin", (1024, 256))
    small_context(tmp_path / "b.bin", (512, 512, 128))
    ran = run("a.bin b.bin", *lists, *(["--share_spill_fill"] if share else []))
    assert ran.code == 0, ran.err
    assert results(tmp_path / "results") == ["a/Result_0/y.raw", "b/Result_0/y.raw", "b/Result_1/y.raw"]
    summary = read_json(tmp_path / "summary.json")
    assert list(summary) == [*HEAD, "contexts", "group"]
    assert {name: len(one["inference_ns"]) for name, one in summary["contexts"].items()} == {"a": 1, "b": 2}
    group = {"arenas": [1024, 512, 128], "streams": 1, "private": 1280 + 1152, "weights": 0, "states": 0}
    assert summary["group"] == (group if share else None)
    for one in summary["contexts"].values():
        assert one["device_open_ns"] == summary["contexts"]["a"]["device_open_ns"] > 0
        assert one["memory"]["inferences"] == len(one["inference_ns"])
    assert ran.err.count("the null device computes nothing") == 1
    assert "b: 2 inferences on null" in ran.last_line


def test_a_summary_of_several_has_for_each_what_that_of_one_has(run: Run, lists: Any, tmp_path: Path) -> None:
    small_context(tmp_path / "a.bin")
    assert run("a.bin", "--input_list", tmp_path / "one.txt").code == 0
    alone = read_json(tmp_path / "summary.json")
    assert run("a.bin a.bin", *lists).code == 0
    assert list(read_json(tmp_path / "summary.json")["contexts"]["a"]) == [key for key in alone if key not in HEAD]


def test_contexts_share_without_being_told_where_all_were_made_so(run: Run, lists: Any, tmp_path: Path) -> None:
    for name, shares in (("a", True), ("b", True), ("c", False)):
        small_context(tmp_path / f"{name}.bin", (256,), enable_spill_fill_buffer=shares)
    small_context(tmp_path / "old.bin", (256,))
    for contexts, options, shared in (
        ("a.bin b.bin", (), True),
        ("a.bin b.bin", ("--no_share_spill_fill",), False),
        ("a.bin c.bin", (), False),
        ("a.bin old.bin", (), False),
        ("c.bin old.bin", (), False),
        ("a.bin c.bin", ("--share_spill_fill",), True),
    ):
        ran = run(contexts, *lists, *options)
        assert ran.code == 0, ran.err
        assert (read_json(tmp_path / "summary.json")["group"] is not None) is shared, (contexts, options)
        odd = contexts.split(" ")[1]
        told = f"{odd} was made without enable_spill_fill_buffer; --share_spill_fill shares them anyway" in ran.err
        assert told is (contexts.startswith("a") and not odd.startswith("b") and not options)


@pytest.mark.parametrize("wanted", [True, False, None])
def test_the_generator_writes_what_the_config_file_asks_for(generate: Generate, wanted: bool | None) -> None:
    keys: dict[str, Any] = {} if wanted is None else {SHARES: wanted}
    header = generate(**keys).header
    assert header.configuration[SHARES] is (wanted is True)


@pytest.mark.parametrize("share", [(), ("--share_spill_fill",)])
def test_an_onnx_file_stands_for_its_contexts(run: Run, lists: Any, tmp_path: Path, share: Any) -> None:
    EpContextFile(tmp_path / "a_ctx.onnx", embed=True).write(small_context(tmp_path / "a.bin", (256,)))
    small_context(tmp_path / "b.bin", (512,))
    ran = run("a_ctx.onnx b.bin", *lists, *share)
    assert ran.code == 0, ran.err
    assert list(read_json(tmp_path / "summary.json")["contexts"]) == ["a_ctx", "b"]


@pytest.mark.parametrize("share", [(), ("--share_spill_fill",)])
def test_graphs_are_named_once_for_all_or_for_each(run: Run, lists: Any, tmp_path: Path, share: Any) -> None:
    for name in "ab":
        small_context(tmp_path / f"{name}.bin", names=("small", "large", "one, two"))
    for given, chosen in (
        ("large", ["large", "large"]),
        ("large,small", ["large", "small"]),
        (",large", ["small", "large"]),
        ('"one, two",', ["one, two", "small"]),
    ):
        ran = run("a.bin b.bin", *lists, *share, "--graph", given)
        assert ran.code == 0, ran.err
        assert [one["graph"] for one in read_json(tmp_path / "summary.json")["contexts"].values()] == chosen
    assert run("a.bin", "--input_list", tmp_path / "one.txt", "--graph", "one, two").code == 0


@pytest.mark.parametrize("share", [(), ("--share_spill_fill",)])
def test_profiles_shared_buffers_and_counts_are_those_of_each(run: Run, lists: Any, tmp_path: Path, share: Any) -> None:
    for name in "ab":
        small_context(tmp_path / f"{name}.bin", (256,))
    ran = run("a.bin b.bin", *lists, *share, "--num_inferences", 3, "--profile", tmp_path / "profile.json", "--npy")
    assert ran.code == 0, ran.err
    profiles = read_json(tmp_path / "profile.json")["contexts"]
    assert {name: one["inferences"] for name, one in profiles.items()} == {"a": 3, "b": 3}
    assert re.search(r"^b: +2\.0 us +\d+\.\d%  double$", ran.err, re.MULTILINE)
    assert "b/Result_1/y.npy" in results(tmp_path / "results")
    ran = run("a.bin b.bin", *lists, *share, "--shared_buffer", "--device", "null")
    assert ran.code == 0, ran.err
    for one in read_json(tmp_path / "summary.json")["contexts"].values():
        assert all(counted["bytes_copied"] == 0 for counted in one["memory"]["last"].values())


def test_a_path_with_a_comma_is_one_file_or_stands_in_quotes(gputune: Gputune, run: Run, tmp_path: Path) -> None:
    one = tmp_path / "one.txt"
    context = small_context(tmp_path / "a,b.bin")
    alone = gputune("net-run", "--retrieve_context", context, "--input_list", one, "--output_dir", tmp_path / "results")
    assert alone.code == 0, alone.err
    assert results(tmp_path / "results") == ["Result_0/y.raw"]
    small_context(tmp_path / "c.bin")
    assert run("a,b.bin c.bin", "--input_list", f"{one},{one}").code == 0
    assert list(read_json(tmp_path / "summary.json")["contexts"]) == ["a,b", "c"]


def test_files_of_the_same_name_get_numbers() -> None:
    assert distinct(["a", "a", "b", "a.2", "a"]) == ["a", "a.2", "b", "a.2.2", "a.3"]


def test_a_list_has_commas_between_its_parts() -> None:
    assert comma_separated("a b,c") == ["a b", "c"]
    assert comma_separated('"a,""b""",,c') == ['a,"b"', "", "c"]
    for wrong in ('"a', '"a"b', "a\nb"):
        with pytest.raises(ValueError, match="a"):
            comma_separated(wrong)

"""Test context-binary-utility: what a context holds, and the memory that several need as a group."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.client.cli.context_binary_utility import _held
from gputune.client.context.verifying.origin import records_of
from gputune.client.generation.ep_context import EpContextFile
from gputune.client.run.packages import combine
from gputune.runtime import load_group
from gputune.runtime.context.format import read_header
from stress import made_up_cache
from stress.native import files
from tests.client import models
from tests.client.commands import Gputune, read_json
from tests.client.contexts import small_context
from tests.native.fake import doubling_context
from tests.onnxruntime.models import save_in_parts


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    """Contexts with one or two graphs, and arenas that are largest in different ones."""
    return [
        small_context(tmp_path / "a.bin", (1024, 256), bound=1000),
        small_context(tmp_path / "b.bin", (512, 512, 128), ("small", "large"), bound=1152),
        small_context(tmp_path / "c.bin"),
    ]


def test_of_one_the_header_and_the_memory_of_its_graphs(gputune: Gputune, three: list[Path], tmp_path: Path) -> None:
    ran = gputune("context-binary-utility", "--context_binary", three[0], "--json")
    assert (ran.code, ran.err) == (0, "")
    shown = json.loads(ran.out)
    (graph,) = shown["graphs"]
    assert (graph["arena_bytes"], graph["max_spill_fill_size"], graph["arena_bound_bytes"]) == ([1024, 256], 1280, 1000)
    assert shown["group"] == {"arena_bytes": [1024, 256], "max_spill_fill_size": 1280, "private_bytes": 1280}
    assert set(read_header(three[0]).to_dict()) < set(shown)
    ran = gputune("context-binary-utility", "--context_binary", three[0])
    assert ran.out.splitlines()[-1] == "graph 'main': max_spill_fill_size 1280 bytes, bound 1000"
    ran = gputune("context-binary-utility", "--context_binary", three[1], "--json_file", tmp_path / "b.json")
    assert ran.out.splitlines()[-3:] == [
        "graph 'small': max_spill_fill_size 1152 bytes, the least that is possible",
        "graph 'large': max_spill_fill_size 1152 bytes, the least that is possible",
        "in a group: max_spill_fill_size 1152 bytes, apart 2304 bytes (50.0%)",
    ]
    assert read_json(tmp_path / "b.json")["group"]["private_bytes"] == 2304


def test_what_graphs_remember_and_the_memory_of_that(gputune: Gputune, tmp_path: Path) -> None:
    path = tmp_path / "compact.bin"
    path.write_bytes(files.compact())
    told = " ".join(gputune("context-binary-utility", "--context_binary", path).out.split())
    assert "state: cell = new cell; 8 bytes" in told
    assert "state: keys = new keys, cell = new cell; 8 rows, of which an inference adds 2; 264 bytes" in told
    shown = json.loads(gputune("context-binary-utility", "--context_binary", path, "--json").out)
    pairs = [[pair["axis"] for pair in graph.get("states", {}).get("pairs", ())] for graph in shown["graphs"]]
    assert pairs == [[], [-1], [1, -1]]
    report = json.loads(gputune("memory-report", "--context_binary", path, "--json").out)
    assert [graph["state_bytes"] for graph in report["graphs"]] == [0, 8, 264]


def test_of_several_what_a_group_of_them_needs(gputune: Gputune, three: list[Path], tmp_path: Path) -> None:
    listed = ",".join(map(str, three))
    ran = gputune("context-binary-utility", "--context_binary", listed, "--json_file", tmp_path / "all.json")
    assert ran.code == 0, ran.err
    shown = read_json(tmp_path / "all.json")
    assert list(shown["contexts"]) == ["a", "b", "c"]
    for path, content in zip(three, shown["contexts"].values(), strict=True):
        assert content["file_bytes"] == path.stat().st_size
        assert [graph["name"] for graph in content["graphs"]] == [graph.name for graph in read_header(path).graphs]
    with load_group(three, "null") as group:
        assert shown["group"]["arena_bytes"] == list(group.memory.arenas) == [1024, 512, 128]
        assert shown["group"]["private_bytes"] == group.memory.private == 1280 + 2 * 1152
    assert shown["group"]["max_spill_fill_size"] == 1664
    *lines, without, together = ran.out.splitlines()
    assert "graph 'main' of a: max_spill_fill_size 1280 bytes, bound 1000" in lines
    assert without == "graph 'main' of c: max_spill_fill_size 0 bytes"
    assert together == "in a group: max_spill_fill_size 1664 bytes, apart 3584 bytes (46.4%)"


def test_of_an_onnx_file_the_group_of_all_its_contexts(gputune: Gputune, three: list[Path], tmp_path: Path) -> None:
    models = []
    for path in three[:2]:
        EpContextFile(tmp_path / "ctx.onnx", embed=True).write(path)
        models.append(onnx.load(str(tmp_path / "ctx.onnx")))
    models[0].graph.node.extend(models[1].graph.node)
    onnx.save(models[0], str(tmp_path / "both.onnx"))
    listed = ("context-binary-utility", "--context_binary", tmp_path / "both.onnx")
    ran = gputune(*listed)
    assert ran.code == 0, ran.err
    shown = json.loads(gputune(*listed, "--json").out)
    assert [graph["name"] for graph in shown["graphs"]] == ["main"]
    with load_group([tmp_path / "both.onnx"], "null") as group:
        assert shown["group"]["arena_bytes"] == list(group.memory.arenas) == [1024, 512, 128]
    assert "graph 'large' of both.1: max_spill_fill_size 1152 bytes" in ran.out
    assert "  EPContext node 'main', main: max_size " in ran.out


def test_of_a_model_in_parts_how_much_is_not_in_its_context(gputune: Gputune, tmp_path: Path) -> None:
    model = save_in_parts(tmp_path / "model.onnx", doubling_context(tmp_path / "parts.bin", ("one", "two")))
    ran = gputune("context-binary-utility", "--context_binary", model)
    assert ran.code == 0 and "a model in parts: its other 3 nodes run in onnxruntime" in ran.out
    assert "EPContext node 'two': max_size" in ran.out


@pytest.mark.slow
def test_a_summary_for_people_fits_a_narrow_terminal(gputune: Gputune, tmp_path: Path) -> None:
    _, path = made_up_cache.make(tmp_path)
    ran = gputune("context-binary-utility", "--context_binary", path)
    first, *lines = ran.out.splitlines()
    assert first == str(path)
    assert lines == [
        f"  size: {path.stat().st_size:,} bytes",
        f"  of its bytes: source of programs 20 (0.2%), the rest {path.stat().st_size - 20:,} (99.8%)",
        "  device: null, driver 1, null, simulated: it computes nothing",
        "  tier: null",
        "  made by: 0",
        "  programs of persistent kernels: 1; 0 bytes of binary, 20 bytes of source",
        "  graph 'net <1>': operations: 20, launches: 24, 1 as persistent kernels",
        "    inputs: x float32[2, 4]",
        "    outputs: y float32[8]",
        "    when made: inference 2.090 ms, untuned 2.410 ms: 1.15 times as fast",
        "      (1.12–1.18)",
        "graph 'net <1>': max_spill_fill_size 0 bytes",
    ]
    names = tuple(f"graph number {n} " * 8 for n in range(3))
    parts = [f"part{n}.onnx" for n in range(11)]
    large = small_context(tmp_path / "large.bin", names=names, tuning_effort="quick", models=parts)
    ran = gputune("context-binary-utility", "--context_binary", large)
    _, *lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    said = " ".join(ran.out.split())
    assert "made by: 0.1.0, tuning effort quick it is tuned it was made from part0.onnx, part1.onnx" in said
    assert "part2.onnx and 8 more, of unknown content" in said and "when made" not in said
    header = read_header(large)
    assert "weights" not in said
    first, *_ = _held(replace(header, weights=(header.programs[0].source,)))
    assert first.startswith(f"weights: {header.sections[header.programs[0].source].length:,} bytes, packed anew")
    assert f"programs: {len(header.programs)}; " in said and "of persistent kernels" not in said


FLAT = "(float[2, 4] x) => (float[8] y)", "s = Constant<value_ints=[8]>() y = Reshape(x, s)"
"""What a small context takes and gives."""


@pytest.mark.parametrize("kind", ["context", "package", "onnx"])
@pytest.mark.parametrize(
    ("model", "made_from_it", "code", "words"),
    [
        (FLAT, True, 0, "was made from model.onnx (SHA-256 "),
        (FLAT, False, 8, "null computes nothing, so outputs cannot be compared"),
        (
            ("(float[2, 5] x) => (float[2, 5] y)", "y = Relu(x)"),
            False,
            3,
            "'x' with the shape [2, 4], the model with 2x5",
        ),
    ],
)
def test_a_context_is_checked_against_a_model(
    gputune: Gputune, tmp_path: Path, kind: str, model: tuple[str, str], made_from_it: bool, code: int, words: str
) -> None:
    """A device is needed only where the digests do not decide it."""
    path = models.save(models.build(*model), tmp_path)
    records = records_of([("main", path)]) if made_from_it else ()
    context = small_context(tmp_path / "c.bin", made_from=records, tuning_effort="none")
    if kind == "package":
        combine(tmp_path / "c.pkg", [context])
        context = tmp_path / "c.pkg"
    elif kind == "onnx":
        EpContextFile(tmp_path / "c_ctx.onnx", embed=False).write(context)
        context = tmp_path / "c_ctx.onnx"
    ran = gputune("context-binary-utility", "--context_binary", context, "--check", path)
    assert (ran.code, words in ran.out + ran.err) == (code, True), ran.err


@pytest.mark.parametrize(
    ("configuration", "tuning", "words"),
    [
        ({"tuning_effort": "none"}, "none", "untuned, of tuning effort none"),
        ({"tuning_effort": "quick", "end_to_end": {"main": {"kept": "untuned"}}}, "untuned", "untuned, because tuning"),
        ({"tuning_effort": "quick"}, "tuned", "tuned"),
    ],
)
def test_an_untuned_context_is_called_so_everywhere(
    gputune: Gputune, tmp_path: Path, configuration: Mapping[str, Any], tuning: str, words: str
) -> None:
    model = models.save(models.build(*FLAT), tmp_path)
    context = small_context(tmp_path / "c.bin", made_from=records_of([("main", model)]), **configuration)
    origin = f"was made from model.onnx (SHA-256 {hashlib.sha256(model.read_bytes()).hexdigest()[:12]})"
    ran = gputune("context-binary-utility", "--context_binary", context)
    assert f"  it is {words}" in ran.out and f"  it {origin}" in ran.out
    shown = json.loads(gputune("context-binary-utility", "--context_binary", context, "--json").out)
    assert (shown["graphs"][0]["tuning"], shown["models"][0]["name"]) == (tuning, "model.onnx")
    ran = gputune("net-run", "--retrieve_context", context, "--validate_binary", "--device", "null")
    assert ran.code == 0 and f"; it {origin}, and is {words}" in ran.out
    np.zeros((2, 4), np.float32).tofile(tmp_path / "x.raw")
    (tmp_path / "list").write_text(f"x:={tmp_path / 'x.raw'}\n", encoding="utf-8")
    ran = gputune(
        "net-run", "--retrieve_context", context, "--input_list", tmp_path / "list", "--output_dir", tmp_path / "out",
        "--device", "null", "--summary_json", tmp_path / "run.json",
    )  # fmt: skip
    assert ran.code == 0 and (f"; the context is {words}" in ran.err) == (tuning != "tuned")
    assert read_json(tmp_path / "run.json")["tuning"] == tuning
    combine(tmp_path / "c.pkg", [context])
    listed = json.loads(gputune("context-binary-utility", "--context_binary", tmp_path / "c.pkg", "--json").out)
    assert listed["package"]["contexts"][0]["tuning"] == {"main": tuning}

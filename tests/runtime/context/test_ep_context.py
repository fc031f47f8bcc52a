"""Test that ONNX files with EPContext nodes lead only to the contexts that they name."""

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import gputune.runtime
from gputune.core.errors import ContextError, MalformedEpContext, NotAContext, OnlyParts, UntrustedFile
from gputune.runtime.context import ep_context
from gputune.runtime.context.ep_context import ep_contexts, read_ep_model
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import Context
from gputune.runtime.context.stored import Extent
from gputune.runtime.loading.model import open_any

X = np.ones((2, 4), np.float32)
MAIN = {"main_context": 1, "embed_mode": 0, "ep_cache_context": "context.bin", "source": "gputune"}
OTHER = {"main_context": 0, "embed_mode": 0, "source": "gputune", "partition_name": "other"}


def node(attributes: dict[str, Any], operator: str = "EPContext", domain: str = "com.microsoft") -> onnx.NodeProto:
    made = helper.make_node(operator, [], ["y"], name="node", domain=domain)
    made.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    return made


def save(folder: Path, *nodes: onnx.NodeProto | dict[str, Any]) -> Path:
    path = folder / "model.onnx"
    made = [node(one) if isinstance(one, dict) else one for one in nodes]
    path.write_bytes(helper.make_model(helper.make_graph(made, "graph", [], [])).SerializeToString())
    return path


def embedded(path: Path, **attributes: Any) -> dict[str, Any]:
    return {"ep_cache_context": path.read_bytes(), "source": "gputune", **attributes}


def test_a_node_names_its_context_beside_the_file(context_path: Path, tmp_path: Path) -> None:
    notes = {"max_size": 256, "partition_name": "main", "ep_sdk_version": "gputune 0.1.0", "notes": "größer"}
    (found,) = ep_contexts(save(tmp_path, MAIN | notes))
    assert (found.name, found.max_size, found.main) == ("main", 256, True)
    assert found.content == context_path.resolve()
    with found.open() as file:
        assert [graph.name for graph in file.header.graphs] == ["main", "other"]


def test_a_node_holds_its_context_which_is_not_copied(context_path: Path, tmp_path: Path) -> None:
    """Both flags are 1 where they are missing."""
    (found,) = ep_contexts(save(tmp_path, embedded(context_path)))
    assert (found.name, found.max_size, found.main) == ("", 0, True)
    assert isinstance(found.content, Extent)
    assert found.content.read() == context_path.read_bytes()
    with found.open() as file:
        assert bytes(file.weights(0)) == np.arange(40, dtype=np.float32).tobytes()


@pytest.mark.slow
def test_an_embedded_context_costs_memory_when_it_is_used(context: Context, tmp_path: Path) -> None:
    write_context(tmp_path / "large.bin", replace(context, weights=(np.ones(16 << 20, np.float32),)))
    path = save(tmp_path, embedded(tmp_path / "large.bin"))
    tracemalloc.start()
    try:
        opened = ep_contexts(path)[0].open()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    opened.close()


@pytest.mark.parametrize("embed", [False, True])
def test_load_takes_such_a_file_and_finds_a_graph_by_its_name(context_path: Path, tmp_path: Path, embed: bool) -> None:
    main = embedded(context_path) if embed else MAIN
    path = save(tmp_path, main | {"partition_name": "main"}, OTHER)
    executor = gputune.runtime.load(path, "null")
    assert executor.graph.name == "main" and not executor.run({"x": X})["y"].any()
    assert gputune.runtime.load(path, "null", graph="other").graph.name == "other"
    with pytest.raises(ValueError, match="there is no graph 'third'; the graphs are 'main', 'other'"):
        gputune.runtime.load(path, "null", graph="third")


def test_the_first_main_node_says_which_graph_comes_first(context_path: Path, tmp_path: Path) -> None:
    assert gputune.runtime.load(save(tmp_path, MAIN | {"partition_name": "other"}), "null").graph.name == "other"
    assert gputune.runtime.load(save(tmp_path, MAIN), "null").graph.name == "main"
    with pytest.raises(ValueError, match="no graph 'third'"):
        gputune.runtime.load(save(tmp_path, MAIN | {"partition_name": "third"}), "null")


def test_a_node_refers_to_the_nearest_main_node_before_it(context: Context, context_path: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.bin"
    write_context(second, replace(context, graphs=(replace(context.graphs[0], name="third"),)))
    path = save(
        tmp_path,
        OTHER | {"partition_name": "0"},
        MAIN | {"partition_name": "1"},
        MAIN | {"partition_name": "2", "ep_cache_context": "second.bin"},
        OTHER | {"partition_name": "3"},
    )
    found = ep_contexts(path)
    assert [one.main for one in found] == [False, True, True, False]
    assert [Path(str(one.content)).name for one in found] == ["context.bin", "context.bin", "second.bin", "second.bin"]


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([], "no EPContext node"),
        ([OTHER], "no EPContext node with main_context = 1"),
        ([node({}, "Conv", "")], "node 'node' is 'Conv', not EPContext"),
        ([node(MAIN, domain="")], "not EPContext of 'com.microsoft'"),
        ([node(MAIN, "com.microsoft.EPContext", "")], "is 'com.microsoft.EPContext', not EPContext of 'com.microsoft'"),
        ([node({}, "Conv", ""), node({}, "Relu", "")], "what `--unsupported host` wrote without any part runs in onnx"),
        ([MAIN, node({}, "Relu", "")], "a model in parts, of which gputune runs 1 and onnxruntime the other 1 nodes"),
        ([MAIN | {"source": "QNNExecutionProvider"}], "its source is 'QNNExecutionProvider'"),
        ([MAIN, OTHER | {"source": "QNN"}], "its source is 'QNN'"),
        ([{"ep_cache_context": "context.bin"}], "its source is ''"),
        ([MAIN | {"source": 1}], "source is a number, expected a text"),
        ([MAIN | {"embed_mode": 2}], "embed_mode is 2, expected 0 or 1"),
        ([MAIN | {"embed_mode": "0"}], "embed_mode is no number"),
        ([MAIN | {"main_context": -1}], "main_context is -1, expected 0 or 1"),
        ([MAIN | {"max_size": -1}], "max_size is -1"),
        ([MAIN | {"max_size": 1.5}], "max_size is no number"),
        ([MAIN | {"notes": b"\xff"}], "notes is not UTF-8"),
        ([MAIN | {"partition_name": "a\0b"}], "partition_name has a character 0"),
        ([MAIN | {"notes": "x" * 5000}], "notes has 5000 bytes, at most 4096"),
        ([{"source": "gputune"}], "ep_cache_context holds no context"),
        ([{"source": "gputune", "ep_cache_context": ""}], "ep_cache_context holds no context"),
        ([{"source": "gputune", "ep_cache_context": 5}], "ep_cache_context holds no context"),
        ([MAIN | {"partition_name": "a"}, OTHER | {"partition_name": "a"}], "two EPContext nodes have the same"),
        ([MAIN | {str(number): 1 for number in range(61)}], "an attribute twice, or more than 64"),
        ([*[OTHER] * 1024, MAIN], "more than 1024 EPContext nodes"),
    ],
)
def test_what_is_no_file_of_contexts_is_refused(
    context_path: Path, tmp_path: Path, nodes: list[Any], words: str
) -> None:
    path = save(tmp_path, *nodes)
    with pytest.raises(MalformedEpContext) as raised:
        ep_contexts(path)
    assert str(raised.value).startswith(f"{path}: ") and words in str(raised.value)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("/etc/hosts", "is absolute"),
        ("\\\\server\\share\\context.bin", "is absolute"),
        ("C:\\context.bin", "is absolute"),
        ("C:context.bin", "is absolute"),
        ("../context.bin", 'has ".."'),
        ("sub/../context.bin", 'has ".."'),
        ("sub\\..\\..\\context.bin", 'has ".."'),
        ("missing.bin", "cannot be found next to the ONNX file: No such file"),
        ("context.bin/more", "cannot be found next to the ONNX file: Not a directory"),
        ("a\0b", "has a character 0"),
        ("x" * 300, "File name too long"),
        ("circle", "cannot be found"),
        ("link", "a link that leads out of the folder"),
        ("folder/outside.bin", "a link that leads out of the folder"),
        ("sub", "is no file"),
        (".", "is no file"),
        ("fifo", "is no file"),
    ],
)
def test_a_path_leads_to_a_file_in_the_folder_or_nowhere(context_path: Path, text: str, words: str) -> None:
    home = context_path.parent / "home"
    (home / "sub").mkdir(parents=True)
    outside = context_path.rename(context_path.with_name("outside.bin"))
    (home / "link").symlink_to(outside)
    (home / "folder").symlink_to(outside.parent)
    (home / "circle").symlink_to("circle")
    os.mkfifo(home / "fifo")
    (home / "context.bin").write_bytes(outside.read_bytes())
    with pytest.raises(MalformedEpContext) as raised:
        ep_contexts(save(home, MAIN | {"ep_cache_context": text}))
    assert words in str(raised.value)


def test_a_model_in_parts_has_other_nodes_which_are_counted(context_path: Path, tmp_path: Path) -> None:
    """In any place; as EPContext nodes, more of them may be there than these."""
    others = [node({"axis": 1}, "Softmax", ""), *[node({}, "Relu", "")] * 2000, node(MAIN, domain="com.example")]
    path = save(tmp_path, others[0], MAIN | {"partition_name": "main"}, *others[1:], OTHER)
    model = read_ep_model(path)
    assert ([one.name for one in model.nodes], model.others) == (["main", "other"], 2002)
    assert [one.content for one in model.contexts] == [context_path.resolve()]
    assert open_any(path).in_parts
    with pytest.raises(OnlyParts, match="a whole context is needed here"):
        gputune.runtime.load(path)
    with pytest.raises(OnlyParts, match="a whole context is needed here"):
        gputune.runtime.load_group([path])
    assert not open_any(save(tmp_path, MAIN)).in_parts and not open_any(context_path).in_parts


def branching(*branches: Sequence[onnx.NodeProto]) -> onnx.NodeProto:
    """An If with these nodes in its branches."""
    graphs = [helper.make_graph(list(nodes), "branch", [], []) for nodes in branches]
    return helper.make_node("If", ["x"], ["y"], **dict(zip(("then_branch", "else_branch"), graphs, strict=True)))


def test_branches_have_parts_of_their_own(context_path: Path, tmp_path: Path) -> None:
    """As ONNX Runtime sees each graph alone, each has a main node."""
    inner = branching([node(MAIN | {"partition_name": "3"})], [node({}, "Relu", "")])
    outer = branching([node({}, "Relu", ""), inner], [node(MAIN | {"partition_name": "1"}), node(OTHER)])
    model = read_ep_model(save(tmp_path, outer, MAIN | {"partition_name": "0"}))
    assert [(one.name, one.main) for one in model.nodes] == [("0", True), ("1", True), ("other", False), ("3", True)]
    assert model.others == 4
    assert [one.name for one in read_ep_model(save(tmp_path, inner)).nodes] == ["3"]
    with pytest.raises(MalformedEpContext, match="no EPContext node with main_context = 1"):
        read_ep_model(save(tmp_path, MAIN, branching([node(OTHER)], [])))
    same = read_ep_model(save(tmp_path, MAIN | {"partition_name": "3"}, inner))
    assert [one.name for one in same.nodes] == ["3", "3"]
    with pytest.raises(MalformedEpContext, match="this is a model and no context: its node '' is 'If'"):
        read_ep_model(save(tmp_path, branching([node({}, "Relu", "")], [])))
    deep = inner
    for _ in range(20):
        deep = branching([deep], [])
    assert read_ep_model(save(tmp_path, deep)).others == 22


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ({"source": "QNN"}, "its source is 'QNN'"),
        ({"main_context": 0}, "no EPContext node with main_context = 1"),
        ({"ep_cache_context": "missing.bin"}, "cannot be found next to the ONNX file"),
    ],
)
def test_a_model_in_parts_is_checked_as_contexts_are(tmp_path: Path, inner: dict[str, Any], words: str) -> None:
    with pytest.raises(MalformedEpContext, match=words) as raised:
        open_any(save(tmp_path, node({}, "Relu", ""), MAIN | inner))
    assert not isinstance(raised.value, OnlyParts)


def test_a_path_may_lead_into_folders_and_through_links_that_stay(context_path: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a..b.bin").write_bytes(context_path.read_bytes())
    (tmp_path / "link").symlink_to("sub/a..b.bin")
    for text in ("sub/a..b.bin", "./sub//a..b.bin", "link"):
        (found,) = ep_contexts(save(tmp_path, MAIN | {"ep_cache_context": text}))
        assert found.content == (tmp_path / "sub" / "a..b.bin").resolve()


def test_what_a_path_leads_to_is_a_context_and_no_second_file_of_this_kind(tmp_path: Path) -> None:
    path = save(tmp_path, MAIN | {"ep_cache_context": "model.onnx"})
    with pytest.raises(NotAContext, match=r"model\.onnx"):
        gputune.runtime.load(path, "null")
    with pytest.raises(NotAContext, match=r"model\.onnx: not a gputune context binary"):
        gputune.runtime.load(save(tmp_path, {"source": "gputune", "ep_cache_context": b"hello"}), "null")


@pytest.mark.parametrize("name", ["model.onnx", "context.bin"])
def test_neither_file_may_be_one_that_another_user_could_change(context_path: Path, tmp_path: Path, name: str) -> None:
    path = save(tmp_path, MAIN)
    (tmp_path / name).chmod(0o666)
    with pytest.raises(UntrustedFile, match=f"{name} can be written by every user"):
        gputune.runtime.load(path, "null")


def test_a_writer_may_leave_out_zeros_and_add_fields(context_path: Path, tmp_path: Path) -> None:
    """As those of proto3 do the one; and fields of all types are stepped over."""
    made = node(MAIN | {"max_size": 0, "unknown": [1.0, 2.0]})
    for attribute in made.attribute:
        if attribute.type == onnx.AttributeProto.INT and attribute.i == 0:
            attribute.ClearField("i")
    path = save(tmp_path, made)
    own = b"\x9d\x06abcd" + b"\x99\x06abcdefgh" + b"\xa0\x06\xff\x01" + b"\xaa\x06\x02hi"
    path.write_bytes(own + path.read_bytes())
    (found,) = ep_contexts(path)
    assert (found.max_size, found.content) == (0, context_path.resolve())


def message(field: int, content: bytes) -> bytes:
    length, size = len(content), bytearray()
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([field << 3 | 2, *size, length]) + content


NAMED = message(4, b"EPContext") + message(7, b"com.microsoft")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty (0 bytes)"),
        (b"version https://git-lfs.github.com/spec/v1\n", "it is a Git LFS pointer"),
        (b"\x08", "a number is cut off"),
        (b"\x08" + b"\xff" * 11, "a number is cut off or too large"),
        (b"\x08" + b"\xff" * 9 + b"\x02", "a number is cut off or too large"),
        (b"\xff\xff\xff\xff\x7f\x00", "a number is cut off or too large"),
        (b"\x80\x80\x80\x80\x80\x00\x00", "a number is cut off or too large"),
        (b"\x00\x00", "there is no field 0"),
        (b"\x3a\xff\xff\xff\xff\x0f", "4294967295 bytes, 0 are there"),
        (b"\x0d\x00\x00", "4 bytes, 2 are there"),
        (b"\x0b\x0c", "the wire type 3"),
        (b"\x0f", "the wire type 7"),
        (b"\x08\x01", "it has no graph"),
        (b"\x38\x01", "field 7 occurs twice, or is of another type"),
        (message(7, b"") * 2, "field 7 occurs twice"),
        (message(7, b"\x08\x01"), "field 1 is of another type"),
        (message(7, message(1, message(4, b"Conv") * 2)), "field 4 occurs twice"),
        (message(7, message(1, message(3, b"\xff"))), "a node's name is not UTF-8"),
        (message(7, message(1, message(4, b"x" * 5000))), "a node's operator has 5000 bytes"),
        (message(7, message(1, NAMED + b"\x28\x01")), "field 5 is of another type"),
        (message(7, message(1, NAMED + message(5, message(1, b"a") * 2))), "field 1 occurs twice"),
        (message(7, message(1, NAMED + message(5, message(1, b"a")) * 2)), "an attribute twice"),
        (message(7, message(1, NAMED + message(5, b"\xa2\x01\x00"))), "field 20 occurs twice, or is of another type"),
    ],
)  # fmt: skip
def test_damaged_fields_are_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(MalformedEpContext) as raised:
        ep_contexts(path)
    assert words in str(raised.value)


def test_hostile_sizes_cost_neither_memory_nor_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is too large, one that is a hole of almost two gigabytes, and one of very many fields."""
    path = tmp_path / "model.onnx"
    path.touch()
    tracemalloc.start()
    try:
        for size, words in ((2**31, "an ONNX file has 1 to 2147483647"), (2**31 - 1, "there is no field 0")):
            with path.open("r+b") as file:
                file.truncate(size)
            with pytest.raises(MalformedEpContext, match=words):
                ep_contexts(path)
        monkeypatch.setattr(ep_context, "MOST_FIELDS", 1000)
        nodes = message(7, message(1, NAMED + b"\x48\x01" * 200) * 3)
        for many in (b"\x08\x01" * 1001, message(7, b"\x58\x01" * 1000), nodes):
            path.write_bytes(many)
            with pytest.raises(MalformedEpContext, match="more than 1000 fields"):
                ep_contexts(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_cannot_be_read_is_an_os_error(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.onnx", tmp_path):
        with pytest.raises(OSError):
            ep_contexts(path)


def test_every_error_has_a_name() -> None:
    assert issubclass(MalformedEpContext, ContextError) and MalformedEpContext.name == "malformed_ep_context"
    assert gputune.runtime.MalformedEpContext is MalformedEpContext


@pytest.mark.slow
def test_a_device_needs_neither_onnx_nor_protobuf(context_path: Path, tmp_path: Path) -> None:
    script = f"""
import sys, gputune.runtime, numpy
gputune.runtime.load({str(save(tmp_path, MAIN))!r}, "null").run({{"x": numpy.ones((2, 4), numpy.float32)}})
print(sorted({{"onnx", "google", "google.protobuf", "gputune.client"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Test the generator with --unsupported host: parts in the context, the rest in an ONNX file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from gputune.client.errors import ConfigError
from gputune.client.generation.ep_context.file import IR_VERSION, ONNX_OPSET
from gputune.core.json_text import json_value
from gputune.runtime.context.ep_context import COMPATIBILITY_KEY
from tests.client import models
from tests.client.commands import Generate, Generated, Gputune
from tests.client.model.test_parts import double_inside


@pytest.fixture
def in_parts(generate: Generate) -> Callable[..., Generated]:
    """Generates without tuning, by default of a model with a float64 tensor inside."""

    def run(*arguments: object, dimensions: tuple[str, ...] = ("n=1",), **how: Any) -> Generated:
        given = [word for each in dimensions for word in ("--input_dimensions", each)]
        return generate("--unsupported", "host", *given, *arguments, **{"model": double_inside(), **how})

    return run


def nodes_of(path: Path) -> list[onnx.NodeProto]:
    return [node for node in onnx.load(str(path)).graph.node if node.op_type == "EPContext"]


def attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}


def test_each_part_is_a_graph_of_the_context_and_a_node_of_the_file(in_parts: Any, tmp_path: Path) -> None:
    ran = in_parts()
    header = ran.header
    assert "2 parts run on the device with 100.0% of the multiply-adds; 5 nodes stay in onnxruntime" in ran.err
    output = tmp_path / "output"
    assert sorted(path.name for path in output.iterdir()) == ["small.bin", "small_ctx.onnx"]
    assert [graph.name for graph in header.graphs] == ["small_part1", "small_part2"]
    assert header.configuration["unsupported"] == "host"
    model = onnx.load(str(output / "small_ctx.onnx"))
    assert [entry.key for entry in model.metadata_props] == [COMPATIBILITY_KEY]
    first, second = nodes_of(output / "small_ctx.onnx")
    assert (list(first.input), list(first.output)) == (["x"], ["b"])
    assert (list(second.input), list(second.output)) == (["b", "d"], ["e", "y"])
    assert attributes(first)["ep_cache_context"] == b"small.bin" and attributes(first)["main_context"] == 1
    assert attributes(second)["partition_name"] == b"small_part2" and attributes(second)["main_context"] == 0
    (cut,) = ran.summary["models_in_parts"]
    assert [part["graph"] for part in cut["parts"]] == ["small_part1", "small_part2"]
    assert cut["host_ops"] == {"Cast": 2, "Mul": 1, "NonZero": 1, "Size": 1}
    assert cut["file"]["path"] == str(output / "small_ctx.onnx") and cut["share"] == pytest.approx(1)


def test_without_the_option_the_error_names_it(generate: Generate, tmp_path: Path) -> None:
    ran = generate("--input_dimensions", "n=1", model=double_inside())
    assert ran.code == 3 and ran.last_line.endswith(
        "--unsupported host lets onnxruntime run what cannot run on the device"
    )
    assert not (tmp_path / "output").exists()


def test_each_choice_of_shapes_has_a_file(in_parts: Any, tmp_path: Path) -> None:
    """All name one context, in which equal weights are stored once."""
    ran = in_parts(dimensions=("n=1", "n=3"))
    assert ran.code == 0, ran.err
    output = tmp_path / "output"
    assert sorted(path.name for path in output.glob("*.onnx")) == ["small_ctx_1.onnx", "small_ctx_3.onnx"]
    for size, path in ((1, output / "small_ctx_1.onnx"), (3, output / "small_ctx_3.onnx")):
        nodes = nodes_of(path)
        names = [f"small_{size}_part1", f"small_{size}_part2"]
        assert [attributes(node)["partition_name"] for node in nodes] == [name.encode() for name in names]
        assert [attributes(node)["main_context"] for node in nodes] == [1, 0]
        (x,) = onnx.load(str(path)).graph.input
        assert x.type.tensor_type.shape.dim[0].dim_value == size


@pytest.mark.parametrize("mode", ["0", "1"])
def test_the_file_may_have_another_place_and_hold_the_context(in_parts: Any, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "mine.onnx"
    ran = in_parts("--ep_context", path, "--ep_context_embed_mode", mode)
    assert ran.code == 0, ran.err
    content = attributes(nodes_of(path)[0])["ep_cache_context"]
    assert content == (ran.context.read_bytes() if mode == "1" else b"output/small.bin")


def test_a_whole_model_is_one_node(in_parts: Any, tmp_path: Path) -> None:
    """Which an onnxruntime that is older than the model opens, too."""
    model = models.conv_relu_gemm()
    model.ir_version, model.opset_import[0].version = 12, 24
    ran = in_parts(model=model, dimensions=())
    assert ran.code == 0 and "all of it runs on the device" in ran.err
    written = onnx.load(str(tmp_path / "output" / "small_ctx.onnx"))
    assert [node.op_type for node in written.graph.node] == ["EPContext"]
    assert written.ir_version == IR_VERSION
    assert {one.domain: one.version for one in written.opset_import} == {"": ONNX_OPSET, "com.microsoft": 1}


def test_without_any_part_only_the_model_is_written_with_a_warning(in_parts: Any, tmp_path: Path) -> None:
    model = models.build("(float[1,8] x) => (float y)", "d = Cast<to=11>(x) y = Cast<to=1>(d)")
    ran = in_parts(model=model, dimensions=())
    assert ran.code == 0
    assert "warning: " in ran.err and "no part runs on the device; 2 nodes stay in onnxruntime (" in ran.err
    assert [path.name for path in (tmp_path / "output").iterdir()] == ["small_ctx.onnx"]
    summary = ran.summary
    assert summary["context"]["sha256"] is None and summary["models_in_parts"][0]["parts"] == []
    gate = in_parts("--fail_under", "1.1", model=model, dimensions=(), effort="quick")
    assert gate.code != 0 and "no part of the model runs on the device" in gate.last_line


@pytest.mark.parametrize(
    ("options", "keys", "name"),
    [
        (("--enable_intermediate_outputs",), {}, "--enable_intermediate_outputs"),
        (("--set_output_tensors", "b"), {}, "--set_output_tensors"),
        ((), {"context_configs": {"enable_graphs": ["small_part1"]}}, "enable_graphs"),
    ],
)
def test_wishes_that_would_change_parts_are_refused(
    in_parts: Any, options: tuple[str, ...], keys: dict[str, object], name: str
) -> None:
    ran = in_parts(*options, **keys)
    assert ran.code == ConfigError.exit_code and ran.last_line.startswith(f"error: {name} has no meaning with")


def test_model_check_shows_the_parts(gputune: Gputune, tmp_path: Path) -> None:
    model = models.save(double_inside(), tmp_path)
    ran = gputune("model-check", model, "--input_dimensions", "n=1")
    assert ran.code == 9
    assert "with --unsupported host: 2 parts with 100.0% of the multiply-adds run on the device; 5 nodes" in ran.out
    assert "small_part2: Conv 1, Add 1, GlobalAveragePool 1" in ran.out
    content = json_value(gputune("model-check", model, "--input_dimensions", "n=1", "--json").out)
    assert [part["ops"] for part in content["in_parts"]["parts"]] == [
        {"Conv": 1, "Relu": 1},
        {"Conv": 1, "Add": 1, "GlobalAveragePool": 1},
    ]
    assert content["why_no_parts"] is None


def test_weights_of_the_rest_that_lie_in_other_files_come_inside(in_parts: Any, tmp_path: Path) -> None:
    """The file may lie in another folder than the model, and weights of parts have no use in it."""
    path = tmp_path / "model.onnx"
    onnx.save(double_inside(), path, save_as_external_data=True, size_threshold=0, location="weights.data")
    ran = in_parts(model=path)
    assert ran.code == 0, ran.err
    rest = onnx.load(str(tmp_path / "output" / "small_ctx.onnx"))
    assert sorted(item.name for item in rest.graph.initializer) == ["half", "shape/value"]
    assert all(not item.external_data for item in rest.graph.initializer)

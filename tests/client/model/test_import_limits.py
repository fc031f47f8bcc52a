"""Test what import refuses before any tuning: what no context can hold, and what takes memory without end."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.reference
import pytest

from gputune.client.errors import ModelError
from gputune.client.model.importer import inlining, read_model
from gputune.client.model.importer.folding import FOLDED_BYTES, Budget
from gputune.client.model.lowering import lower
from gputune.client.model.reference import evaluate
from tests.client.models import build, integers, numbers, save


def refusal(model: onnx.ModelProto, folder: Path) -> str:
    """The one line by which a model is refused at import or when it is lowered."""
    with pytest.raises(ModelError) as caught:
        lower(read_model(save(model, folder)))
    assert "\n" not in caught.value.message
    return caught.value.message


class TestEnds:
    """Inputs and outputs, as a context binary holds them."""

    def test_an_output_that_is_listed_twice(self, tmp_path: Path) -> None:
        said = refusal(build("(float[2] x) => (float[2] y, float[2] y)", "y = Relu(x)"), tmp_path)
        assert said.endswith("is listed twice; list it once") and "output 'y'" in said

    def test_no_outputs(self, tmp_path: Path) -> None:
        assert "has no outputs" in refusal(build("(float[2] x) => ()", "y = Relu(x)"), tmp_path)

    @pytest.mark.parametrize("end", ["x", "y"])
    def test_more_dimensions_than_a_context_knows(self, tmp_path: Path, end: str) -> None:
        ones = ",".join("1" * 17)
        shapes = {"x": "1", "y": "1", end: ones}
        model = build(
            f"(float[{shapes['x']}] x) => (float[{shapes['y']}] y)",
            "y = Reshape(x, to)",
            {"to": integers(*map(int, shapes["y"].split(",")))},
        )
        assert f"tensor {end!r}" in (said := refusal(model, tmp_path)) and "17 dimensions; 16 are supported" in said

    @pytest.mark.parametrize("missing", ["shape", "type"])
    @pytest.mark.parametrize("apart", [False, True], ids=["one file", "weights apart"])
    def test_an_output_without_a_shape_has_that_which_is_computed(
        self, tmp_path: Path, missing: str, apart: bool
    ) -> None:
        model = build("(float[2,3] x) => (float[2,4] y)", "y = MatMul(x, w)", {"w": (3, 4)})
        if missing == "type":
            model.graph.output[0].ClearField("type")
        else:
            model.graph.output[0].type.tensor_type.ClearField("shape")
        path = tmp_path / "model.onnx"
        onnx.save(model, path, save_as_external_data=apart, location="weights.bin", size_threshold=0)
        assert read_model(path).shape("y") == (2, 4)

    def test_an_input_without_a_shape_takes_the_one_that_is_given(self, tmp_path: Path) -> None:
        model = build("(float[2] x) => (float[n] y)", "y = Relu(x)")
        model.graph.input[0].type.tensor_type.ClearField("shape")
        assert "of unknown rank" in refusal(model, tmp_path)
        assert read_model(save(model, tmp_path), {"x": (2, 3)}).shape("y") == (2, 3)

    def test_a_name_that_is_no_utf8(self, tmp_path: Path) -> None:
        path = tmp_path / "model\udcff.onnx"
        path.write_bytes(build("(float[2] x) => (float[2] y)", "y = Relu(x)").SerializeToString())
        with pytest.raises(ModelError, match="has a name that is not UTF-8"):
            read_model(path)


def nest(depth: int) -> onnx.ModelProto:
    """Functions of which each calls the one before it twice."""
    imports = 'opset_import: ["" : 17, "local" : 1]'
    functions = "".join(
        f'<domain: "local", {imports}> f{n} (a) => (b) {{ c = local.f{n - 1}(a) b = local.f{n - 1}(c) }}\n'
        for n in range(depth, 0, -1)
    )
    last = f'<domain: "local", {imports}> f0 (a) => (b) {{ b = Relu(a) }}'
    graph = f"<ir_version: 8, {imports}> g (float[2] x) => (float[2] y) {{ y = local.f{depth}(x) }}"
    return onnx.parser.parse_model(f"{graph}\n{functions}{last}")


class TestExpansion:
    """Small models that stand for large ones."""

    def test_functions_are_counted_before_they_are_expanded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def expand(model: onnx.ModelProto) -> onnx.ModelProto:
            raise AssertionError("this takes minutes")

        monkeypatch.setattr(onnx.inliner, "inline_local_functions", expand)
        said = refusal(nest(24), tmp_path)
        assert f"has {2**24} nodes once its functions are expanded; {inlining.MOST_NODES} are supported" in said

    def test_functions_within_the_limit_are_expanded(self, tmp_path: Path) -> None:
        assert len(read_model(save(nest(5), tmp_path)).nodes) == 2**5

    def test_bodies_of_operators_count(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gputune.client.model.importer.graph_builder.MOST_NODES", 20)
        body = "".join(f"t{n} = Relu({f't{n - 1}' if n else 'x'})\n" for n in range(20))
        model = build("(float[2] x) => (float[2] y)", f"{body} y = Relu(t19)")
        assert "has more than 20 nodes" in refusal(model, tmp_path)


@pytest.fixture
def _little_memory() -> Iterator[None]:
    """An address space of 2 GiB more than there is now, in which an accident ends early."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("_little_memory")
class TestFolding:
    """Constants that become large when they are computed."""

    @pytest.mark.parametrize(
        ("body", "weights"),
        [
            ("c = ConstantOfShape(s)", {"s": integers(2**31)}),
            ("c = Expand(v, s)", {"v": numbers(1, 2), "s": integers(2**30, 1)}),
            ("c = Range(from, to, by)", {"from": numbers(0), "to": numbers(1e13), "by": numbers(1)}),
            ("c = MatMul(u, v)", {"u": (20000, 1), "v": (1, 20000)}),
        ],
        ids=["of shape", "expanded", "counted", "multiplied"],
    )
    def test_large_constants_are_not_made(self, tmp_path: Path, body: str, weights: dict[str, Any]) -> None:
        model = build("(float[2] x) => (float[2] y)", f"{body} d = ReduceSum<keepdims=0>(c) y = Add(x, d)", weights)
        said = refusal(model, tmp_path)
        assert f"{FOLDED_BYTES} are allowed" in said and "node 'c'" in said

    def test_many_constants_count_together(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gputune.client.model.importer.folding.FOLDED_BYTES", 1 << 20)
        body = "".join(f"c{n} = Expand(v, s) d{n} = ReduceSum(c{n})\n" for n in range(5))
        model = build(
            "(float[1] x) => (float[1] y)", f"{body} y = Add(x, d4)", {"v": numbers(1), "s": integers(1 << 16)}
        )
        assert "node 'c3'" in refusal(model, tmp_path)

    def test_what_a_model_holds_may_become_several_times_as_large(self) -> None:
        budget = Budget(FOLDED_BYTES)
        budget.spend(16 * FOLDED_BYTES)
        with pytest.raises(ValueError, match="are allowed"):
            budget.spend(1)
        budget.hold(1)
        budget.spend(15)


def test_sizes_by_scales_and_corners_are_as_onnx_has_them(tmp_path: Path) -> None:
    """10 * 2.3 is 22, and corners are aligned by 10 * 1.25, before rounding; see interpolation.py."""
    attributes = 'mode="linear", coordinate_transformation_mode="align_corners"'
    signature = "(float[1,1,1,10] x) => (float[a,b,c,d] y)"
    model = build(signature, f"y = Resize<{attributes}>(x, , s)", {"s": numbers(1, 1, 1, 2.3)}, opset=17)
    assert read_model(save(model, tmp_path)).shape("y") == (1, 1, 1, 22)
    model = build(signature, f"y = Resize<{attributes}>(x, , s)", {"s": numbers(1, 1, 1, 1.25)}, opset=17)
    x = np.arange(10, dtype=np.float32).reshape(1, 1, 1, 10)
    want = np.asarray(next(iter(onnx.reference.ReferenceEvaluator(model).run(None, {"x": x}))))
    assert np.allclose(want[0, 0, 0], np.arange(12) * 9 / 11.5)
    assert np.allclose(evaluate(lower(read_model(save(model, tmp_path))), {"x": x})["y"], want, atol=1e-6)

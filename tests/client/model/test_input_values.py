"""Test making inputs of a model constants: their types, their shapes, and what is said of values that do not fit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

from gputune.client.context.verifying.verification import ground_truth_for
from gputune.client.errors import ConfigError, ModelError
from gputune.client.generation.request import GenerationRequest, effective_configuration
from gputune.client.input_lists import constants_in, read_input_list
from gputune.client.model.graphs import read_graphs
from gputune.client.model.importer import Value, read_model, read_static_inputs, told_value, value_of
from gputune.client.model.lowering import lower
from gputune.client.model.model_files import ModelFile, model_files
from gputune.client.model.plan import Plan
from gputune.client.model.reference import evaluate
from gputune.client.options.config import Config
from gputune.client.tuning.search.effort import EFFORTS
from gputune.runtime.context.records import TensorRecord
from tests.client.models import Array, build, save

RATE = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x, int64 sr) => (float[1,4] y)
            <int64 high = {16000}> {
              c = Equal(sr, high)
              y = If(c) <then_branch = a () => (float[1,4] p) { p = Neg(x) },
                         else_branch = b () => (float[1,4] q) { q = Exp(x) }> }"""
"""What voice detectors do with their sampling rate."""
PLAN = Plan("g", (), (), (), {}, {}, {})


def rate_model(folder: Path) -> Path:
    return save(onnx.parser.parse_model(RATE), folder)


def request_of(path: Path, **values: Value) -> GenerationRequest:
    """A generation of a model with values of its inputs."""
    return GenerationRequest([ModelFile(path, values=values)], Path("m.bin"), Config(), EFFORTS["quick"], Path("cache"))


def of_type(folder: Path, kind: str) -> Path:
    """A model that adds an input of a type, made float, to the other."""
    return save(build(f"(float[2,3] x, {kind} v) => (float[2,3] y)", "f = Cast<to=1>(v) y = Add(x, f)"), folder)


def constant(path: Path, value: Value, dimensions: Mapping[str, tuple[int, ...]] | None = None) -> Array:
    """What input v becomes, everywhere alike."""
    found = read_model(path, dimensions, {"v": value}).constant_inputs["v"]
    np.testing.assert_array_equal(read_static_inputs(path, dimensions or {}, {"v": value})[1]["v"], found)
    return found


def test_a_value_decides_which_branch_is_lowered(tmp_path: Path) -> None:
    path = rate_model(tmp_path)
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    for rate, want in ((16000, -x), (8000, np.exp(x))):
        graph = read_model(path, {}, {"sr": rate})
        assert graph.inputs == ("x",) and graph.constant_inputs == {"sr": rate}
        np.testing.assert_allclose(evaluate(lower(graph), {"x": x})["y"], want, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "value", "want"),
    [
        ("int64", 5, np.int64(5)),
        ("int64", 5.0, np.int64(5)),
        ("uint8", 255, np.uint8(255)),
        ("uint64", 2**64 - 1, np.uint64(2**64 - 1)),
        ("float", 0.5, np.float32(0.5)),
        ("float", 3, np.float32(3)),
        ("double", 0.1, np.float64(0.1)),
        ("bool", True, np.bool_(True)),
        ("int32[3]", 7, np.full(3, 7, np.int32)),
        ("int32[2,3]", (1, 2, 3, 4, 5, 6), np.arange(1, 7, dtype=np.int32).reshape(2, 3)),
        ("int32[2,3]", ((1, 2, 3), (4, 5, 6)), np.arange(1, 7, dtype=np.int32).reshape(2, 3)),
        ("int32[N]", (1, 2, 3), np.array([1, 2, 3], np.int32)),
        ("int32[1]", (4,), np.array([4], np.int32)),
        ("bool[3]", (True, False, True), np.array([True, False, True])),
    ],
)
def test_a_value_has_the_type_and_the_shape_of_its_input(tmp_path: Path, kind: str, value: Value, want: Any) -> None:
    found = constant(of_type(tmp_path, kind), value)
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want, strict=True)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("int64", 0.5, "is int64, and 0.5 is no number of that type"),
        ("uint8", 256, "is uint8, and 256 is no number of that type"),
        ("uint64", -1, "is uint64, and -1 is no number of that type"),
        ("int64", 2**64 - 1, "is int64, and 18446744073709551615 is no number of that type"),
        ("float", 1e39, "is float32, and 1e+39 is no number of that type"),
        ("int64[3]", (1, 2.5, 3), "is int64, and 2.5 is no number of that type"),
        ("bool", 1, "is bool; give it true or false"),
        ("int64", True, "is int64; give it numbers"),
        ("int64[3]", (1, 2), "has 3 elements along axis 0, its value has 2"),
        ("int64[2,3]", (1, 2), "takes 6 numbers, its value has 2"),
        ("int64[2,3]", ((1, 2), (3, 4)), "has 3 elements along axis 1, its value has 2"),
        ("int64[3]", ((1, 2, 3),), "has 1 dimension, its value has 2"),
        ("int64", (1, 2), "takes 1 number, its value has 2"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, kind: str, value: Value, said: str) -> None:
    path = of_type(tmp_path, kind)
    with pytest.raises(ModelError) as caught:
        read_model(path, {}, {"v": value})
    assert caught.value.message == f"--input_value: input 'v' of model {path} {said}"


class TestShapes:
    """Dynamic dimensions and unknown ranks."""

    @pytest.mark.parametrize("kind", ["int64[N,3]", "double[N,3]"])
    def test_a_number_needs_a_shape(self, tmp_path: Path, kind: str) -> None:
        path = of_type(tmp_path, kind)
        with pytest.raises(ModelError, match=r"'v' of model .* has dynamic dimensions .* --input_dimensions v=1,3$"):
            read_model(path, {}, {"v": 1})
        for given in ({"v": (2, 3)}, {"N": (2,)}):
            np.testing.assert_array_equal(constant(path, 1, given), np.ones((2, 3)))

    def test_numbers_decide_a_dimension_of_other_inputs(self, tmp_path: Path) -> None:
        path = save(build("(float[N] x, int64[N] v) => (float[N] y)", "f = Cast<to=1>(v) y = Add(x, f)"), tmp_path)
        assert read_model(path, {}, {"v": (1, 2, 3)}).shape("x") == (3,)

    def test_a_value_and_dimensions_have_to_agree(self, tmp_path: Path) -> None:
        path = of_type(tmp_path, "int64[N,M]")
        numbers = (1, 2, 3, 4, 5, 6)
        assert constant(path, numbers, {"v": (2, 3)}).shape == (2, 3)
        assert constant(path, ((1, 2, 3),), {"v": (1, 3)}).shape == (1, 3)
        with pytest.raises(ModelError, match=r"'v' of model .* takes 4 numbers, its value has 6"):
            read_model(path, {"v": (2, 2)}, {"v": numbers})
        with pytest.raises(ModelError, match=r"'v' of model .* has 2 elements along axis 0, its value has 1"):
            read_model(path, {"v": (2, 3)}, {"v": ((1, 2, 3),)})

    def test_an_input_of_unknown_rank_has_that_of_its_value(self, tmp_path: Path) -> None:
        model = build("(float[2,3] x, int64[3] v) => (float[2,3] y)", "f = Cast<to=1>(v) y = Add(x, f)")
        model.graph.input[1].type.tensor_type.ClearField("shape")
        path = save(model, tmp_path)
        assert constant(path, 5).shape == ()
        assert constant(path, (1, 2, 3)).shape == (3,)
        assert constant(path, (1, 2, 3), {"v": (1, 3)}).shape == (1, 3)

    def test_an_input_without_elements(self, tmp_path: Path) -> None:
        path = save(build("(float[N,3] v, float[2,3] x) => (float[n,3] y)", "y = Concat<axis=0>(v, x)"), tmp_path)
        assert constant(path, 1, {"N": (0,)}).shape == (0, 3)


def test_an_initializer_that_is_an_input_gets_another_value(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, float v) => (float[2] y) { y = Mul(x, v) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2, np.float32), "v"))
    path = save(model, tmp_path)
    assert read_model(path).inputs == read_model(path, {}, {"v": 3}).inputs == ("x",)
    plan = lower(read_model(path, {}, {"v": 3}))
    truth = ground_truth_for([path], None, [plan])
    (inputs,) = truth.inputs[plan.name]
    want = truth.oracles[plan.name].run(inputs)["y"]
    np.testing.assert_allclose(want, 3 * inputs["x"], rtol=1e-6)
    np.testing.assert_allclose(evaluate(plan, inputs)["y"], want, rtol=1e-6)


def test_an_unknown_input_is_refused_with_the_nearest(tmp_path: Path) -> None:
    path = rate_model(tmp_path)
    with pytest.raises(ModelError, match=r"--input_value: model .* has no input 'ssr'; did you mean 'sr'\?"):
        read_model(path, {}, {"ssr": 16000})


def test_an_input_that_no_kernel_takes_may_be_a_constant(tmp_path: Path) -> None:
    """What it is made by folding counts."""
    path = of_type(tmp_path, "double")
    with pytest.raises(ModelError, match="it is float64"):
        read_model(path)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(evaluate(lower(read_model(path, {}, {"v": 0.5})), {"x": x})["y"], x + 0.5)


class TestSeveralModels:
    """A value holds for each model that has the input."""

    def paths(self, folder: Path) -> list[Path]:
        other = build("(float[2] x) => (float[2] y)", "y = Relu(x)")
        models = {"low": onnx.parser.parse_model(RATE), "high": onnx.parser.parse_model(RATE), "other": other}
        return [save(model, folder).rename(folder / f"{name}.onnx") for name, model in models.items()]

    def test_each_that_has_it(self, tmp_path: Path) -> None:
        files = model_files(self.paths(tmp_path), (), {"sr": 16000})
        assert [file.values for file in files] == [{"sr": 16000}, {"sr": 16000}, {}]
        assert [graph.inputs for graph in read_graphs(files)] == [("x",)] * 3

    def test_one_by_its_name(self, tmp_path: Path) -> None:
        files = model_files(self.paths(tmp_path), (), {"sr": 16000, "low:sr": 8000})
        assert [file.values for file in files] == [{"sr": 8000}, {"sr": 16000}, {}]

    def test_none_has_it(self, tmp_path: Path) -> None:
        said = r"--input_value: none of the models low, high, other has an input 'ssr'; did you mean 'sr'\?"
        with pytest.raises(ConfigError, match=said):
            model_files(self.paths(tmp_path), (), {"ssr": 1})


class TestValues:
    """What programs and config files give."""

    @pytest.mark.parametrize(
        ("given", "want"),
        [
            (16000, 16000),
            (np.int64(16000), 16000),
            (np.float32(0.5), 0.5),
            ([1, 2], (1, 2)),
            (np.array([[1.5], [2.0]]), ((1.5,), (2.0,))),
            (True, True),
        ],
    )
    def test_a_value_is_plain(self, given: object, want: Value) -> None:
        assert value_of(given, "v") == want and type(value_of(given, "v")) is type(want)

    @pytest.mark.parametrize("given", ["16000", None, [1, True], [[1], [1, 2]], {"a": 1}, 1j, float("nan"), 1e999])
    def test_what_is_no_value_is_refused(self, given: object) -> None:
        with pytest.raises(ConfigError, match=r"^input_values: "):
            value_of(given, "input_values")

    def test_a_long_value_is_told_by_a_digest(self) -> None:
        assert told_value((1, 2)) == [1, 2] and told_value(5) == 5
        told, other = told_value(tuple(range(100))), told_value(tuple(range(1, 101)))
        assert isinstance(told, dict) and isinstance(other, dict)
        assert told["shape"] == other["shape"] == [100] and told["sha256"] != other["sha256"]


def test_an_input_list_cannot_name_a_constant(tmp_path: Path) -> None:
    path, listed = rate_model(tmp_path), tmp_path / "list.txt"
    listed.write_text("x:=x.npy sr:=sr.npy\n", encoding="utf-8")
    plan = lower(read_model(path, {}, {"sr": 16000}))
    said = r"list\.txt:1: input 'sr' was fixed by --input_value; leave it out"
    with pytest.raises(ConfigError, match=said):
        ground_truth_for([path], listed, [plan])
    configuration = effective_configuration(request_of(path, sr=16000), [PLAN])
    with pytest.raises(ConfigError, match=said):
        read_input_list(listed, (TensorRecord("x", (1, 4), "float32"),), constants_in(configuration))
    assert constants_in({}) == constants_in({"input_values": 1}) == constants_in({"input_values": [1]}) == set()


def test_a_generation_with_another_value_is_another(tmp_path: Path) -> None:
    path = rate_model(tmp_path)
    requests = [request_of(path), *(request_of(path, sr=rate) for rate in (8000, 16000, 16000))]
    assert len({one.fingerprint("tier", ()) for one in requests}) == 3
    told = [effective_configuration(one, [PLAN])["input_values"] for one in requests]
    assert told == [[{}], [{"sr": 8000}], [{"sr": 16000}], [{"sr": 16000}]]

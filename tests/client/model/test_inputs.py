"""Test making the inputs of a model static: by their shapes, by names of dimensions, and by what inputs say of each
other.
"""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from gputune.client.errors import ModelError
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.reference import evaluate
from tests.client.models import Array, build, integers, save

Given = dict[str, tuple[int, ...]]


def refusal(path: Path, dimensions: Given | None = None) -> str:
    with pytest.raises(ModelError) as caught:
        read_model(path, dimensions)
    assert str(path) in caught.value.message
    return caught.value.message


class TestDimensions:
    """One input."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return save(build("(float[N,3,h,w] picture) => (float[N,3,h,w] y)", "y = Relu(picture)"), tmp_path)

    def test_given_dimensions_reach_every_tensor(self, path: Path) -> None:
        assert read_model(path, {"picture": (2, 3, 5, 7)}).shape("y") == (2, 3, 5, 7)

    def test_a_dynamic_input_names_itself_its_dimensions_and_the_option(self, path: Path) -> None:
        message = refusal(path)
        assert "'picture'" in message
        assert "Nx3xhxw" in message
        assert "--input_dimensions picture=1,3,224,224" in message

    @pytest.mark.parametrize(
        ("shape", "example"),
        [
            ("N,h,w,3", "x=1,224,224,3"),
            ("N,3,320,w", "x=1,3,320,224"),
            ("N,16,h,w", "x=1,16,128,128"),
            ("N,3", "x=1,3"),
            ("batch,seq", "x=1,128"),
            ("b,s,64", "x=1,128,64"),
            ("sequence_length,batch,8", "x=128,1,8"),
            ("n", "x=1"),
            ("time", "x=128"),
            ("batch_size,1,samples", "x=1,1,128"),
        ],
    )
    def test_sizes_are_proposed_that_pictures_texts_and_signals_have(
        self, tmp_path: Path, shape: str, example: str
    ) -> None:
        path = save(build(f"(float[{shape}] x) => (float[{shape}] y)", "y = Relu(x)"), tmp_path)
        assert refusal(path).endswith(f"give them, e.g. --input_dimensions {example}")

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"picture": (1, 3, 5)}, "has 3 dimensions"),
            ({"picture": (1, 4, 5, 5)}, "fixed at 3"),
            ({"picture": (1, 3, 5, -1)}, "can be negative"),
            ({"pictures": (1, 3, 5, 5)}, "did you mean 'picture'?"),
            ({"q": (1, 3, 5, 5)}, "its inputs and their dimensions are 'picture', 'N', 'h', 'w'"),
            ({"h": (5, 5), "w": (5,), "N": (1,)}, "'h' is a dimension of model"),
        ],
    )
    def test_dimensions_that_do_not_fit(self, path: Path, given: Given, said: str) -> None:
        assert said in refusal(path, given)


class TestSymbols:
    """Names of dimensions, which several inputs may have."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        signature = "(float[N,4] a, float[N,2] b, float[M,N] c) => (float y)"
        return save(build(signature, "ab = Concat<axis=1>(a, b) y = MatMul(c, ab)"), tmp_path)

    @pytest.mark.parametrize(
        "given", [{"N": (20,), "M": (3,)}, {"a": (20, 4), "M": (3,)}, {"c": (3, 20)}, {"N": (20,), "c": (3, 20)}]
    )
    def test_what_is_said_of_one_holds_for_all(self, path: Path, given: Given) -> None:
        graph = read_model(path, given)
        assert [graph.shape(name) for name in "abcy"] == [(20, 4), (20, 2), (3, 20), (3, 6)]

    def test_examples_name_the_dimensions_where_these_are_fewer(self, path: Path) -> None:
        message = refusal(path)
        assert "input 'a'" in message and "(Nx4), and so has 'b' and 'c'" in message
        assert message.endswith("give them, e.g. --input_dimensions N=1 --input_dimensions M=1")

    def test_examples_hold_what_is_known(self, path: Path) -> None:
        message = refusal(path, {"a": (20, 4)})
        assert "input 'c' of" in message and "'b'" not in message
        assert message.endswith("--input_dimensions M=1")

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({}, "(nx3xhxw); give them, e.g. --input_dimensions x=1,3,224,224"),
            ({"n": (1,)}, "; still missing: h, w; give them, e.g. --input_dimensions h=224 --input_dimensions w=224"),
            ({"n": (1,), "h": (5,)}, "; still missing: w; give them, e.g. --input_dimensions w=224"),
        ],
    )
    def test_what_is_still_missing_is_named(self, tmp_path: Path, given: Given, said: str) -> None:
        path = save(build("(float[n,3,h,w] x) => (float[n,3,h,w] y)", "y = Relu(x)"), tmp_path)
        assert refusal(path, given).endswith(said)

    def test_inputs_are_the_example_where_they_are_as_few(self, tmp_path: Path) -> None:
        model = build("(float[n,4] a, float[2,4] b, float[n,m] c) => (float[n,4] y)", "y = Sum(a, b, c)")
        message = refusal(save(model, tmp_path))
        assert "input 'a'" in message and "and so has 'c'" in message
        assert message.endswith("--input_dimensions a=1,4 --input_dimensions c=1,128")

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (
                {"a": (20, 4), "b": (21, 2)},
                "is 20 in input 'a' (Nx4), dimension 0, but 21 in input 'b' (Nx2), dimension 0",
            ),
            ({"N": (20,), "a": (21, 4)}, "is 20 by --input_dimensions N=20, but 21 in input 'a' (Nx4), dimension 0"),
        ],
    )
    def test_two_that_contradict_each_other_are_both_named(self, path: Path, given: Given, said: str) -> None:
        assert f"dimension 'N' of model {path} {said}; give both the same size" in refusal(path, {**given, "M": (3,)})

    def test_an_input_that_is_called_like_a_dimension_is_meant(self, tmp_path: Path) -> None:
        path = save(
            build(
                "(float[N] N, float[N,2] b) => (float[N,2] y)",
                "c = Unsqueeze(N, at) y = Add(b, c)",
                {"at": integers(1)},
            ),
            tmp_path,
        )
        assert read_model(path, {"N": (5,)}).shape("y") == (5, 2)
        assert refusal(path).endswith("--input_dimensions N=1 --input_dimensions b=1,2")
        assert "--input_dimensions N=5,2 has 2 dimensions, input 'N'" in refusal(path, {"N": (5, 2)})

    @pytest.mark.parametrize("name", ["?", "None", "-1"])
    def test_what_exporters_write_for_no_name_is_none(self, tmp_path: Path, name: str) -> None:
        model = build("(float[n] a, float[n] b) => (float[k] y)", "y = Concat<axis=0>(a, b)")
        for item in model.graph.input:
            item.type.tensor_type.shape.dim[0].dim_param = name
        graph = read_model(save(model, tmp_path), {"a": (2,), "b": (3,)})
        assert graph.shape("y") == (5,)


class TestNoElements:
    """A dimension that is 0 is one, such as that of what a decoder has seen before its first step."""

    SIGNATURE = "(float[1,{},4] p, float[1,2,4] x) => (float[1,n,4] y)"

    @pytest.mark.parametrize(("size", "given"), [("0", {}), ("P", {"p": (1, 0, 4)}), ("P", {"P": (0,)})])
    def test_an_input_without_elements_is_a_constant(self, tmp_path: Path, size: str, given: Given) -> None:
        body = "y = Concat<axis=1>(p, x)"
        model = build(self.SIGNATURE.format(size), body)
        graph = read_model(save(model, tmp_path), given)
        assert graph.inputs == ("x",)
        plan = lower(graph)
        assert [operation.task.op for operation in plan.operations] == ["Elementwise"], "a copy"
        x = np.arange(8, dtype=np.float32).reshape(1, 2, 4)
        feeds = {"x": x, "p": x[:, :0]}
        (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
        np.testing.assert_array_equal(evaluate(plan, {"x": x})["y"], want)

    def test_a_dimension_that_is_0_is_fixed(self, tmp_path: Path) -> None:
        path = save(build(self.SIGNATURE.format(0), "y = Concat<axis=1>(p, x)"), tmp_path)
        assert "dimension 1 of input 'p'" in refusal(path, {"p": (1, 3, 4)})
        assert "is fixed at 0 (1x0x4)" in refusal(path, {"p": (1, 3, 4)})

    def test_the_first_step_of_a_decoder(self, tmp_path: Path) -> None:
        body = """keys = Concat<axis=2>(past, k) t = Transpose<perm=[0,1,3,2]>(keys) s = MatMul(q, t)
                  w = Softmax<axis=-1>(s) y = MatMul(w, keys) present = Identity(keys)"""
        signature = "(float[1,2,n,8] q, float[1,2,n,8] k, float[1,2,past,8] past) => (float y, float present)"
        model = build(signature, body)
        plan = lower(read_model(save(model, tmp_path), {"n": (3,), "past": (1, 2, 0, 8)}))
        generator = np.random.default_rng(2)
        feeds = {name: generator.standard_normal((1, 2, 3, 8), dtype=np.float32) for name in "qk"}
        past = np.zeros((1, 2, 0, 8), np.float32)
        want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {**feeds, "past": past})
        for got, right in zip(evaluate(plan, feeds).values(), want, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("body", ["y = ScatterND(x, i, u)", "y = ScatterElements(x, j, u)"])
    def test_nothing_is_scattered(self, tmp_path: Path, body: str) -> None:
        weights: dict[str, Array] = {
            "i": np.zeros((0, 1), np.int64),
            "j": np.zeros((0, 3), np.int64),
            "u": np.zeros((0, 3), np.float32),
        }
        plan = lower(read_model(save(build("(float[2,3] x) => (float[2,3] y)", body, weights, opset=18), tmp_path)))
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(evaluate(plan, {"x": x})["y"], x)

    def test_an_output_without_elements_is_refused(self, tmp_path: Path) -> None:
        path = save(build("(float[N,3] x) => (float[N,3] y)", "y = Relu(x)"), tmp_path)
        with pytest.raises(ModelError, match=r"output 'y' of model .*\.onnx has the shape \(0, 3\), without elements"):
            lower(read_model(path, {"N": (0,)}))

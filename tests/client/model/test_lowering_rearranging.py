"""Test everything that only moves elements, compared with onnxruntime; if nothing has to move, it becomes a view."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from gputune.client.errors import ModelError
from gputune.client.model.lowering import Plan
from gputune.client.model.reference import evaluate
from tests.client.models import build, integers, numbers

from .test_lowering import Lowered, assert_agrees, lowered, ops

__all__ = ["lowered"]


def agrees(lowered: Lowered, body: str, weights: Mapping[str, Any] | None = None, opset: int = 18) -> Plan:
    """The plan of a model of one map, whose results are onnxruntime's."""
    model = build(f"(float[2,4,6,5] x) => (float[{'i,j,k,l'}] y)", body, weights, opset)
    plan = lowered(model)
    assert_agrees(model, plan)
    return plan


def exact(lowered: Lowered, model: onnx.ModelProto, inputs: Mapping[str, Any]) -> None:
    """The plan's result is onnxruntime's, in value and type."""
    want = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)
    for got, wanted in zip(evaluate(lowered(model), inputs).values(), want, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


class TestTransposes:
    """One kernel at most, in whatever order a map lies, and none where memory stays as it is."""

    @pytest.mark.parametrize("perm", ["0,1,3,2", "0,3,1,2", "3,2,1,0", "1,0,2,3", "0,2,1,3"])
    @pytest.mark.parametrize("behind", ["", "c = Conv(x, u) "])
    def test_every_order(self, lowered: Lowered, perm: str, behind: str) -> None:
        body = f"{behind}y = Transpose<perm=[{perm}]>({'c' if behind else 'x'})"
        plan = agrees(lowered, body, {"u": (3, 4, 1, 1)} if behind else {})
        assert len(plan.operations) == (3 if behind else 1)

    def test_what_the_device_order_is_already_is_a_view(self, lowered: Lowered) -> None:
        """From a map to channels last, and back into a convolution."""
        body = """a = Conv(x, u) b = Transpose<perm=[0,2,3,1]>(a) t = Tanh(b)
                  d = Transpose<perm=[0,3,1,2]>(t) y = Conv(d, v)"""
        plan = agrees(lowered, body, {"u": (3, 4, 1, 1), "v": (7, 3, 1, 1)})
        assert ops(plan) == ["Transpose", "MatMul", "Move", "MatMul", "Transpose"]

    def test_a_map_becomes_a_sequence_and_a_map_again_without_a_kernel(self, lowered: Lowered) -> None:
        body = """a = Conv(x, u) r = Reshape(a, flat) s = Transpose<perm=[0,2,1]>(r) t = Tanh(s)
                  b = Transpose<perm=[0,2,1]>(t) d = Reshape(b, map) y = Conv(d, v)"""
        shapes = {"flat": integers(2, 3, 30), "map": integers(2, 3, 6, 5)}
        plan = agrees(lowered, body, {"u": (3, 4, 1, 1), "v": (7, 3, 1, 1), **shapes})
        assert ops(plan) == ["Transpose", "MatMul", "Elementwise", "MatMul", "Transpose"]

    def test_sequences_with_the_batch_behind_become_maps_with_one_kernel(self, lowered: Lowered) -> None:
        """And maps become such sequences."""
        body = """t = Transpose<perm=[1,2,0]>(x) r = Reshape(t, map) a = Conv(r, u)
                  q = Reshape(a, flat) s = Transpose<perm=[2,0,1]>(q) y = Softmax(s)"""
        shapes = {"map": integers(2, 3, 6, 5), "flat": integers(2, 7, 30)}
        model = build("(float[30,2,3] x) => (float[i,j,k] y)", body, {"u": (7, 3, 1, 1), **shapes})
        plan = lowered(model)
        assert_agrees(model, plan)
        assert ops(plan) == ["Move", "MatMul", "Move", "Softmax"]

    def test_a_line_without_its_height_becomes_a_sequence_without_a_kernel(self, lowered: Lowered) -> None:
        body = "a = Conv<strides=[6,1]>(x, u) q = Squeeze(a, two) s = Transpose<perm=[0,2,1]>(q) y = Tanh(s)"
        model = build("(float[2,4,6,5] x) => (float[i,j,k] y)", body, {"u": (3, 4, 6, 1), "two": integers(2)})
        plan = lowered(model)
        assert_agrees(model, plan)
        assert ops(plan) == ["Conv", "Move"]

    def test_one_behind_the_other_are_one_or_none(self, lowered: Lowered) -> None:
        body = "a = Relu(x) b = Transpose<perm=[3,0,1,2]>(a) c = Transpose<perm=[1,2,3,0]>(b) y = Exp(c)"
        assert ops(agrees(lowered, body)) == ["Elementwise"]
        body = "a = Transpose<perm=[3,0,1,2]>(x) b = Transpose(a) y = Transpose<perm=[1,0,2,3]>(b)"
        assert len(agrees(lowered, body).operations) == 1

    def test_one_that_moves_axes_of_one_element_only_is_a_view(self, lowered: Lowered) -> None:
        body = "a = Relu(x) b = Transpose<perm=[2,1,3,0]>(a) y = Softmax<axis=2>(b)"
        model = build("(float[1,4,1,5] x) => (float[i,j,k,l] y)", body)
        plan = lowered(model)
        assert_agrees(model, plan)
        assert ops(plan) == ["Elementwise", "Softmax"]

    def test_a_chain_behind_it_is_fused(self, lowered: Lowered) -> None:
        plan = agrees(lowered, "a = Transpose<perm=[3,1,0,2]>(x) b = Mul(a, h) y = Relu(b)", {"h": numbers(0.5)})
        assert ops(plan) == ["Move"]

    def test_the_shuffle_of_channels_is_one_kernel_that_leaves_maps_where_they_lie(self, lowered: Lowered) -> None:
        """As ShuffleNet has it, between grouped convolutions; with an activation behind it."""
        body = """a = Conv<group=2>(x, u) b = Reshape(a, apart) c = Transpose<perm=[0,2,1,3,4]>(b)
                  d = Reshape(c, map) e = Relu(d) y = Conv<group=3>(e, v)"""
        shapes = {"apart": integers(2, 3, 4, 6, 5), "map": integers(2, 12, 6, 5)}
        plan = agrees(lowered, body, {"u": (12, 2, 1, 1), "v": (3, 4, 1, 1), **shapes})
        assert ops(plan) == ["Transpose", "Conv", "Move", "Conv", "Transpose"]

    def test_without_an_activation_it_turns_the_matrix_of_each_pixel(self, lowered: Lowered) -> None:
        body = """a = Conv(x, u) b = Reshape(a, apart) c = Transpose<perm=[0,2,1,3,4]>(b) d = Reshape(c, map)
                  y = Conv(d, v)"""
        shapes = {"apart": integers(2, 3, 4, 6, 5), "map": integers(2, 12, 6, 5)}
        plan = agrees(lowered, body, {"u": (12, 4, 1, 1), "v": (5, 12, 1, 1), **shapes})
        turned = plan.operations[2].task.problem
        assert ops(plan)[2] == "Transpose" and (turned.batch, *turned.matrix) == (60, 3, 4)

    @pytest.mark.parametrize(
        ("apart", "perm", "map", "moved"),
        [
            ((2, 2, 2, 3, 6, 5), "0,3,4,1,5,2", (2, 3, 12, 10), "Move"),  # a pixel shuffle
            ((2, 12, 3, 2, 1, 5), "0,3,5,1,2,4", (2, 10, 12, 3), "Transpose"),  # parts of rows and columns as channels
            ((2, 12, 6, 1, 5), "0,1,3,2,4", (2, 12, 6, 5), ""),  # nothing moves
        ],
        ids=["pixels", "depth", "nothing"],
    )
    def test_what_a_reshape_takes_apart_and_another_puts_together_is_one_kernel(
        self, lowered: Lowered, apart: tuple[int, ...], perm: str, map: tuple[int, ...], moved: str
    ) -> None:
        body = f"""a = Conv(x, u) b = Reshape(a, apart) c = Transpose<perm=[{perm}]>(b) d = Reshape(c, map)
                  y = Conv(d, v)"""
        shapes = {"apart": integers(*apart), "map": integers(*map)}
        plan = agrees(lowered, body, {"u": (12, 4, 1, 1), "v": (5, map[1], 1, 1), **shapes})
        assert ops(plan) == ["Transpose", "MatMul", *([moved] if moved else []), "MatMul", "Transpose"]

    def test_one_whose_parts_others_read_stays_as_it_is(self, lowered: Lowered) -> None:
        body = """b = Reshape(x, apart) c = Transpose<perm=[0,2,1,3,4]>(b) d = Reshape(c, map) e = ReduceSum(c, two)
                  f = ReduceSum(e, two) y = Add(d, f)"""
        shapes = {"apart": integers(2, 2, 2, 6, 5), "map": integers(2, 4, 6, 5), "two": integers(2)}
        agrees(lowered, body, shapes)

    def test_axes_that_are_put_together_across_each_other_stay_as_they_are(self, lowered: Lowered) -> None:
        body = "b = Reshape(x, apart) c = Transpose<perm=[1,0,3,2]>(b) y = Reshape(c, map)"
        agrees(lowered, body, {"apart": integers(4, 3, 4, 5), "map": integers(2, 6, 5, 4)})


class TestReshapes:
    """Maps that are lines for a while stay as they lie."""

    def test_bias_and_activation_of_a_line_are_the_convolutions_before_it(self, lowered: Lowered) -> None:
        """As exporters of one-dimensional convolutions write it, with a slice that is everything."""
        body = """m = Transpose<perm=[0,3,1,2]>(x) a = Conv(m, u) c = Slice(a, zero, all, three) q = Squeeze(c, three)
                  s = Add(q, b) t = Tanh(s) g = Mul(t, s) e = Unsqueeze(g, two) y = GlobalMaxPool(e)"""
        weights: dict[str, Any] = {
            "u": (3, 5, 2, 6),
            "b": (3, 1),
            "zero": integers(0),
            "all": integers(9),
            "two": integers(2),
        }
        model = build("(float[2,4,6,5] x) => (float[i,j,k,l] y)", body, {**weights, "three": integers(3)})
        plan = lowered(model)
        assert_agrees(model, plan)
        assert ops(plan) == ["Conv", "Elementwise", "Pool"]

    def test_what_is_broadcast_over_lines_is_over_maps(self, lowered: Lowered) -> None:
        body = """a = Conv(x, u) q = Squeeze(a, two) s = Mul(row, q) t = Sub(whole, s) w = Div(t, number)
                  p = Add(w, q) r = Max(p, last) e = Unsqueeze(r, two) y = Conv(e, v)"""
        weights: dict[str, Any] = {"u": (3, 4, 6, 1), "v": (2, 3, 1, 1), "two": integers(2), "number": numbers(3)}
        weights |= {"row": (3, 1), "whole": (2, 3, 5), "last": (5,)}
        model = build("(float[2,4,6,5] x) => (float[i,j,k,l] y)", body, weights)
        plan = lowered(model)
        assert_agrees(model, plan)
        assert ops(plan) == ["Conv", "Elementwise", "MatMul", "Transpose"]

    def test_lines_that_others_read_are_there(self, lowered: Lowered) -> None:
        body = "a = Conv(x, u) q = Squeeze(a, two) t = Tanh(q) s = Add(t, q) z = Softmax<axis=1>(t) y = Mul(s, z)"
        model = build("(float[2,4,6,5] x) => (float[i,j,k] y)", body, {"u": (3, 4, 6, 1), "two": integers(2)})
        assert_agrees(model, lowered(model))

    def test_a_constant_may_be_broadcast_over_what_is_computed(self, lowered: Lowered) -> None:
        body = "a = Conv(x, u) q = Squeeze(a, three) y = Add(q, wide)"
        weights: dict[str, Any] = {"u": (3, 4, 6, 5), "wide": (2, 3, 7), "three": integers(3)}
        model = build("(float[2,4,6,5] x) => (float[i,j,k] y)", body, weights)
        assert_agrees(model, lowered(model))

    @pytest.mark.parametrize(
        "body", ["y = Slice(r, a, b, c, d)", "y = Expand(r, s)", "y = Tile(r, n)", "y = Reshape(r, s)"]
    )
    def test_what_changes_nothing_is_dropped(self, lowered: Lowered, body: str) -> None:
        weights = dict(zip("abcd", map(integers, (0, 1, 1, 1)), strict=True))
        weights |= {"b": integers(99), "s": integers(2, 4, 6, 5), "n": integers(1, 1, 1, 1)}
        assert ops(agrees(lowered, f"r = Relu(x) {body}", weights)) == ["Elementwise"]
        backwards = {**weights, "a": integers(-1), "b": integers(-99), "d": integers(-1)}
        if "Slice" in body:
            assert ops(agrees(lowered, f"r = Relu(x) {body}", backwards)) == ["Elementwise", "Move"]


class TestParts:
    """Slices, splits and borders, of maps as they lie."""

    @pytest.mark.parametrize("bounds", [((1, 4), (3, -100), (1, 2), (1, -2)), ((0, -2), (1, 100), (0, 3), (1, 1))])
    def test_slices_go_in_both_directions(self, lowered: Lowered, bounds: tuple[tuple[int, ...], ...]) -> None:
        weights = {name: integers(*values) for name, values in zip("abcd", bounds, strict=True)}
        agrees(lowered, "y = Slice(x, a, b, c, d)", weights)
        plan = agrees(lowered, "m = Conv(x, u) s = Slice(m, a, b, c, d) y = Conv(s, v)", {
            **weights, "u": (4, 4, 1, 1), "v": (1, 4 if bounds[0][0] == 0 else 2, 1, 1),
        })  # fmt: skip
        assert ops(plan) == ["Transpose", "MatMul", "Move", "MatMul"]

    def test_old_slices_have_attributes(self, lowered: Lowered) -> None:
        agrees(lowered, "y = Slice<starts=[0,1], ends=[-1,9], axes=[1,3]>(x)", opset=9)

    def test_splits_of_unlike_parts_of_which_one_is_not_read(self, lowered: Lowered) -> None:
        body = "a, b, c = Split<axis=2>(x, s) y = Concat<axis=2>(c, a)"
        plan = agrees(lowered, body, {"s": integers(1, 3, 2)})
        assert ops(plan) == ["Move", "Move", "Concat"]
        agrees(lowered, "a, b = Split<axis=-2, num_outputs=2>(x) y = Concat<axis=0>(b, a)")
        agrees(lowered, "a, b = Split<axis=1>(x) y = Sub(a, b)", opset=11)

    @pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
    @pytest.mark.parametrize("source", ["x", "m"])
    def test_borders_on_every_side(self, lowered: Lowered, mode: str, source: str) -> None:
        body = f'm = Conv(x, u) p = Pad<mode="{mode}">({source}, pads, fill) y = Add(p, p)'
        pads = integers(0, 1, 2, 3, 1, 0, 4, 2)
        agrees(lowered, body, {"u": (4, 4, 1, 1), "pads": pads, "fill": numbers(1.5)}, opset=19)

    def test_negative_borders_cut_off_first(self, lowered: Lowered) -> None:
        agrees(lowered, "y = Pad(x, pads)", {"pads": integers(0, -1, -2, 3, 0, 2, 3, -2)})
        agrees(lowered, "y = Pad(x, pads, , axes)", {"pads": integers(-1, 2, 2, -3), "axes": integers(-1, 2)})

    def test_old_borders_have_attributes(self, lowered: Lowered) -> None:
        agrees(lowered, "y = Pad<pads=[0,0,1,1,0,0,2,3], value=2.5>(x)", opset=9)

    @pytest.mark.parametrize("target", [(1, 6, 5, 6), (3, 1, 8, 2)])
    def test_the_centre_is_kept(self, lowered: Lowered, target: tuple[int, ...]) -> None:
        agrees(lowered, "y = CenterCropPad(x, target)", {"target": integers(*target)})


class TestRepetitions:
    @pytest.mark.parametrize("body", ["y = Tile(x, n)", "m = Conv(x, u) t = Tile(m, n) y = Relu(t)"])
    def test_tiles(self, lowered: Lowered, body: str) -> None:
        agrees(lowered, body, {"n": integers(2, 1, 3, 2), "u": (4, 4, 1, 1)})

    def test_expansions(self, lowered: Lowered) -> None:
        model = build("(float[3,1,5] x) => (float[i,j,k,l] y)", "y = Expand(x, s)", {"s": integers(2, 1, 4, 1)})
        assert_agrees(model, lowered(model))

    @pytest.mark.parametrize("mode", ["DCR", "CRD"])
    @pytest.mark.parametrize("source", ["x", "m"])
    def test_blocks(self, lowered: Lowered, mode: str, source: str) -> None:
        body = f'm = Conv(x, u) y = DepthToSpace<blocksize=2, mode="{mode}">({source})'
        agrees(lowered, body, {"u": (4, 4, 1, 1)}, opset=13)
        body = f"m = Conv(x, u) p = Pad({source}, pads) y = SpaceToDepth<blocksize=3>(p)"
        agrees(lowered, body, {"u": (4, 4, 1, 1), "pads": integers(0, 0, 0, 0, 0, 0, 0, 1)}, opset=13)


def test_whole_numbers_and_bools_move_too(lowered: Lowered) -> None:
    body = "t = Transpose(x) s = Slice(t, one, three) p = Pad(s, pads, fill) y = Concat<axis=0>(p, p)"
    weights = {"one": integers(1), "three": integers(3), "pads": integers(0, 1, 2, 0)}
    numbers_of = np.random.default_rng(0)
    for kind, dtype, fill in (("int64", np.int64, -(2**63)), ("uint8", np.uint8, 255), ("bool", np.bool_, True)):
        model = build(f"({kind}[3,4] x) => ({kind}[i,j] y)", body, {**weights, "fill": np.array(fill, dtype)}, 18)
        exact(lowered, model, {"x": numbers_of.integers(0, 2, (3, 4)).astype(dtype)})


def test_what_is_not_supported_is_said(lowered: Lowered) -> None:
    weights = {"pads": integers(0, 0, 1, 0, 0, 0), "fill": numbers(np.nan)}
    model = build("(float[4,6,5] x) => (float[i,j,k] y)", "y = Pad(x, pads, fill)", weights, 18)
    with pytest.raises(ModelError, match="cannot be filled with NaN"):
        lowered(model)

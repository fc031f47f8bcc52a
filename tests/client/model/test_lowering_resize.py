"""Test Resize, nearest elements and weighted sums, in all of ONNX's modes, compared with onnxruntime."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from gputune.client.model.reference import evaluate
from tests.client.models import build, integers, numbers
from tests.client.plans import Lowered, assert_agrees, ops


def resized(attributes: str, scales: Any = None, sizes: Any = None, opset: int = 13) -> onnx.ModelProto:
    """A model that resizes [2, 3, 6, 5] by scales (height, width) or to sizes."""
    weights: dict[str, Any] = {}
    if scales is not None:
        weights["scales"] = numbers(1, 1, *scales)
    if sizes is not None:
        weights["sizes"] = integers(2, 3, *sizes)
    given = "x, scales" if opset == 10 else f"x, , {'scales' if scales else ''}{', sizes' if sizes else ''}"
    return build("(float[2,3,6,5] x) => (float[a,b,c,d] y)", f"y = Resize{attributes}({given})", weights, opset)


MODES = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


class TestResize:
    """All ways to say which element is the nearest."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("rounding", ROUNDINGS)
    @pytest.mark.parametrize(
        "size", [{"scales": (2, 3)}, {"scales": (1.5, 0.6)}, {"sizes": (11, 4)}, {"sizes": (1, 15)}]
    )
    def test_places_are_those_of_onnxruntime(
        self, lowered: Lowered, mode: str, rounding: str, size: dict[str, Any]
    ) -> None:
        attributes = f'<coordinate_transformation_mode="{mode}", nearest_mode="{rounding}">'
        model = resized(attributes, **size)
        assert_agrees(model, lowered(model))

    @pytest.mark.parametrize("size", [{"scales": (2, 0.5)}, {"scales": (1.7, 1)}, {"sizes": (7, 4)}])
    def test_defaults_and_symmetric_half_pixels(self, lowered: Lowered, size: dict[str, Any]) -> None:
        for attributes in ("", '<coordinate_transformation_mode="half_pixel_symmetric">'):
            model = resized(attributes, **size, opset=19)
            assert_agrees(model, lowered(model))

    @pytest.mark.parametrize("mode", ["nearest", "linear"])
    @pytest.mark.parametrize("scales", [(1.5, 0.6), (1, 1.6), (2.2, 1), (1, 1)])
    @pytest.mark.parametrize("rounding", ROUNDINGS)
    def test_half_pixels_for_the_nearest_move_resized_axes_only(
        self, lowered: Lowered, mode: str, scales: tuple[float, float], rounding: str
    ) -> None:
        """Operator sets 11 and 12 have them. On an axis that keeps its size they would be half a pixel off."""
        attributes = (
            f'<mode="{mode}", coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="{rounding}">'
        )
        weights = {"region": np.zeros(0, np.float32), "s": numbers(1, 1, *scales)}
        for signature, body in (
            ("(float[2,3,6,5] x) => (float[a,b,c,d] y)", f"y = Resize{attributes}(x, region, s)"),
            ("(float[6,5] x) => (float[c,d] y)", f"y = Resize{attributes}(x, region, t)"),
        ):
            model = build(signature, body, weights | {"t": numbers(*scales)}, opset=11)
            assert_agrees(model, lowered(model))


class TestAlignedCorners:
    """Scales that give no whole size: ONNX divides by the size before it is rounded, onnxruntime by the rounded one."""

    @pytest.mark.parametrize("rounding", ROUNDINGS)
    @pytest.mark.parametrize("shape", [(3,), (2, 1, 3), (1, 2, 4, 3), (1, 2, 1, 3), (1, 1, 1, 3, 1)])
    def test_places_are_those_of_onnx_in_every_rank(
        self, lowered: Lowered, shape: tuple[int, ...], rounding: str
    ) -> None:
        self._agrees(lowered, shape, "nearest", rounding)

    @pytest.mark.parametrize("shape", [(3,), (1, 2, 4, 3), (1, 1, 1, 3, 1)])
    def test_sums_are_those_of_onnx_in_every_rank(self, lowered: Lowered, shape: tuple[int, ...]) -> None:
        self._agrees(lowered, shape, "linear", "floor")

    @staticmethod
    def _agrees(lowered: Lowered, shape: tuple[int, ...], mode: str, rounding: str) -> None:
        scales = tuple(2.5 if axis >= 2 or len(shape) < 3 else 1.0 for axis in range(len(shape)))
        attributes = f'mode="{mode}", nearest_mode="{rounding}", coordinate_transformation_mode="align_corners"'
        names = ",".join("ijklm"[: len(shape)])
        signature = f"(float[{','.join(map(str, shape))}] x) => (float[{names}] y)"
        model = build(signature, f"y = Resize<{attributes}>(x, , s)", {"s": np.array(scales, np.float32)}, opset=18)
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        (want,) = list(ReferenceEvaluator(model).run(None, {"x": x}))
        np.testing.assert_allclose(evaluate(lowered(model), {"x": x})["y"], want, rtol=1e-6)

    def test_a_map_of_many_places_takes_tables(self, lowered: Lowered) -> None:
        """Where the kernel for maps, which counts in 32 bits, cannot find all places."""
        attributes = 'nearest_mode="floor", coordinate_transformation_mode="align_corners"'
        body, weights = f"y = Resize<{attributes}>(x, , s)", {"s": numbers(1, 1, 1, 1.3333)}
        assert ops(lowered(build("(float[1,1,1,1000] x) => (float[a,b,c,d] y)", body, weights, 18))) == ["Resample"]


class TestInterpolation:
    """Weighted sums of neighbours, in the order in which the input lies."""

    @pytest.mark.parametrize("mode", ["linear", "cubic"])
    @pytest.mark.parametrize("coordinates", [*MODES, "half_pixel_symmetric"])
    @pytest.mark.parametrize(
        "size", [{"scales": (2, 3)}, {"scales": (1.5, 0.6)}, {"sizes": (11, 4)}, {"sizes": (1, 15)}]
    )
    def test_weights_are_those_of_onnxruntime(
        self, lowered: Lowered, mode: str, coordinates: str, size: dict[str, Any]
    ) -> None:
        attributes = f'<mode="{mode}", coordinate_transformation_mode="{coordinates}">'
        model = resized(attributes, **size, opset=19)
        assert_agrees(model, lowered(model))

    @pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
    def test_a_part_is_cut_out_and_enlarged(self, lowered: Lowered, mode: str) -> None:
        attributes = 'coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=10.0'
        body = f'y = Resize<mode="{mode}", {attributes}>(x, region, , sizes)'
        weights = {"region": numbers(0, 0, 0.2, -0.31, 1, 1, 0.8, 1.17), "sizes": integers(2, 3, 4, 7)}
        model = build("(float[2,3,6,5] x) => (float[a,b,c,d] y)", body, weights)
        if mode == "cubic":  # onnxruntime takes none; ONNX's own implementation is the same formula
            assert ops(lowered(model)) == ["Resample"]
        else:
            assert_agrees(model, lowered(model))

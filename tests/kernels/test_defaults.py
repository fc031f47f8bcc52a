"""Test that default configurations follow the device: its vectors, its cores, its limits."""

import math
from dataclasses import replace
from typing import Any

import pytest

from gputune.kernels.catalogue import family_of
from gputune.kernels.chain import Chain, Step
from gputune.kernels.family import DeviceLimits
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.conv_transpose import ConvTransposeProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.inverted_residual import InvertedResidualProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.ops.resize import ResizeProblem
from gputune.kernels.ops.separable import SeparableProblem
from gputune.kernels.space import TuningSpace
from gputune.kernels.tiling.workgroups import registers
from tests.kernels.attention_problems import ATTENTIONS
from tests.kernels.batched_problems import batched
from tests.kernels.inverted_residual_problems import INVERTED
from tests.kernels.one_of_each import ONE_OF_EACH
from tests.kernels.problems import CASES, CPU, GPU, SMALL
from tests.kernels.separable_problems import SEPARABLE

CONV = ConvProblem(1, 28, 28, 128, 128, (3, 3), pads=(1, 1, 1, 1))
MATMUL = MatMulProblem(196, 256, 256)
LARGE = {"Conv": CONV, "MatMul": MATMUL}
TILED = ("Conv", "ConvTranspose", "InvertedResidual", "MatMul", "SeparableConv")
DEPTHWISE = DepthwiseProblem(1, 28, 28, 128, (3, 3), pads=(1, 1, 1, 1))


def _refuse(space: TuningSpace) -> dict[str, int]:
    pytest.fail(f"the default is illegal, and the first of {space.size} configurations took its place")


@pytest.mark.parametrize("units", [1, 2, 64])
@pytest.mark.parametrize("width", [1, 4, 8, 16])
def test_no_default_is_illegal(width: int, units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is, the first configuration of the space stands in for it, which is legal, too, but slow."""
    monkeypatch.setattr(TuningSpace, "first", _refuse)
    limits = replace(CPU, preferred_float_width=width, compute_units=units)
    separable = [("SeparableConv", name, problem) for name, problem in SEPARABLE.items()]
    inverted = [("InvertedResidual", name, problem) for name, problem in INVERTED.items()]
    sevens = DepthwiseProblem(1, 112, 112, 32, (7, 7), (7, 7))
    attentions = [("Attention", name, problem) for name, problem in ATTENTIONS.items()]
    for op, _, problem in [*CASES, *attentions, *separable, *inverted, ("DepthwiseConv", "", sevens)]:
        family_of(op).default(problem, limits)


@pytest.mark.parametrize("width", [1, 4, 8, 16])
@pytest.mark.parametrize(("op", "problem"), [("Conv", CONV), ("MatMul", MATMUL), ("DepthwiseConv", DEPTHWISE)])
def test_a_cpu_gets_its_own_vectors_and_accumulators_that_hide_latency(op: str, problem: Any, width: int) -> None:
    limits = replace(CPU, preferred_float_width=width)
    default = family_of(op).default(problem, limits)
    accumulators = default["MR"] * default.get("NV", 1) * math.ceil(default["VW"] / max(width, 4))
    assert default["VW"] == max(width, 4)
    least = 7 if op == "DepthwiseConv" else 8  # 28 pixels are four strips, with nothing computed in vain
    assert least <= accumulators <= registers(limits)[0]


@pytest.mark.parametrize(
    ("side", "outputs", "width", "tile"),
    [
        (56, 24, 8, (4, 3)),  # three vectors; two by two, a quarter would be computed in vain
        (56, 32, 8, (6, 2)),
        (14, 96, 8, (5, 2)),  # three tiles cover a row, of 6 pixels or of 5
        (7, 160, 8, (4, 3)),
        (56, 24, 16, (7, 2)),
        (28, 40, 16, (7, 3)),
        (160, 48, 16, (5, 3)),
    ],
)
def test_a_tile_of_a_separable_convolution_fits_its_columns_and_rows(
    side: int, outputs: int, width: int, tile: tuple[int, int]
) -> None:
    problem = SeparableProblem(1, side, side, 144, outputs, (3, 3), pads=(1, 1, 1, 1))
    default = family_of("SeparableConv").default(problem, replace(CPU, preferred_float_width=width))
    assert (default["MR"], default["NV"]) == tile
    assert default["KU"] == (4 if width == 8 else 2)


@pytest.mark.parametrize(
    ("channels", "outputs", "width", "pays"),
    [
        (960, 160, 8, False),
        (256, 128, 8, True),  # 128 KiB of weights, the most
        (256, 129, 8, False),
        (960, 160, 16, True),  # tiles are larger, and read them less often
        (960, 160, 4, True),
    ],
)
def test_with_few_registers_a_separable_convolution_of_many_weights_does_not_pay(
    channels: int, outputs: int, width: int, pays: bool
) -> None:
    problem = SeparableProblem(1, 14, 14, channels, outputs, (3, 3), pads=(1, 1, 1, 1))
    assert family_of("SeparableConv").pays(problem, replace(CPU, preferred_float_width=width)) is pays


@pytest.mark.parametrize(
    ("side", "outputs", "width", "tile"),
    [
        (56, 24, 8, (4, 3)),
        (56, 32, 8, (6, 2)),
        (28, 40, 16, (7, 3)),
        (28, 8, 8, (7, 1)),  # and is no lower for vectors that the output does not have
    ],
)
def test_a_tile_of_an_inverted_residual_fits_its_columns(
    side: int, outputs: int, width: int, tile: tuple[int, int]
) -> None:
    problem = InvertedResidualProblem(1, side, side, 24, 144, outputs, (3, 3), pads=(1, 1, 1, 1))
    default = family_of("InvertedResidual").default(problem, replace(CPU, preferred_float_width=width))
    assert (default["MR"], default["NV"]) == tile


@pytest.mark.parametrize(("side", "strip"), [(7, 7), (14, 7), (28, 7), (56, 8), (20, 7), (5, 3)])
def test_a_strip_of_a_depthwise_convolution_divides_rows_evenly(side: int, strip: int) -> None:
    problem = DepthwiseProblem(1, side, side, 64, (3, 3), pads=(1, 1, 1, 1))
    assert family_of("DepthwiseConv").default(problem, CPU)["MR"] == strip


@pytest.mark.parametrize("op", [op for op, problem in ONE_OF_EACH.items() if op in TILED])
def test_of_sixteen_registers_some_hold_what_is_multiplied(op: str) -> None:
    """A tile of 7 x 2 vectors of 8 floats needs 17, and is three times as slow as one of 6 x 2."""
    limits = replace(CPU, preferred_float_width=8)
    family, problem = family_of(op), {**ONE_OF_EACH, **LARGE}[op]
    space = family.space(problem, limits)
    tiles = [family.default(problem, limits), *family.guesses(problem, limits)]
    assert {space.violations(tile) == [] for tile in tiles} == {True}
    for tile in tiles:
        vectors = tile["NV"] * math.ceil(tile["VW"] / 8)
        assert tile["MR"] * vectors + vectors + 1 <= 16
    if op in LARGE:
        assert max(tile["MR"] * tile["NV"] * tile["VW"] for tile in tiles) >= 12 * 8
    spilling = [tile | {"MR": 7, "NV": 2, "VW": 8} for tile in tiles]
    assert all(any("accumulators spill" in reason for reason in space.violations(tile)) for tile in spilling)


@pytest.mark.parametrize(("reduction", "rows"), [(1024, 8), (1008, 14), (512, 14), (2048, 8), (3072, 8), (1536, 14)])
def test_rows_a_page_apart_are_no_more_than_the_first_cache_has_ways(reduction: int, rows: int) -> None:
    limits = replace(CPU, preferred_float_width=16)
    problem = MatMulProblem(1120, reduction, 512)
    assert family_of("MatMul").default(problem, limits)["MR"] == rows
    conv = ConvProblem(1, 28, 40, reduction, 512, (1, 3), dilations=(1, 2))
    assert (family_of("Conv").default(conv, limits)["MR"] <= 8) == (rows == 8)


def test_the_distance_of_rows_is_that_in_memory() -> None:
    """Which is not the reduction where rows are heads of a longer one, or lie in parts; and that of input pixels."""

    def rows(op: str, problem: Any) -> int:
        return family_of(op).default(problem, CPU)["MR"]

    def heads(step: int) -> MatMulProblem:
        return batched((4,), 140, 64, 64, (64, step, 1), (4096, 64, 1), (8960, 64, 1), (140 * step, 16384))

    assert rows("MatMul", heads(1024)) == 8 < rows("MatMul", heads(768)) == 14
    assert rows("MatMul", MatMulProblem(1120, 1024, 512, parts=(512, 512))) == 14
    transposed = (ConvTransposeProblem(1, 28, 40, channels, 512, (2, 2), (2, 2), (56, 80)) for channels in (1024, 1008))
    assert [rows("ConvTranspose", problem) for problem in transposed] == [8, 14]


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_few_rows_split_the_reduction_instead(rows: int) -> None:
    problem = MatMulProblem(rows, 1280, 1000)
    default = family_of("MatMul").default(problem, CPU)
    assert (default["MR"], default["VW"]) == (rows, 16)
    assert default["MR"] * default["NV"] * default["KA"] >= 8


@pytest.mark.parametrize(("units", "rows"), [(2, 13), (64, 13), (112, 7), (128, 6), (256, 3)])
def test_every_core_gets_a_tile(units: int, rows: int) -> None:
    problem = ConvProblem(1, 7, 7, 512, 512, (3, 3), pads=(2, 2, 2, 2), dilations=(2, 2))
    default = family_of("Conv").default(problem, replace(CPU, compute_units=units))
    tiles = math.ceil(49 / default["MR"]) * math.ceil(512 / (default["NV"] * default["VW"]))
    assert tiles >= units
    assert default["MR"] == rows


@pytest.mark.parametrize(
    ("shape", "run"),
    [
        ((1, 80, 80, 96), {"VW": 16, "WPTX": 8, "DIMX": 1, "DIMY": 4}),
        ((1, 56, 56, 72), {"VW": 16, "WPTX": 8, "DIMX": 1, "DIMY": 4}),
        ((1, 56, 56, 64), {"VW": 16, "WPTX": 4, "DIMX": 1, "DIMY": 4}),
        ((1, 80, 80, 24), {"VW": 8, "WPTX": 1, "DIMX": 4, "DIMY": 16}),
        ((1, 1, 1, 512), {"VW": 8, "WPTX": 1, "DIMX": 64, "DIMY": 1}),
    ],
)
def test_with_few_registers_a_work_item_scales_a_run_of_channels(shape: tuple[int, ...], run: dict[str, int]) -> None:
    problem = ElementwiseProblem(shape, ((1, 1, 1, shape[-1]),), shape, Chain((Step("mul", (), 0),)))
    limits = replace(CPU, preferred_float_width=8)
    default = family_of("Elementwise").default(problem, limits)
    assert default == {"WPTY": 1} | run
    assert family_of("Elementwise").space(problem, limits).violations(default) == []
    assert family_of("Elementwise").default(problem, CPU)["WPTX"] == 1


@pytest.mark.parametrize(("channels", "width", "strip"), [(96, 8, 1), (64, 8, 8), (24, 8, 8), (96, 16, 8)])
def test_with_few_registers_maps_of_many_channels_are_resized_pixel_by_pixel(
    channels: int, width: int, strip: int
) -> None:
    problem = ResizeProblem(1, 80, 80, channels, (160, 160), (1, 1), (2, 2), (0, 0))
    assert family_of("Resize").default(problem, replace(CPU, preferred_float_width=width))["WPT"] == strip


@pytest.mark.parametrize(
    ("side", "channels", "width", "sums"), [(160, 96, 16, 4), (7, 1280, 16, 4), (20, 24, 16, 4), (1, 6, 4, 1)]
)
def test_a_map_that_is_pooled_as_a_whole_is_for_all_cores_in_several_sums(
    side: int, channels: int, width: int, sums: int
) -> None:
    problem = PoolProblem("average", 1, side, side, channels, (side, side), (1, 1), (0, 0, 0, 0), (1, 1))
    default = family_of("Pool").default(problem, replace(CPU, preferred_float_width=8))
    assert default == {"VW": width, "WPT": 1, "ACC": sums, "DIMX": 1, "DIMY": 1}
    windows = replace(problem, height=2 * side, output=(side + 1, 1))
    assert family_of("Pool").default(windows, CPU)["ACC"] == 1


@pytest.mark.parametrize(
    ("side", "channels", "width", "group"),
    [(112, 64, 16, (4, 16)), (3, 16, 16, (1, 16)), (2, 32, 16, (2, 4)), (9, 24, 8, (4, 16))],
)
def test_with_few_registers_windows_are_pooled_by_lines_of_the_cache(
    side: int, channels: int, width: int, group: tuple[int, int]
) -> None:
    problem = PoolProblem("max", 1, 2 * side, 2 * side, channels, (2, 2), (2, 2), (0, 0, 0, 0), (side, side))
    limits = replace(CPU, preferred_float_width=8)
    default = family_of("Pool").default(problem, limits)
    assert (default["VW"], (default["DIMX"], default["DIMY"])) == (width, group)
    assert family_of("Pool").space(problem, limits).violations(default) == []


@pytest.mark.parametrize(
    ("side", "channels", "kernel", "stride", "floats", "strip"),
    [
        (14, 512, 3, 1, 8, (7, 16)),
        (7, 1024, 5, 1, 8, (7, 16)),
        (14, 512, 3, 1, 4, (7, 8)),
        (14, 512, 3, 1, 16, (7, 16)),
        (14, 480, 3, 1, 8, (14, 8)),
        (56, 144, 3, 1, 8, (14, 8)),
        (80, 96, 3, 1, 8, (8, 8)),
        (56, 144, 3, 2, 8, (7, 8)),
        (28, 240, 5, 1, 8, (7, 8)),
        (14, 480, 3, 1, 16, (7, 16)),
    ],
)
def test_depthwise_strips_follow_channels_and_columns(
    side: int, channels: int, kernel: int, stride: int, floats: int, strip: tuple[int, int]
) -> None:
    """Pixels that share sets of a cache are read by whole lines; long strips are for 3 x 3 and 16 registers."""
    pads = (kernel // 2,) * 4
    problem = DepthwiseProblem(1, side, side, channels, (kernel, kernel), (stride, stride), pads)
    limits = replace(CPU, preferred_float_width=floats)
    default = family_of("DepthwiseConv").default(problem, limits)
    assert (default["MR"], default["VW"]) == strip
    assert family_of("DepthwiseConv").space(problem, limits).violations(default) == []


@pytest.mark.parametrize(
    ("outputs", "floats", "tile"), [(24, 8, (6, 1, 16)), (24, 16, (8, 2, 16)), (1, 8, (8, 1, 4)), (6, 8, (4, 3, 8))]
)
def test_with_few_registers_a_transposed_convolution_has_one_wide_vector(
    outputs: int, floats: int, tile: tuple[int, int, int]
) -> None:
    problem = ConvTransposeProblem(1, 40, 40, 24, outputs, (2, 2), (2, 2), (80, 80))
    limits = replace(CPU, preferred_float_width=floats)
    default = family_of("ConvTranspose").default(problem, limits)
    assert (default["MR"], default["NV"], default["VW"]) == tile
    assert family_of("ConvTranspose").space(problem, limits).violations(default) == []


@pytest.mark.parametrize(
    ("side", "kernel", "units", "rows"),
    [(14, 3, 2, 7), (7, 3, 2, 4), (10, 5, 2, 5), (5, 3, 2, 3), (28, 3, 2, 7), (14, 3, 4, 4), (14, 3, 7, 2)],
)
def test_a_block_of_few_rows_is_one_strip_for_each_core(side: int, kernel: int, units: int, rows: int) -> None:
    """Two strips for each would share out so few rows unevenly, and expand more of them twice."""
    problem = InvertedResidualProblem(1, side, side, 64, 384, 64, (kernel, kernel), pads=(kernel // 2,) * 4)
    default = family_of("InvertedResidual").default(problem, replace(CPU, preferred_float_width=8, compute_units=units))
    assert (default["ROWS"], default["STEP"]) == (rows, rows)


@pytest.mark.parametrize(
    ("columns", "tile", "unrolling"),
    [(512, (6, 2), 4), (24, (4, 3), 2), (48, (6, 2), 4), (8, (8, 1), 4), (16, (6, 2), 4), (72, (4, 3), 2)],
)
def test_a_tile_computes_few_columns_that_are_not_there(columns: int, tile: tuple[int, int], unrolling: int) -> None:
    """A tile that takes all 16 registers is unrolled less, since nothing can be read ahead into another."""
    default = family_of("MatMul").default(MatMulProblem(5040, 64, columns), replace(CPU, preferred_float_width=8))
    assert (default["MR"], default["NV"]) == tile
    assert default["KU"] == unrolling


@pytest.mark.parametrize(("stride", "unrolling"), [(1, 1), (2, 2)])
def test_with_few_registers_neighbours_in_planes_are_not_unrolled(stride: int, unrolling: int) -> None:
    problem = ConvProblem(1, 64, 64, 3, 64, (3, 3), (stride, stride), pads=(1, 1, 1, 1), layout="NCHW")
    assert family_of("Conv").default(problem, replace(CPU, preferred_float_width=8))["KU"] == unrolling


@pytest.mark.parametrize(
    ("rows", "columns", "reduction", "tile", "order"),
    [
        (1024, 512, 512, (14, 2), 0),
        (3136, 96, 16, (8, 2), 0),  # what it stores counts
        (49, 512, 2000, (13, 2), 1),
        (49, 512, 2048, (7, 2), 1),  # rows a page apart
        (21, 512, 512, (7, 2), 1),  # and not 7 x 4, for which there are no registers when it is unrolled
        (49, 2048, 512, (13, 2), 1),
        (400, 48, 288, (8, 3), 0),  # three vectors of columns
    ],
)
def test_with_avx512_a_tile_is_tall_where_the_reduction_is_long_and_cores_share_out_large_weights(
    rows: int, columns: int, reduction: int, tile: tuple[int, int], order: int
) -> None:
    problem = MatMulProblem(rows, reduction, columns)
    default = family_of("MatMul").default(problem, CPU)
    assert (default["MR"], default["NV"], default["ORDER"]) == (*tile, order)
    assert default["KU"] == (2 if reduction >= 64 else 1)
    assert family_of("MatMul").space(problem, CPU).violations(default) == []


@pytest.mark.parametrize("width", [4, 8])
def test_without_avx512_tiles_are_low_and_cores_share_out_large_weights_too(width: int) -> None:
    limits = replace(CPU, preferred_float_width=width)
    matmul = family_of("MatMul").default(MatMulProblem(49, 512, 2048), limits)
    stem = ConvProblem(1, 224, 224, 3, 64, (7, 7), pads=(3, 3, 3, 3), strides=(2, 2), layout="NCHW")
    assert (matmul["MR"] <= 8, matmul["ORDER"]) == (True, 1)
    assert matmul["KU"] == (4 if width == 8 else 1)  # small tiles of few registers are unrolled further
    assert family_of("Conv").default(stem, limits)["LM"] < 4


@pytest.mark.parametrize(
    ("problem", "tile"),
    [
        (ConvProblem(1, 14, 14, 256, 128, (1, 1)), (14, 2)),
        (ConvProblem(1, 28, 28, 256, 128, (1, 1), strides=(2, 2)), (6, 4)),
        (ConvProblem(1, 56, 56, 128, 128, (3, 3), pads=(1, 1, 1, 1), strides=(2, 2)), (6, 4)),
        (ConvProblem(1, 224, 224, 3, 64, (7, 7), pads=(3, 3, 3, 3), strides=(2, 2), layout="NCHW"), (8, 2)),
    ],
)
def test_with_avx512_a_tile_is_wide_where_rows_lie_apart_and_low_where_they_are_read_from_planes(
    problem: ConvProblem, tile: tuple[int, int]
) -> None:
    default = family_of("Conv").default(problem, CPU)
    assert (default["MR"], default["NV"], default["KU"]) == (*tile, 2)
    assert family_of("Conv").space(problem, CPU).violations(default) == []


@pytest.mark.parametrize(
    ("side", "channels", "units", "at_once"),
    [
        (13, 512, 2, True),
        (7, 512, 2, True),
        (14, 256, 2, True),
        (28, 128, 2, False),  # 49 tiles
        (14, 64, 2, False),  # filters that a cache holds
        (14, 256, 64, False),  # columns for eight cores
    ],
)
def test_winograds_filters_are_read_once_for_few_tiles(side: int, channels: int, units: int, at_once: bool) -> None:
    limits = replace(CPU, compute_units=units)
    problem = ConvProblem(1, side, side, channels, channels, (3, 3), pads=(1, 1, 1, 1))
    default = family_of("Conv").default(problem, limits)
    assert (default["ALG"] > 0 and default["MR"] * default["RB"] == 16) is at_once
    assert family_of("Conv").space(problem, limits).violations(default) == []


@pytest.mark.parametrize(("reduction", "together"), [(8, 16), (16, 8), (64, 2), (512, 1)])
def test_a_work_group_of_a_cpu_has_enough_to_do(reduction: int, together: int) -> None:
    default = family_of("MatMul").default(MatMulProblem(5040, reduction, 96), replace(CPU, preferred_float_width=8))
    assert (default["LM"], default["LN"]) == (together, 1)


@pytest.mark.parametrize(
    ("problem", "units", "algorithm"),
    [
        (ConvProblem(1, 56, 56, 64, 64, (3, 3), pads=(1, 1, 1, 1)), 2, 4),
        (ConvProblem(1, 14, 14, 256, 256, (3, 3), pads=(1, 1, 1, 1)), 2, 4),
        (ConvProblem(1, 7, 7, 512, 512, (3, 3), pads=(1, 1, 1, 1)), 2, 2),  # whose filters weigh more than its map
        (ConvProblem(1, 7, 7, 512, 512, (3, 3), pads=(1, 1, 1, 1)), 1024, 0),  # in blocks for some of the cores only
        (ConvProblem(1, 56, 56, 64, 128, (3, 3), pads=(1, 1, 1, 1), strides=(2, 2)), 2, 0),
        (ConvProblem(1, 8, 8, 16, 16, (3, 3), pads=(1, 1, 1, 1)), 2, 0),
    ],
)
def test_a_convolution_is_computed_by_the_algorithm_that_its_shape_asks_for(
    problem: ConvProblem, units: int, algorithm: int
) -> None:
    limits = replace(CPU, compute_units=units)
    family = family_of("Conv")
    default = family.default(problem, limits)
    assert default["ALG"] == algorithm
    assert family.space(problem, limits).violations(default) == []
    assert default not in family.starters(problem, limits)
    assert family.default(problem, GPU)["ALG"] in (0, 1)


@pytest.mark.parametrize(
    ("side", "inputs", "outputs", "tile", "order"),
    [
        (160, 96, 24, (4, 3), 0),  # three vectors of columns, and filters that stay in a cache
        (56, 64, 64, (6, 2), 0),
        (28, 128, 128, (5, 2), 1),
        (14, 256, 256, (4, 3), 1),  # 16 tiles; two at a time would read all filters eight times
    ],
)
def test_winograds_tile_fits_the_columns_and_its_order_the_filters(
    side: int, inputs: int, outputs: int, tile: tuple[int, int], order: int
) -> None:
    problem = ConvProblem(1, side, side, inputs, outputs, (3, 3), pads=(1, 1, 1, 1))
    default = family_of("Conv").default(problem, replace(CPU, preferred_float_width=8))
    assert default["ALG"] == 4
    assert ((default["MR"], default["NV"]), default["ORDER"]) == (tile, order)


@pytest.mark.parametrize(
    ("side", "channels", "units", "twice"),
    [
        (14, 256, 2, True),  # 16 tiles
        (7, 512, 2, True),  # 16 of 2 x 2
        (14, 64, 2, False),  # the filters stay in a cache
        (20, 256, 2, False),  # 25 tiles
        (10, 256, 2, False),  # 9, in tiles of their own
        (14, 256, 16, False),  # too few columns for so many cores
    ],
)
def test_with_few_registers_winograds_filters_are_read_twice_for_few_tiles(
    side: int, channels: int, units: int, twice: bool
) -> None:
    problem = ConvProblem(1, side, side, channels, channels, (3, 3), pads=(1, 1, 1, 1))
    default = family_of("Conv").default(problem, replace(CPU, preferred_float_width=8, compute_units=units))
    assert default["ALG"] > 0
    assert (default["MR"] * default["RB"] == 8) is twice


@pytest.mark.parametrize(("side", "inputs", "outputs"), [(26, 384, 256), (28, 128, 128), (56, 64, 64), (20, 256, 256)])
def test_an_unrolled_tile_leaves_registers_for_the_next_row(side: int, inputs: int, outputs: int) -> None:
    """7 x 4 vectors suit 49 tiles, and take one and a half times as long as 7 x 2 when unrolled."""
    problem = ConvProblem(1, side, side, inputs, outputs, (3, 3), pads=(1, 1, 1, 1))
    for tile in (family_of("Conv").default(problem, CPU), *family_of("Conv").guesses(problem, CPU)):
        assert tile["KU"] == 1 or (tile["MR"] + 1) * tile["NV"] <= 30


@pytest.mark.parametrize("limits", [GPU, SMALL, replace(GPU, max_work_group_size=16)], ids=["gpu", "one", "sixteen"])
@pytest.mark.parametrize(("op", "problem"), [("Conv", CONV), ("MatMul", MATMUL), ("DepthwiseConv", DEPTHWISE)])
def test_work_groups_shrink_to_the_device_and_tiles_stay(op: str, problem: Any, limits: DeviceLimits) -> None:
    default = family_of(op).default(problem, limits)
    assert default["VW"] == 4
    assert default["MR"] >= 2
    least = min(64, limits.max_work_group_size)
    assert default["LM"] * default["LN"] == least or (default.get("ALG") and default["LM"] * default["LN"] > least)


@pytest.mark.parametrize("most", [2, 3, 12])
@pytest.mark.parametrize(("op", "problem"), [("Conv", CONV), ("MatMul", MATMUL), ("DepthwiseConv", DEPTHWISE)])
def test_devices_of_few_work_items_have_defaults(op: str, problem: Any, most: int) -> None:
    """A group's sides are powers of two, the most that a device allows need be none."""
    limits = replace(GPU, max_work_group_size=most, max_work_item_sizes=(most, most, most))
    default = family_of(op).default(problem, limits)
    assert most // 2 < default["LM"] * default["LN"] <= most

"""Test transposed convolution: phases and taps."""

from gputune.kernels.ops.conv_transpose import ConvTransposeProblem

from .problems import RELU

# With the pads (bottom, right) that the output's size follows from, and the output padding.


def test_a_kernel_as_large_as_the_strides_is_one_tap() -> None:
    problem = ConvTransposeProblem(1, 160, 160, 24, 1, (2, 2), (2, 2), (320, 320), epilogue=RELU)
    assert (problem.positions, problem.taps, problem.columns) == ((160, 160), (1, 1), 4)


def test_positions_cover_all_output_pixels_and_no_more_than_that() -> None:
    padded = ConvTransposeProblem(1, 5, 5, 3, 2, (4, 3), (2, 2), (10, 9), (1, 2))
    assert (padded.positions, padded.taps) == ((6, 5), (2, 2))  # rows 1 to 10 and columns 2 to 10, in twos
    dilated = ConvTransposeProblem(1, 5, 5, 3, 2, (3, 3), (1, 3), (9, 17), dilations=(2, 2))
    assert dilated.taps == (5, 2)

"""Test examples/ocr.py: boxes around text on made-up maps, the error rate, and the memory of its graphs.

To test what it reads needs models and a device.
"""

import math
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import ocr
from PIL import Image
from text_boxes import LARGER, _regions, boxes_of

from gputune.runtime import load_group
from tests.client import models
from tests.client.commands import Gputune

Floats = npt.NDArray[np.floating]


def painted(height: int, width: int, *lines: tuple[float, float, float, float, float]) -> Floats:
    """A map with lines of text: centre x and y, length, thickness, angle in degrees."""
    y, x = np.mgrid[:height, :width]
    found = np.zeros((height, width))
    for centre_x, centre_y, length, thickness, degrees in lines:
        cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        along = (x - centre_x) * cosine + (y - centre_y) * sine
        across = (y - centre_y) * cosine - (x - centre_x) * sine
        found[(np.abs(along) <= length / 2) & (np.abs(across) <= thickness / 2)] = 0.9
    return found


def sides(box: Floats) -> tuple[float, float]:
    return float(np.linalg.norm(box[1] - box[0])), float(np.linalg.norm(box[3] - box[0]))


@pytest.mark.parametrize("degrees", [0, 7, -20])
def test_a_box_lies_along_its_line_and_is_larger(degrees: float) -> None:
    (box,) = boxes_of(painted(120, 300, (150, 60, 200, 15, degrees)))
    grown = 2 * 200 * 15 * LARGER / (2 * 215)
    assert sides(box) == pytest.approx((200 + grown, 15 + grown), abs=4)
    assert box.mean(axis=0) == pytest.approx((150, 60), abs=1.5)
    right, down = box[1] - box[0]
    assert math.degrees(math.atan2(down, right)) == pytest.approx(degrees, abs=1)
    assert box[3, 1] > box[0, 1], "clockwise from the upper left"


def test_boxes_come_in_the_order_of_reading() -> None:
    second = (230, 32, 80, 12, 0)  # a little higher than the one left of it, and on its line
    boxes = boxes_of(painted(120, 300, (150, 90, 200, 12, 0), second, (70, 34, 80, 12, 0)))
    assert [(round(box[:, 0].mean() / 10), round(box[:, 1].mean() / 10)) for box in boxes] == [(7, 3), (23, 3), (15, 9)]


def test_what_is_faint_or_small_is_no_text() -> None:
    faint = painted(60, 200, (100, 30, 150, 12, 0)) * 0.5
    assert boxes_of(faint) == []
    assert boxes_of(painted(60, 200, (100, 30, 1, 1, 0))) == []
    assert boxes_of(np.zeros((40, 50))) == []


def test_a_region_that_forks_is_one() -> None:
    """Two strokes that meet below: their runs get one name only in the row where they meet."""
    fork = np.zeros((60, 120))
    fork[10:40, 20:30] = fork[10:40, 80:90] = fork[40:50, 20:90] = 0.9
    (points,) = _regions(fork > 0)
    assert points.min(axis=0).tolist() == [20, 10] and points.max(axis=0).tolist() == [89, 49]
    fork[40:50] = 0
    assert len(list(_regions(fork > 0))) == 2


@pytest.mark.parametrize(
    ("text", "expected", "rate"),
    [
        ("abc", "abc", 0),
        ("abd", "abc", 1 / 3),
        ("", "ab", 1),
        ("axbc", "abc", 1 / 3),
        ("bc", "abc", 1 / 3),
        ("a", "", 1),
    ],
)
def test_the_error_rate(text: str, expected: str, rate: float) -> None:
    assert ocr.error_rate(text, expected) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("picture", "size"), [((384, 191), (1472, 736)), ((191, 384), (736, 1472)), ((1000, 900), (992, 896))]
)
def test_the_detectors_size(picture: tuple[int, int], size: tuple[int, int]) -> None:
    assert ocr._detector_size(picture) == size


@pytest.mark.slow
def test_its_graphs_share_arenas_and_weights_and_copy_nothing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A model of two convolutions in five widths, as the recogniser has them."""
    convolutions = models.build(
        "(float[1,3,h,w] x) => (float[1,4,h,w] y)",
        """c = Conv<pads=[1,1,1,1]>(x, k)
           r = Relu(c)
           y = Conv(r, l)""",
        {"k": (8, 3, 3, 3), "l": (4, 8, 1, 1)},
    )
    widths = (16, 32, 48, 64, 80)
    ran = Gputune(capfd)(
        "context-binary-generator", "--model", models.save(convolutions, tmp_path), "--binary_file", "five",
        "--output_dir", tmp_path, "--tuning_effort", "none", "--device", "null",
        "--input_dimensions", ";".join(f"x=1,3,{ocr.HEIGHT},{width}" for width in widths),
    )  # fmt: skip
    assert ran.code == 0, ran.err
    with load_group([tmp_path / "five.bin"], "null") as group:
        graphs = [group[name] for name in group if "/" in name]
        memory = group.memory
        assert len(graphs) == 5
        assert memory.weights == ocr._weights_bytes(graphs[0]), "one copy for all five"
        assert sum(memory.arenas) == max(sum(graph.graph.arena_bytes) for graph in graphs)
        assert ocr.memory_line(group) == (
            f"5 graphs: arenas {sum(memory.arenas) / 1e6:.1f} MB instead of {memory.private / 1e6:.1f} MB, "
            f"weights {memory.weights / 1e6:.1f} MB instead of {5 * memory.weights / 1e6:.1f} MB"
        )
        for graph in graphs:
            model = ocr.Model(graph)
            ocr._draw_line(Image.new("RGB", (ocr.HEIGHT // 2, ocr.HEIGHT), (255, 255, 0)), model)
            assert model.run().shape == (1, 4, ocr.HEIGHT, model.width)
            assert all(counted.bytes_copied == 0 for counted in graph.counters.last.values())
            blue, _, red = model.pixels[0, :, :, : min(model.width, ocr.HEIGHT // 2)]
            assert (blue == -1).all() and (red == 1).all()
            assert not model.pixels[0, :, :, ocr.HEIGHT // 2 :].any()
        assert {ocr.Model(graph).width for graph in graphs} == set(widths)

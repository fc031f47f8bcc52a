"""Test scripts/models/zoo: what it accepts and feeds to models, when it calls them right, and refilled weights.

Test what scripts/models/beside calls equal, too.
"""

from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from models import beside, classic_models, material, zoo, zoo_models
from models.zoo_models import ENTRIES, Entry


class Refused(Exception):
    pass


def refuse(why: str) -> NoReturn:
    raise Refused(why)


@pytest.mark.parametrize(
    ("name", "dimensions", "said"),
    [("no such model", [], "neither a file nor one of page orientation"), (__file__, ["x=1,a"], "NAME=D0")],
)
def test_what_is_not_understood_is_refused(name: str, dimensions: list[str], said: str) -> None:
    with pytest.raises(Refused, match=said):
        zoo.entry_of(refuse, ENTRIES, name, dimensions)


def test_a_file_takes_the_dimensions_that_are_given() -> None:
    entry = zoo.entry_of(refuse, ENTRIES, __file__, ["a=b=1,2", "c=3"])
    assert (entry.file(), entry.dimensions) == (Path(__file__), {"a=b": (1, 2), "c": (3,)})


def test_whole_numbers_stay_in_their_range() -> None:
    numbers = np.random.default_rng(0)
    entry = Entry(Path, ranges={"ids": (5, 7)})
    assert set(zoo_models.sample(entry, "ids", (50,), "int64", numbers).tolist()) == {5, 6}
    assert set(zoo_models.sample(entry, "mask", (50,), "int32", numbers).tolist()) == {0, 1}
    value = zoo_models.sample(entry, "x", (50,), "float32", numbers)
    assert value.dtype == np.float32
    assert value.min() < -1 < 1 < value.max()


def test_pictures_have_the_shape_of_the_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Image.new("RGB", (30, 20), (255, 0, 51)).save(tmp_path / "red.png")
    monkeypatch.setattr(material, "page_picture", lambda: tmp_path / "red.png")
    value = zoo_models.sample(Entry(Path, picture=True), "x", (2, 3, 5, 7), "float32", np.random.default_rng(0))
    assert value.shape == (2, 3, 5, 7)
    np.testing.assert_allclose(value[:, :, 0, 0], [[1, -1, -0.6]] * 2, atol=1e-6)


def test_every_light_topology_is_named_and_there() -> None:
    files = {path.stem.removeprefix("light_") for path in classic_models.LIGHT.glob("*.onnx")}
    assert files == set(classic_models.LIGHT_STEMS.values())
    assert ENTRIES.keys() >= classic_models.LIGHT_STEMS.keys()


def test_weights_that_were_left_out_are_drawn_for_what_they_do(tmp_path: Path) -> None:
    """A filter by its fan-in, a bias small, a scale that reaches its Mul through an Unsqueeze around one."""
    shapes = {"w": (64, 32, 3, 3), "b": (64,), "s": (64,), "m": (10, 64), "n": (10,)}
    nodes = [helper.make_node("ConstantOfShape", [f"{name}_shape"], [name]) for name in shapes]
    nodes += [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("Unsqueeze", ["s"], ["column"], axes=[1, 2]),
        helper.make_node("Mul", ["c", "column"], ["scaled"]),
        helper.make_node("GlobalAveragePool", ["scaled"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "m", "n"], ["g"], transB=1),
        helper.make_node("Softmax", ["g"], ["y"]),
    ]
    known = [numpy_helper.from_array(np.array(shape, np.int64), f"{name}_shape") for name, shape in shapes.items()]
    graph = helper.make_graph(
        nodes,
        "light",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 32, 5, 5))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10))],
        known,
    )
    path = tmp_path / "light.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4), path)
    model = classic_models.refilled(path)
    weights = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    assert {name: value.shape for name, value in weights.items()} == shapes
    assert weights["w"].std() == pytest.approx((2 / 288) ** 0.5, rel=0.1)
    assert weights["m"].std() == pytest.approx((2 / 64) ** 0.5, rel=0.1)
    assert weights["b"].std() == pytest.approx(0.1, rel=0.3)
    assert weights["s"].min() >= 1
    assert [output.name for output in model.graph.output] == ["g"]  # before softmax
    again = classic_models.refilled(path)
    assert again.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


ONE = np.array([1], np.float32)


@pytest.mark.parametrize(
    ("mine", "other", "equal"),
    [
        (ONE, ONE, True),
        (ONE * np.nan, ONE * np.nan, True),
        (ONE, np.nextafter(ONE, np.float32(2)), False),
        (ONE * 0, ONE * -0.0, False),
        (ONE, ONE[0], False),
        (ONE.view(np.int32), ONE, False),
    ],
)
def test_every_bit_is_compared(mine: Any, other: Any, equal: bool) -> None:
    ways: dict[str, beside.Way] = {}
    both = ({"a": np.array([form]), "a|0 y": value} for form, value in {"persistent": mine, "launches": other}.items())
    assert beside.compare(ways, "m", *both) == ([] if equal else ["a|0 y"])
    assert ways["a"].row(0) == ("1", "persistent 1", "launches 1", "32", "equal")


def test_what_only_one_has_differs() -> None:
    assert beside.compare({}, "m", {"a|0 y": ONE}, {"a|1 y": ONE}) == ["a|0 y", "a|1 y"]

"""Test that each hostile model is refused in one line, or proves harmless and is lowered. `scripts/fuzz models` has
more.
"""

import itertools
from pathlib import Path

import pytest

from gputune.client.errors import ModelError
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from tests.client.hostile_models import hostile_models
from tests.client.models import build, integers, numbers, save


@pytest.mark.parametrize("seed", [11, 12])
def test_hostile_models_are_refused_or_lowered(tmp_path: Path, seed: int) -> None:
    ends = {"refused": 0, "lowered": 0}
    few = (model for model in hostile_models(seed) if model.kind != "nested")  # which are tested one by one
    path = tmp_path / "model.onnx"
    for model in itertools.islice(few, 90):
        path.write_bytes(model.content)
        try:
            lower(read_model(path))
            ends["lowered"] += 1
        except ModelError as error:
            assert "\n" not in error.message
            ends["refused"] += 1
    assert min(ends.values()) >= 5


def test_the_same_seed_gives_the_same_models() -> None:
    first, second = (list(itertools.islice(hostile_models(3), 20)) for _ in range(2))
    assert first == second


def test_sizes_that_overflow_are_refused_before_numpy_meets_them(tmp_path: Path) -> None:
    """np.tile ends the process: fewer repeats than axes, and a product beyond 64 bits."""
    body = "a = Tile(c, n) s = ReduceSum<keepdims=0>(a) y = Add(x, s)"
    model = build(
        "(float[2] x) => (float[2] y)", body, {"c": numbers(1, 2, 3, 4).reshape(1, 1, 4), "n": integers(2**62)}
    )
    with pytest.raises(ModelError, match=r"node 'a' of model .* is not valid"):
        read_model(save(model, tmp_path))

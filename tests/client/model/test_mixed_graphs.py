"""Compare made-up models of all kinds of operators, imported, simplified and lowered, with onnxruntime."""

from pathlib import Path

import pytest

from gputune.client.model.importer import import_model
from gputune.client.model.lowering import lower
from gputune.client.model.reference import evaluate
from tests.client.mixed_graphs import Maker, far_off, wanted
from tests.client.models import build, integers


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_made_up_models_compute_what_onnxruntime_computes(start: int) -> None:
    for seed in range(start, start + 10):
        made = Maker(seed, nodes=8)
        got = evaluate(lower(import_model(made.model, Path("made up"), {})), {"x": made.input})
        wrong = {name: far_off(got[name], want) for name, want in wanted(made).items()}
        assert not any(wrong.values()), f"seed {seed}: {wrong}"


def test_an_output_that_is_a_view_is_copied_before_others_read_it() -> None:
    model = build(
        "(float[2,3] x) => (float[6] seen, float[1] y)",
        "seen = Reshape(x, s) y = ReduceMax<keepdims=1>(seen)",
        {"s": integers(6)},
    )
    plan = lower(import_model(model, Path("made up"), {}))
    assert [operation.output for operation in plan.operations] == ["seen", "y"]

"""Made-up models of all kinds of operators, imported, simplified and lowered, against onnxruntime."""

from pathlib import Path

import pytest

from gputune.client.importer import import_model
from gputune.client.lowering import lower
from gputune.client.reference import evaluate

from .mixed_graphs import Maker, far_off, wanted


@pytest.mark.parametrize("start", range(0, 80, 10))
def test_made_up_models_compute_what_onnxruntime_computes(start: int) -> None:
    for seed in range(start, start + 10):
        made = Maker(seed, nodes=8)
        got = evaluate(lower(import_model(made.model, Path("made up"), {})), {"x": made.input})
        wrong = {name: far_off(got[name], want) for name, want in wanted(made).items()}
        assert not any(wrong.values()), f"seed {seed}: {wrong}"


def test_an_output_that_is_a_view_is_copied_before_others_read_it() -> None:
    """Seed 35: an input reshaped is an output, and read by others."""
    made = Maker(35, nodes=8)
    plan = lower(import_model(made.model, Path("made up"), {}))
    copies = [operation.output for operation in plan.operations if operation.inputs.get("input0") == "x"]
    assert plan.operations[0].output == copies[0] == "t0"

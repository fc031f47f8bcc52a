"""Lower the models of plans/*.toml, which compute what onnxruntime does, and those of refused.toml, which are refused.

Where they matter, `runs` are the operations of the plan, and `nodes` is how many nodes of the model they stand for.
`says` is a part of a refusal, which names a node, or `of` the model what it says. Some versions of `onnx` see a fault
before we do.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputune.client.errors import ModelError
from tests.client.models import model_of, read_tables
from tests.client.plans import Lowered, assert_agrees, assert_whole, ops

FOLDER = Path(__file__).parent


def plans() -> Iterator[Any]:
    for path in sorted(FOLDER.glob("plans/*.toml")):
        yield from (pytest.param(table, id=f"{path.stem}: {name}") for name, table in read_tables(path).items())


@pytest.mark.parametrize("table", list(plans()))
def test_plans_compute_what_onnxruntime_does_and_run_what_they_need(lowered: Lowered, table: dict[str, Any]) -> None:
    model = model_of(table)
    plan = lowered(model)
    assert_whole(plan)
    assert_agrees(model, plan)
    assert ops(plan) == table.get("runs", " ".join(ops(plan))).split()
    stands_for = {node for operation in plan.operations for node in operation.nodes}
    assert len(stands_for) == table.get("nodes", len(stands_for))


@pytest.mark.parametrize("table", read_tables(FOLDER / "refused.toml")["refused"], ids=lambda table: table["says"])
def test_what_is_not_supported_is_said_with_the_name_of_the_node(lowered: Lowered, table: dict[str, Any]) -> None:
    model = model_of(table)
    for place, node in enumerate(model.graph.node):
        node.name = f"number {place}"
    with pytest.raises(ModelError) as caught:
        lowered(model)
    message = caught.value.message
    if "onnx" in table and re.match(r"\w+ node '[^']+' of model \S+ is not valid: \[ShapeInference", message):
        return
    assert table["says"] in message
    assert "of" in table or any(f"{node.op_type} node '{node.name}'" in message for node in model.graph.node)

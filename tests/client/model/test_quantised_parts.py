"""Test that no cut goes through a quantised product, its DequantizeLinear and its QuantizeLinear."""

import random
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from gputune.client.errors import Refusal
from gputune.client.model.importer import import_nodes
from gputune.client.model.lowering import lower
from gputune.client.model.parts import Cut, cutting
from gputune.client.model.parts.quantised_groups import quantised_groups
from tests.client.model.test_parts import check, ops
from tests.client.model.test_quantised import MATRIX, Given, inputs_of, model_of
from tests.client.quantised_graphs import QuantisedMaker


def cut_without(model: onnx.ModelProto, refused: Collection[int]) -> Cut:
    """Cut a model of which some nodes, by their places, cannot run."""
    for index, node in enumerate(model.graph.node):
        node.name = f"n{index}"
    imported = import_nodes(model, Path("quantised"), {})
    refusals = tuple(Refusal("Op", f"n{place}", "test") for place in refused)
    scope = cutting._Scope(replace(imported, refusals=refusals))
    return scope.cut(cutting.Work([scope])).named("m", "")


ROWS = "(float[9,96] x) => "
TWO = MATRIX + (
    "c = MatMul(d, v) r = Relu(c) p = QuantizeLinear(r, sy, zy) e = DequantizeLinear(p, sy, zy) "
    "w = DequantizeLinear<axis=0>(turned, s40, z40) m = MatMul(e, w) y = QuantizeLinear(m, sy, zy)"
)
"""Places: 0 and 1 a pair, 2 a weight, 3 to 5 the first product, 6 what reads it, 7 a weight, 8 and 9 the second."""
FIRST, SECOND = (
    ["DequantizeLinear", "MatMul", "QuantizeLinear", "Relu"],
    ["DequantizeLinear", "MatMul", "QuantizeLinear"],
)
HOST = MATRIX + "h = Neg({}) "
DYNAMIC = (
    "q, s, z = DynamicQuantizeLinear(x) p = MatMulInteger(q, bytes, z, zw) f = Cast<to=1>(p) t = Mul(s, s40) "
    "m = Mul(f, t) y = Add(m, float40)"
)
CASES: dict[str, tuple[str, str, int, list[list[str]]]] = {
    "the step behind a product": (ROWS + "(uint8[9,96] y)", TWO, 5, [SECOND]),
    "an activation between": (ROWS + "(uint8[9,96] y)", TWO, 4, [SECOND]),
    "what is before a product": (ROWS + "(uint8[9,96] y)", TWO, 6, [["QuantizeLinear", *FIRST]]),
    "a product": (ROWS + "(uint8[9,96] y)", TWO, 8, [sorted(["QuantizeLinear", *FIRST])]),
    "another operand": (
        "(float[96,96] x) => (uint8[96,96] y)",
        HOST.format("x") + "k = QuantizeLinear(h, sx, zx) e = DequantizeLinear(k, sx, zx) "
        "t = Transpose(e) m = MatMul(d, t) y = QuantizeLinear(m, sy, zy)",
        3,
        [["DequantizeLinear", "DequantizeLinear", "MatMul", "QuantizeLinear", "QuantizeLinear", "Transpose"]],
    ),
    "a sum of a product": (
        "(float[9,96] x, float[9,40] k) => (uint8[9,40] y)",
        HOST.format("k") + "m = MatMul(d, v) a = Add(m, h) y = QuantizeLinear(a, sy, zy)",
        3,
        [["Add", "DequantizeLinear", "MatMul", "QuantizeLinear"]],
    ),
    "another product of a sum": (
        "(float[9,96] x, float[9,96] k) => (uint8[9,40] y)",
        MATRIX + "l = QuantizeLinear(k, sx, zx) e = DequantizeLinear(l, sx, zx) m = MatMul(d, v) n = MatMul(e, v) "
        "a = Add(m, n) y = QuantizeLinear(a, sy, zy)",
        6,
        [],
    ),
    "a range": (ROWS + "(float[9,40] y)", DYNAMIC, 0, []),
    "the float of a sum": (ROWS + "(float[9,40] y)", DYNAMIC, 2, []),
    "a bias of such": (ROWS + "(float[9,40] y)", DYNAMIC, 5, []),
}


@pytest.mark.parametrize(("signature", "body", "refused", "parts"), CASES.values(), ids=CASES)
def test_a_group_runs_in_one_part_or_on_the_host(
    signature: str, body: str, refused: int, parts: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "LEAST_PER_BYTE", 0.0)
    model = model_of(Given(signature, body))
    cut = cut_without(model, [refused])
    assert ops(cut) == [sorted(part) for part in parts]
    if parts:
        check(cut, inputs_of(lower(import_nodes(model, Path("quantised"), {}).whole())))
        floats = [name for name in cut.parts[-1].graph.inputs if name in ("c", "d", "e", "m", "r")]
        assert floats == [], "what is handed over has been quantised"
    stay = cut.stays[cutting.TOGETHER]
    assert stay > 0 or "operand" in body or "h = " in body


@pytest.mark.parametrize("seed", range(30))
def test_made_up_models_keep_their_groups(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAST_SHARE", "LEAST_PER_BYTE"):
        monkeypatch.setattr(cutting, name, 0.0)
    made, chance = QuantisedMaker(seed), random.Random(seed)
    places = range(len(made.model.graph.node))
    cut = cut_without(made.model, chance.sample(places, 2))
    where = {place: number for number, part in enumerate(cut.own) for place in cut.places_of(part)}
    for group in quantised_groups(cut.imported.graph, cut.imported.places):
        assert len({where.get(place) for place in group.own}) == 1, group
    check(cut, {"x": made.input})

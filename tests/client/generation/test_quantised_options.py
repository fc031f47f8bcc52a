"""Test --quantised, and what model-check, the log and contexts say of quantised nodes."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gputune as api
from gputune.client.context.verifying.exactness import quantised_graphs, rounds_less, steps_of
from gputune.client.errors import ConfigError
from tests.client import models
from tests.client.commands import Generate, Gputune
from tests.client.model.test_quantised import MATRIX, Given, model_of
from tests.client.summaries import problems

SIGNATURE = "(float[3,96] x) => (uint8[3,40] y)"
EXACT = Given(SIGNATURE, MATRIX + "c = MatMul(d, v) g = Softmax(c) y = QuantizeLinear(g, sx, zx)")
MIXED = Given(
    SIGNATURE,
    MATRIX + "t = Transpose(d) c = MatMul(d, v) e = Gemm<alpha=0.5, transA=1>(t, v) s = Add(c, e) "
    "y = QuantizeLinear(s, sy, zy)",
)
WHY = {"op": "Gemm", "why": "its alpha or beta is not 1"}
WHOLE = {"QuantizeLinear": 2, "MatMul": 1}
LINE = "in whole numbers: QuantizeLinear 2, MatMul 1"
EXCEPTION = "not exact: Gemm '{}': its alpha or beta is not 1"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    (folder := tmp_path / "mixed").mkdir()
    return models.save(model_of(MIXED), folder)


@pytest.fixture
def exact(tmp_path: Path) -> Path:
    (folder := tmp_path / "exact").mkdir()
    return models.save(model_of(EXACT), folder)


def test_a_context_is_exact_unless_a_node_is_an_exception(
    generate: Generate, gputune: Gputune, exact: Path, mixed: Path
) -> None:
    for model, rules in ((exact, "exact"), (mixed, "mixed")):
        made = generate(model=model)
        assert made.header.configuration["quantised"] == rules
        (told,) = quantised_graphs(made.header).values()
        assert (told["rules"], told["whole_numbers"], told["steps"]) == (rules, WHOLE, {"y": 1.0})
        assert [{key: one[key] for key in WHY} for one in told["exceptions"]] == [WHY] * (rules == "mixed")
        names = [one["node"] for one in told["exceptions"]]
        lines = [f"quantised, {rules}; {LINE}", *map(EXCEPTION.format, names)]
        shown = " ".join(gputune("context-binary-utility", "--context_binary", made.context).out.split())
        checked = gputune("model-check", model).out.splitlines()
        for line in lines:
            assert line in checked and line in shown and line in " ".join(made.err.split())
        listed = json.loads(gputune("context-binary-utility", "--context_binary", made.context, "--json").out)
        assert listed["configuration"]["quantised_graphs"] == {listed["graphs"][0]["name"]: told}
        content = json.loads(gputune("model-check", model, "--json").out)
        assert problems("model-check", content) == [] and content["quantised"] == told


def test_floats_are_asked_for(
    generate: Generate, gputune: Gputune, mixed: Path, null_target: tuple[object, ...]
) -> None:
    made = generate("--quantised", "float", model=mixed)
    assert made.header.configuration["quantised"] == "float" and rounds_less(made.header)
    (told,) = quantised_graphs(made.header).values()
    assert told == {"rules": "float", "whole_numbers": {"QuantizeLinear": 1}, "exceptions": [], "steps": {}}
    _, target, _, token_file = map(str, null_target)
    how: dict[str, Any] = {"output": mixed.with_name("m.bin"), "target": target, "token_file": token_file}
    assert api.tune(mixed, effort="none", quantised="float", **how).graphs
    assert (
        "quantised, float; in whole numbers: QuantizeLinear 1"
        in gputune("model-check", mixed, "--quantised", "float").out.splitlines()
    )


def test_python_says_what_is_exact(exact: Path, mixed: Path) -> None:
    found, floats = (api.check(mixed, quantised=rules).quantised for rules in (None, "float"))
    assert found is not None and floats is not None
    assert (found.rules, dict(found.whole_numbers), dict(found.steps)) == ("mixed", WHOLE, {"y": 1.0})
    assert [(one.op, one.why) for one in found.exceptions] == [tuple(WHY.values())]
    assert (floats.rules, floats.exceptions) == ("float", ())
    with pytest.raises(ConfigError, match="quantised: there is no 'int8'; there are 'exact', 'float'"):
        api.check(exact, quantised="int8")
    assert json.dumps(api.check(mixed).to_dict())


def test_floats_that_nothing_rounds_cannot_be_asked_for(generate: Generate, gputune: Gputune, mixed: Path) -> None:
    said = "--quantised float has no effect, as no node is quantised; drop it"
    plain = models.save(models.conv_relu_gemm(), mixed.parent)
    assert said in generate("--quantised", "float").last_line
    assert said in gputune("model-check", plain, "--quantised", "float").last_line
    assert api.check(plain).quantised is None and "quantised" not in generate().header.configuration
    ran = generate("--quantised", "float", "--verify", model=mixed)
    assert ran.code == 2
    assert "--verify compares with a model that rounds, and --quantised float does not; drop one" in ran.last_line


GOOD: dict[str, Any] = {"rules": "exact", "whole_numbers": {}, "exceptions": [], "steps": {"y": 1}}


@pytest.mark.parametrize(
    "told",
    [
        None, 3, [GOOD], {"g": None}, {"g": {**GOOD, "rules": 1}}, {"g": {**GOOD, "whole_numbers": {"Conv": "1"}}},
        {"g": {**GOOD, "exceptions": [{"node": "a", "op": "b"}]}}, {"g": {**GOOD, "exceptions": {}}},
        {"g": {**GOOD, "steps": {"y": "1"}}}, {"g": {**GOOD, "steps": {"y": -1.0}}}, {"g": {**GOOD, "steps": []}},
    ],
)  # fmt: skip
def test_what_a_file_says_in_another_form_is_not_believed(generate: Generate, told: object) -> None:
    header = generate().header
    name = header.graphs[0].name
    for said, graphs, steps in (({name: GOOD}, {name: GOOD}, {"y": 1}), ({"h": GOOD}, {"h": GOOD}, {}), (told, {}, {})):
        changed = replace(header, configuration={**header.configuration, "quantised_graphs": said})
        opened = SimpleNamespace(header=changed, graph=header.graphs[0])
        assert (quantised_graphs(changed), steps_of(opened)) == (graphs, steps)

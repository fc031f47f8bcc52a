"""Test what --state and --state_capacity say of models."""

from pathlib import Path
from typing import Any

import pytest

from gputune.client.errors import ConfigError
from gputune.client.model.model_files import ModelFile, StateChoice, with_states
from gputune.client.options.inputs import CAPACITIES, STATES

FILES = [ModelFile(Path("encoder.onnx")), ModelFile(Path("decoder.onnx"))]

SAID: dict[str, tuple[str, tuple[int, ...], list[tuple[StateChoice, ...]]]] = {
    "nothing": ("", (), [(), ()]),
    "auto, of all": ("auto", (8,), [(StateChoice(8),), (StateChoice(8),)]),
    "auto, of one": ("decoder:auto", (8, 16), [(), (StateChoice(8), StateChoice(16))]),
    "pairs": ("decoder:past*=now*; decoder:h=hn", (8,), [(), (StateChoice(8, (("past*", "now*"), ("h", "hn"))),)]),
    "fixed pairs": ("decoder:h=hn", (), [(), (StateChoice(0, (("h", "hn"),)),)]),
    "a dimension": ("decoder:length", (24,), [(), (StateChoice(24, prefix="length"),)]),
}


@pytest.mark.parametrize("name", SAID)
def test_models_have_the_states_that_are_said(name: str) -> None:
    text, capacities, states = SAID[name]
    parts = STATES.text(text, "--state") if text else ()
    files = with_states(FILES, parts, capacities)
    assert [file.states for file in files] == states
    assert [len(file.graphs) for file in files] == [len(each) or 1 for each in states]


WRONG = {
    "a part that is empty": ("a=b;", (), "--state: 'a=b;' has a part that is empty"),
    "two dimensions": ("rows;length", (8,), "--state: 'rows' is no pair IN=OUT; give pairs, auto, or the name of one"),
    "auto and a pair": ("auto;a=b", (8,), "--state: 'auto' is no pair IN=OUT"),
    "half a pair": ("a=", (), "--state a=: give two names"),
    "stars that differ": ("a*=b", (), "--state a\\*=b: give two names, with as many \\* in both"),
    "a capacity alone": ("", (8, 64), "--state_capacity 8,64: it is the room of a state; give --state, too"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_says_no_state_is_refused(name: str) -> None:
    text, capacities, message = WRONG[name]
    with pytest.raises(ConfigError, match=message):
        with_states(FILES, STATES.text(text, "--state") if text else (), capacities)


@pytest.mark.parametrize("given", ["8,8", "8,", "x", "0", [], [8, "x"], [8, 8], True])
def test_capacities_are_numbers_that_differ(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^--state_capacity.* number"):
        CAPACITIES.text(given, "--state_capacity")

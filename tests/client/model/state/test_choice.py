"""Test what --state and --state_capacity say of models."""

from pathlib import Path

import pytest

from gputune.client.errors import ConfigError
from gputune.client.model.model_files import ModelFile, StateChoice, with_states
from gputune.client.options.inputs import STATES

FILES = [ModelFile(Path("encoder.onnx")), ModelFile(Path("decoder.onnx"))]

SAID: dict[str, tuple[str, int, list[StateChoice | None]]] = {
    "nothing": ("", 0, [None, None]),
    "auto, of all": ("auto", 8, [StateChoice(8), StateChoice(8)]),
    "auto, of one": ("decoder:auto", 8, [None, StateChoice(8)]),
    "pairs": ("decoder:past*=present*; decoder:h=hn", 8, [None, StateChoice(8, (("past*", "present*"), ("h", "hn")))]),
    "a dimension": ("decoder:length", 24, [None, StateChoice(24, prefix="length")]),
}


@pytest.mark.parametrize("name", SAID)
def test_models_have_the_states_that_are_said(name: str) -> None:
    text, capacity, states = SAID[name]
    parts = STATES.text(text, "--state") if text else ()
    assert [file.state for file in with_states(FILES, parts, capacity)] == states


WRONG = {
    "a part that is empty": ("a=b;", 0, "--state: 'a=b;' has a part that is empty"),
    "two dimensions": ("rows;length", 8, "--state: 'rows' is no pair IN=OUT; give pairs, auto, or the name of one"),
    "auto and a pair": ("auto;a=b", 8, "--state: 'auto' is no pair IN=OUT"),
    "half a pair": ("a=", 0, "--state a=: give two names"),
    "stars that differ": ("a*=b", 0, "--state a\\*=b: give two names, with as many \\* in both"),
    "a capacity alone": ("", 8, "--state_capacity 8: it is the room of a state; give --state, too"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_says_no_state_is_refused(name: str) -> None:
    text, capacity, message = WRONG[name]
    with pytest.raises(ConfigError, match=message):
        with_states(FILES, STATES.text(text, "--state") if text else (), capacity)

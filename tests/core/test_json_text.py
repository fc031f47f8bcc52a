"""Test that JSON for tools holds only valid JSON, and that JSON for digests never changes."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.core.json_text import TEXTS, canonical_json, json_text, numbers

VALUE = {"steps": (("clip", (0.0, math.inf)), ("add", -math.inf)), "shape": [1, 2], "ä": None, "on": True, "x": 1e-7}

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text().filter(lambda x: x not in TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@pytest.mark.slow
@given(indent=st.sampled_from([None, 1]), value=plain)
def test_what_is_written_is_strict_and_comes_back(indent: int | None, value: Any) -> None:
    text = json_text(value, indent)
    assert numbers(json.loads(text, parse_constant=refuse)) == value


def test_infinities_and_nan_are_texts() -> None:
    assert json_text({"a": (math.inf, -math.inf), "b": math.nan}) == '{"a":["Infinity","-Infinity"],"b":"NaN"}'
    assert json_text([1.5, {}], indent=1) == "[\n 1.5,\n {}\n]"
    assert math.isnan(numbers(["NaN"])[0])


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError):
        json_text({"a": b"x"})


def test_the_bytes_that_decide_digests() -> None:
    """When this fails, caches that were written before do not hit."""
    assert canonical_json(VALUE) == (
        '{"on":true,"shape":[1,2],"steps":[["clip",[0.0,Infinity]],["add",-Infinity]],"x":1e-07,"\\u00e4":null}'
    )


@given(plain, plain)
def test_canonical_json_tells_different_values_apart(one: Any, two: Any) -> None:
    if canonical_json(one) == canonical_json(two):
        assert repr(one) == repr(two) or one == two

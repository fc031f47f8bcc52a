"""Test that each field of a key matters, and that today's digests are pinned."""

import dataclasses
import math
from typing import Any

import pytest

from gputune.cache import KEY_VERSION, TaskKey, Validity

from .conftest import TASK, VALIDITY

KEYS: list[TaskKey | Validity] = [TASK, VALIDITY]
FIELDS = [(key, field.name) for key in KEYS for field in dataclasses.fields(key)]


def other(value: Any) -> Any:
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, int):
        return value + 1
    return {**value, "another": "1"}


@pytest.mark.parametrize(("key", "name"), FIELDS, ids=[f"{type(k).__name__}.{n}" for k, n in FIELDS])
def test_each_field_makes_another_key(key: Any, name: str) -> None:
    changed = dataclasses.replace(key, **{name: other(getattr(key, name))})
    assert changed.digest != key.digest
    assert changed != key


def test_golden_digests() -> None:
    """When this fails, stored measurements are not found any more: raise KEY_VERSION, then pin the new digests."""
    assert (KEY_VERSION, TASK.digest, VALIDITY.digest) == (
        1,
        "0ee898da61e7bd7b00c2484025b9dc9bf764f221c7470d612774b74df272a7ee",
        "59fa36e9b9ca963efc4158df193ded97ccab437a24db367a8c85aa47944686bd",
    )
    problem = {"steps": [["clip", [0.0, math.inf]], ["add", -math.inf]], "shape": [1, 2], "ä": None, "on": True}
    assert TaskKey("Elementwise", {**problem, "x": 1e-7}).digest == (
        "98df2c31374126fe36f2647010e0f429dfc9e13282c6ce229895f54259f1c18a"
    )


def test_the_version_is_part_of_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputune.cache.key.KEY_VERSION", KEY_VERSION + 1)
    assert dataclasses.replace(TASK).digest != TASK.digest
    assert dataclasses.replace(VALIDITY).digest != VALIDITY.digest


def test_order_and_kind_of_container_do_not_matter() -> None:
    one = TaskKey("Pool", {"kernel": (3, 3), "kind": "max"})
    two = TaskKey("Pool", {"kind": "max", "kernel": [3, 3]})
    assert one == two
    assert one.digest == two.digest
    assert len({one, two}) == 1


def test_the_key_keeps_its_own_copy() -> None:
    problem = {"pads": [1, 1]}
    key = TaskKey("Pool", problem)
    problem["pads"].append(7)
    assert key.problem == {"pads": [1, 1]}


def test_infinity_is_a_value_and_nan_is_not() -> None:
    assert TaskKey("Elementwise", {"clip": [0.0, math.inf]}).digest != TaskKey("Elementwise", {"clip": [0.0]}).digest
    with pytest.raises(ValueError, match=r"problem.clip\[1\] is not a number"):
        TaskKey("Elementwise", {"clip": [0.0, math.nan]})


@pytest.mark.parametrize("bad", [{"a": {1: 2}}, {"a": b"x"}, {"a": {1, 2}}, [1]])
def test_what_json_cannot_hold_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError):
        TaskKey("Conv", bad)


@pytest.mark.parametrize(
    "change", [{"compute_units": "2"}, {"compute_units": True}, {"platform": None}, {"settings": {"A": 1}}]
)
def test_fields_of_another_type_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"Validity.{next(iter(change))}"):
        dataclasses.replace(VALIDITY, **change)

"""Test the decoder: each kind of hint takes what fits it, and says where a value does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import pytest

from gputune.core.bounds import Amount, CText, Stored, Within, in_files
from gputune.core.decoder import DecodeError, decode, record_of


@dataclass(frozen=True)
class Plain:
    number: int


class Pair(NamedTuple):
    name: CText
    amount: Amount


@in_files("later")
@dataclass(frozen=True)
class Filed:
    pairs: tuple[Pair, ...]
    place: tuple[Amount, Amount]
    either: Plain | Annotated[int, Within(0, 5)]
    kind: Annotated[str, Stored(Literal["a", "b"], str)] = "a"
    time: Annotated[float, Within(0, 10)] | None = None
    digest: Annotated[str, Stored(bytes, bytes.hex)] = ""
    by_name: Mapping[str, Amount] = ()  # type: ignore[assignment]
    later: int = 7


@in_files(closed=True)
@dataclass(frozen=True)
class Closed:
    number: int = 0


WHOLE: dict[str, Any] = {
    "pairs": [["x", 1]],
    "place": [2, 3],
    "either": {"number": 4},
    "kind": "b",
    "time": 5,
    "digest": b"\x0a",
    "by_name": {"y": 6},
}


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1])
def test_a_plain_number_may_have_64_bits(number: int) -> None:
    assert decode(Plain, {"number": number}) == Plain(number)


@pytest.mark.parametrize("number", [-(2**63) - 1, 2**63])
def test_a_plain_number_has_no_more_than_64_bits(number: int) -> None:
    with pytest.raises(DecodeError, match=f"number: expected a 64-bit integer, got {number}"):
        decode(Plain, {"number": number})


def test_a_record_of_a_file_is_read() -> None:
    wanted = Filed((Pair("x", 1),), (2, 3), Plain(4), "b", 5.0, "0a", {"y": 6}, 7)
    assert decode(Filed, WHOLE) == wanted
    assert decode(Filed, WHOLE | {"of a later version": [1]}) == wanted
    assert decode(Filed, WHOLE | {"either": 5, "time": None, "later": 8}).later == 8


@pytest.mark.parametrize("name", WHOLE)
def test_defaults_do_not_make_a_field_of_a_file_optional(name: str) -> None:
    with pytest.raises(DecodeError, match=f"Filed lacks {name}"):
        decode(Filed, {other: value for other, value in WHOLE.items() if other != name})


def test_a_closed_record_has_its_fields_and_no_others() -> None:
    with pytest.raises(DecodeError, match="Closed lacks number"):
        decode(Closed, {})
    with pytest.raises(DecodeError, match="Closed has no 'more'"):
        decode(Closed, {"number": 1, "more": 2})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("pairs", [["x"]], "pairs[0]: expected a list of 2 items, got list"),
        ("pairs", [["x", 1], ["y", -1]], "pairs[1].amount: value -1 is outside 0..9223372036854775807"),
        ("pairs", [["a\0", 1]], "pairs[0].name: expected a text without a character 0"),
        ("place", [1, 2, 3], "place: expected a list of 2 items"),
        ("place", [1, True], "place[1]: expected a 64-bit integer, got True"),
        ("either", 6, "either: value 6 is outside 0..5"),
        ("either", "6", "either: expected"),
        ("kind", "c", "kind: expected one of a, b; got 'c'"),
        ("time", 10**400, "time: expected a finite number"),
        ("time", 11, "time: value 11.0 is outside 0..10"),
        ("time", float("nan"), "time: expected a finite number, got nan"),
        ("digest", "0a", "digest: expected bytes, got '0a'"),
        ("by_name", {"y": None}, "by_name['y']: expected a 64-bit integer, got None"),
        (5, 1, "Filed has no 5"),
    ],
)
def test_what_does_not_fit_is_named(name: Any, value: object, said: str) -> None:
    with pytest.raises(KeyError) as caught:
        record_of(Filed, WHOLE | {name: value}, "a file", KeyError)
    assert caught.value.args[0].startswith(f"a file: {said}")


def test_plain_values_may_be_as_deep_as_their_caller_allows() -> None:
    @dataclass(frozen=True)
    class Holder:
        value: object

    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    assert decode(Holder, {"value": deep}).value is deep
    with pytest.raises(DecodeError, match="expected texts as keys"):
        decode(Holder, {"value": [{1: 2}]})

"""Test several targets for one generation: which are refused, and what is left open."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from gputune.client.errors import ConfigError, GputuneError, TargetError
from gputune.client.target import several
from gputune.client.target.connecting import AdbRequest
from gputune.client.target.several import choose_targets
from tests.client.fake_target import FakeTarget, fake_target


@pytest.fixture
def two() -> Iterator[tuple[FakeTarget, FakeTarget]]:
    with fake_target() as one, fake_target() as other:
        one.server["instance"], other.server["instance"] = "the first", "the second"
        yield one, other


def test_two_that_are_alike_are_used_in_the_order_in_which_they_were_named(two: tuple[FakeTarget, FakeTarget]) -> None:
    option = f"{two[1].address}, {two[0].address}"
    with choose_targets(option, {"GPUTUNE_DEVICE": "null"}) as chosen:
        assert chosen.explanation == (
            f"target server {two[1].address} (from --target)",
            "GPUTUNE_DEVICE does not apply: this server has chosen its device",
            f"target server {two[0].address} (from --target)",
        )
        clients = chosen.connect_all()
        assert [client.address for client in clients] == [two[1].address, two[0].address]
    for target in two:
        target.wait_for(lambda target=target: target.ended == 1)  # type: ignore[misc]


def other_driver(target: FakeTarget) -> None:
    target.device["driver_version"] = "9\x1b[2J"


def other_setting(target: FakeTarget) -> None:
    target.server["settings"] = {"POCL_AFFINITY": "1"}


def the_same(target: FakeTarget) -> None:
    target.server["instance"] = "the first"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (other_driver, r"not alike: device driver_version is '.*' and '9\\x1b\[2J'; tune on them one after"),
        (other_setting, "not alike: setting POCL_AFFINITY is unknown and '1'"),
        (the_same, "--target names one server twice: 127.0.0.1:[0-9]+ and 127.0.0.1:[0-9]+; drop one"),
    ],
)
def test_two_that_differ_are_refused_and_no_session_stays_open(
    two: tuple[FakeTarget, FakeTarget], change: Callable[[FakeTarget], None], complaint: str
) -> None:
    change(two[1])
    with (
        choose_targets(f"{two[0].address},{two[1].address}", {}) as chosen,
        pytest.raises(ConfigError, match=complaint),
    ):
        chosen.connect_all()
    for target in two:
        target.wait_for(lambda target=target: target.ended == 1)  # type: ignore[misc]


def test_the_last_of_three_is_compared_with_each_before_it(two: tuple[FakeTarget, FakeTarget]) -> None:
    with fake_target() as third, ExitStack() as stack:
        third.server["instance"] = "the second"
        option = ",".join(target.address for target in (*two, third))
        chosen = stack.enter_context(choose_targets(option, {}))
        with pytest.raises(ConfigError, match=f"one server twice: {two[1].address} and {third.address}"):
            chosen.connect_all()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"option": "a:1,a:1"}, "--target names a:1 twice"),
        ({"option": "a:1,"}, r"--target: '' is not HOST:PORT .*\[bad_address\]"),
        ({"option": "a:1,b"}, r"--target: 'b' is not HOST:PORT"),
        ({"option": "a:1,b:2", "device": "null"}, "--target names the server a:1, which has chosen its device"),
        ({"option": "a:1,b:2", "adb": AdbRequest()}, "drop --adb or --target"),
    ],
)
def test_what_contradicts_itself_is_one_line(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(GputuneError, match=complaint) as caught:
        choose_targets(environment={}, **options)
    assert "\n" not in str(caught.value)


def test_one_is_chosen_by_the_rule_for_one_and_its_server_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    closed: list[int] = []

    class Chosen:
        explanation = ("a line",)

        def connect(self) -> Any:
            raise TargetError("unreachable", "not there")

        def close(self) -> None:
            closed.append(1)

    def choose(*arguments: Any, **options: Any) -> Chosen:
        asked.append((arguments, options["log_level"]))
        return Chosen()

    monkeypatch.setattr(several, "choose_target", choose)
    for option in (None, " host:1"):
        with pytest.raises(TargetError), choose_targets(option, {"A": "b"}, "null", log_level="warn") as chosen:
            assert chosen.explanation == ("a line",)
            chosen.connect_all()
    assert asked == [((None, {"A": "b"}, "null"), "warn"), ((" host:1", {"A": "b"}, "null"), "warn")]
    assert closed == [1, 1]

"""Test what the host of a device does with requests, and how devices are distinguished."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.client.farm.engine import Announced, Call, FarmError, Versions
from gputune.client.farm.frames import ANSWERS, REQUESTS, from_bytes, to_bytes
from gputune.client.farm.hosts import device_lock
from gputune.client.farm.hosts.device_host import DeviceHost
from gputune.client.farm.hosts.device_lock import DeviceLock
from gputune.client.farm.hosts.health import IN_A_ROW, Speed, deviation
from gputune.client.farm.twins import DEFAULT, HEALTH_CHECK, Twins
from gputune.client.target.connecting import Target
from gputune.client.target.embedded_server import EmbeddedServer
from gputune.client.target.transport.credentials import Credentials
from gputune.core.version import software_version
from gputune.runtime.devices import recording
from gputune.server.protocol.errors import RemoteProtocolError
from gputune.server.protocol.messages import PROTOCOL_VERSION, Error, Hello, Ping
from tests.client.farm.conftest import MakeHost
from tests.runtime.backends.test_replay import header, row

GOOD = to_bytes(Ping(), 7)


@given(st.binary(max_size=40), st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_bytes_are_one_frame_or_refused(data: bytes, place: int, byte: int) -> None:
    changed = GOOD[:place] + bytes([byte]) + GOOD[place + 1 :]
    for candidate in (data, changed, GOOD[:place], GOOD + data[:1]):
        try:
            number, message = from_bytes(candidate, REQUESTS)
        except RemoteProtocolError:
            assert candidate != GOOD
        else:
            assert to_bytes(message, number)[:4] == GOOD[:4]


@pytest.mark.parametrize("data", [GOOD + GOOD[:1], GOOD + b"\0", GOOD + GOOD, GOOD + GOOD[:-1], GOOD[:-1], b""])
def test_bytes_that_are_not_exactly_one_frame_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        from_bytes(data, REQUESTS)
    assert raised.value.name == "bad_frame"
    assert from_bytes(GOOD, REQUESTS) == (7, Ping())


def test_a_host_answers_nonsense_with_errors(make_host: MakeHost) -> None:
    host = make_host("a")

    def answered(call: Call) -> str:
        _, reply = from_bytes(host.answer(call, lambda frame: None), ANSWERS)
        assert isinstance(reply, Error)
        return reply.name

    hello = to_bytes(Hello(PROTOCOL_VERSION, software_version()), 1)
    assert answered(Call("open", "job", "s", b"nonsense")) == "bad_frame"
    assert answered(Call("open", "job", "s", GOOD)) == "unexpected_message"
    assert (
        answered(Call("open", "job", "s", to_bytes(Hello(PROTOCOL_VERSION + 1, "gputune 9"), 1))) == "version_mismatch"
    )
    assert answered(Call("ask", "job", "unknown", GOOD)) == "stopping"
    host.answer(Call("open", "job", "s", hello), lambda frame: None)
    assert answered(Call("ask", "job", "s", GOOD + b"x")) == "bad_frame"
    assert answered(Call("ask", "job", "s", hello)) == "unexpected_message"
    assert answered(Call("ask", "other", "s", GOOD)) == "stopping", "a session of another job"


@pytest.mark.parametrize("order", ["kill", "", None])
def test_an_order_that_is_none_is_refused(order: object) -> None:
    with pytest.raises(ValueError, match="not from a client of a farm"):
        Call(order)  # type: ignore[arg-type]


def test_what_a_worker_announces_is_checked(make_host: MakeHost) -> None:
    plain = make_host("a").announced.to_dict()
    assert Announced.read(plain).to_dict() == plain
    for name, value in (("name", "../a"), ("tier", 3), ("device", {}), ("settings", None)):
        with pytest.raises(FarmError, match="announced"):
            Announced.read({**plain, name: value})


def test_versions_are_compared_by_name() -> None:
    mine = Versions("gputune 1", 7, "3.11")
    assert mine.difference(mine.to_dict()) == ""
    assert mine.difference({**mine.to_dict(), "python": "3.12"}) == "python '3.12', not '3.11'"


def test_a_device_is_one_workers(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with DeviceLock("device 0"):
        with pytest.raises(FarmError, match=r"taken by another farm worker \(process [0-9]+"):
            DeviceLock("device 0")
        DeviceLock("device 1").close()
    DeviceLock("device 0").close()
    assert device_lock._folder().stat().st_mode & 0o077 == 0


def test_a_device_is_far_from_its_twins_for_certain_only() -> None:
    twins = [Speed(1, 98, 100, 102), Speed(1, 99, 101, 103)]
    assert deviation(Speed(1, 112, 115, 118), twins) > 0.1
    assert deviation(Speed(1, 80, 82, 85), twins) < -0.1
    assert deviation(Speed(1, 99, 100, 101), [twins[0], Speed(1, 199, 200, 201)]) == 0, "its twin is off, not this one"
    assert deviation(Speed(1, 105, 115, 125), twins) == 0, "its interval reaches into 10 %"
    assert deviation(Speed(1, 200, 200, 200), twins[:1]) == 0, "of two nothing says which one is off"


def slow_or_not(twins: Twins, number: int, is_slow: bool, kind: str = HEALTH_CHECK) -> str:
    """What is heard of device a, whose twins are b and c."""
    took = 150 if is_slow else 100
    return twins.hear("a", kind, "", Speed(number, took, took, took), ("a", "b", "c"))


@pytest.fixture
def twins() -> Twins:
    """Of a tier whose devices b and c have told their speed."""
    found = Twins()
    for name in "bc":
        for kind in (HEALTH_CHECK, DEFAULT):
            found.hear(name, kind, "", Speed(1, 100, 100, 100), ("a", "b", "c"))
    return found


def test_a_device_that_joins_again_is_judged_anew(twins: Twins) -> None:
    """Slow once more than it may be in a row, it is set apart; then it takes as many again."""
    for first in (1, 1 + IN_A_ROW):
        numbers = range(first, first + IN_A_ROW)
        told = [slow_or_not(twins, number, True) for number in numbers]
        assert [bool(one) for one in told] == [False] * (IN_A_ROW - 1) + [True]
        assert told[-1].startswith("its health check takes 50% more time than on its twins, 3 times in a row")


def test_only_what_is_slow_in_a_row_counts(twins: Twins) -> None:
    for number in range(1, 10 * IN_A_ROW + 1):
        assert slow_or_not(twins, number, bool(number % IN_A_ROW)) == ""
    for _ in range(IN_A_ROW):
        assert slow_or_not(twins, 100, True) == "", "the same measurement is heard again and again"
    for number in range(101, 101 + IN_A_ROW - 2):
        assert slow_or_not(twins, number, True) == slow_or_not(twins, number, True, DEFAULT) == "", "each by itself"


@pytest.mark.slow
def test_a_device_that_replays_a_recording_joins_without_a_check(tmp_path: Path) -> None:
    """The kernel of the check is in no recording."""
    recording.write(tmp_path / "f.jsonl.gz", header(), [row(2)])
    server = EmbeddedServer.start(f"replay:{tmp_path}")
    try:
        target = Target(server.host, server.port, (), Credentials(token=server.token))
        with DeviceHost("r", target) as host:
            report = host.announced.report
    finally:
        server.stop()
    assert report["speed"] == [] and report["problem"] == ""

"""Test guesses at the token: each address waits only for its own mistakes, and a right token is let in after them."""

from collections.abc import Callable
from typing import Any

import pytest

from gputune.server.clients import guesses
from gputune.server.clients.authentication import Authentication
from gputune.server.clients.guesses import Guesses
from gputune.server.clients.tenants import address_of
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Ping, Pong
from tests.server.conftest import serving
from tests.server.peer import Peer
from tests.server.workers.fake_worker import works

Make = Callable[..., Any]
TOKEN = b"correct horse battery staple"
ADDRESS = "192.168.1.20"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_each_wrong_proof_doubles_the_wait_up_to_the_longest() -> None:
    clock = Clock()
    found = []
    slow = Guesses(clock)
    for _ in range(guesses.FREE + 8):
        slow.failed(ADDRESS)
        found.append(slow.seconds(ADDRESS))
    assert found == [0.0, 0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0]
    clock.now += 1.5
    assert slow.seconds(ADDRESS) == pytest.approx(0.5)
    clock.now += 1.0
    assert slow.seconds(ADDRESS) == 0.0


def test_mistakes_are_forgotten() -> None:
    clock = Clock()
    slow = Guesses(clock)
    for _ in range(20):
        slow.failed(ADDRESS)
    clock.now += guesses.FORGET_SECONDS
    slow.failed(ADDRESS)
    assert slow.seconds(ADDRESS) == 0.0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (ADDRESS, ADDRESS, True),
        (ADDRESS, "192.168.1.21", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("somewhere", "elsewhere", False),
    ],
)
def test_other_addresses_do_not_wait_and_an_ipv6_network_is_one(one: str, other: str, same: bool) -> None:
    slow = Guesses(Clock())
    for _ in range(20):
        slow.failed(one)
    assert slow.seconds(one) > 0
    assert (slow.seconds(other) > 0) is same


def test_addresses_are_bounded() -> None:
    slow = Guesses(Clock())
    for number in range(guesses.ADDRESSES + 10):
        for _ in range(guesses.FREE):
            slow.failed(f"10.0.{number // 256}.{number % 256}")
    assert slow.seconds("10.0.0.0") == 0.0
    assert slow.seconds("10.0.0.10") > 0.0
    assert len(slow._failed) == guesses.ADDRESSES


def test_wrong_proofs_are_counted_and_the_next_one_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(guesses, "FIRST_SECONDS", 0.01)
    with serving(worker=works, authentication=Authentication(TOKEN)) as (daemon, address):
        seconds = daemon.guesses.seconds

        def noted(where: str) -> float:
            asked.append(where)
            return float(seconds(where))

        monkeypatch.setattr(daemon.guesses, "seconds", noted)
        for _ in range(guesses.FREE + 2):
            with pytest.raises(Exception, match="authentication_failed"):
                Peer(address, b"another horse battery staple")
        assert daemon.guesses._recent(address_of("127.0.0.1"))[0] == guesses.FREE + 2
        with Peer(address, TOKEN) as peer:
            assert peer.ask(Ping()) == Pong()
    assert asked == ["127.0.0.1"] * (guesses.FREE + 3)


@pytest.mark.slow
def test_a_proof_that_has_to_wait_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Limits(authenticate_seconds=1), worker=works, authentication=Authentication(TOKEN)) as (
        daemon,
        address,
    ):
        monkeypatch.setattr(daemon.guesses, "seconds", lambda where: 3600.0)
        with pytest.raises((EOFError, ConnectionError)):  # the time to prove the token is over before
            Peer(address, TOKEN)

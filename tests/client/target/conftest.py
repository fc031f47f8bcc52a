from collections.abc import Iterator

import pytest

from gputune.client.target import reconnecting
from tests.client.fake_target import FakeTarget, fake_target


@pytest.fixture
def target() -> Iterator[FakeTarget]:
    with fake_target() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(reconnecting, "LONGEST_PAUSE_SECONDS", 0.05)

"""Test the page of memory that daemon and worker share."""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from gputune.server.worker.heartbeat_page import HeartbeatPage

Make = Callable[..., Any]


def test_the_page_tells_both_processes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (True, False):
        if not there:
            monkeypatch.delattr(os, "memfd_create")  # some systems have none
        page = HeartbeatPage.create()
        other = HeartbeatPage(page.descriptor)
        page.detach()
        assert (page.read().step, page.read().deadline_ns) == (None, 0)
        other.begin("starting", 3, 1.5)
        doing = page.read()
        assert (doing.step, doing.variant, doing.allowed_ns) == ("starting", 3, 1_500_000_000)
        assert 0 < doing.deadline_ns - time.monotonic_ns() <= 1_500_000_000
        page.cancel(True)
        assert other.cancelled
        other.begin("preparing", None, 1)
        assert other.cancelled and page.read().variant is None
        other.rest()
        assert page.read().step is None


def test_nonsense_on_the_page_is_read_as_nothing() -> None:
    page = HeartbeatPage.create()
    page._page[:32] = b"\xff" * 32
    assert page.read().step is None
    page._page[:32] = b"\x7f" * 32
    assert page.read().step is None

"""The worker's side without a process: order of handlers, buffers and sources of a connection."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputune.runtime.backends import Backend, open_backend
from gputune.runtime.devices import NULL_REPORT
from gputune.server.handlers import Handlers
from gputune.server.protocol.messages import (
    REPLIES,
    BufferData,
    BufferReady,
    Done,
    DownloadBuffer,
    Error,
    ExecuteKernel,
    FreeBuffers,
    Launch,
    Limits,
    UploadBuffer,
)
from gputune.server.worker_link import CloseConnection


@pytest.fixture
def backend() -> Backend:
    return open_backend(NULL_REPORT)


def error_name(reply: object) -> str:
    assert isinstance(reply, Error)
    return reply.name


def test_handlers_have_the_names_and_the_order_of_the_messages(backend: Backend) -> None:
    names = [re.sub(r"(?<!^)([A-Z])", r"_\1", kind.__name__).lower() for kind in REPLIES]
    public = [name for name in vars(Handlers) if not name.startswith("_") and name != "handle"]
    assert public == names
    assert list(Handlers(backend, Limits())._by_message) == list(REPLIES)


def test_handles_count_up_and_are_not_used_again(backend: Backend) -> None:
    handlers = Handlers(backend, Limits(), first_handle=100)
    assert handlers.handle(1, UploadBuffer(b"a")) == BufferReady(100)
    assert handlers.handle(1, FreeBuffers((100,))) == Done()
    assert handlers.handle(2, UploadBuffer(b"b")) == BufferReady(101)


def test_a_closed_connection_loses_its_buffers_and_no_others(backend: Backend) -> None:
    handlers = Handlers(backend, Limits())
    handlers.handle(1, UploadBuffer(b"a"))
    handlers.handle(2, UploadBuffer(b"b"))
    assert handlers.handle(1, CloseConnection()) == Done()
    assert error_name(handlers.handle(1, DownloadBuffer(1))) == "unknown_buffer"
    reply = handlers.handle(2, DownloadBuffer(2))
    assert isinstance(reply, BufferData) and bytes(reply.data) == b"b"


def test_the_number_of_buffers_is_limited(backend: Backend) -> None:
    handlers = Handlers(backend, Limits(buffers=2))
    for _ in range(2):
        handlers.handle(1, UploadBuffer(b"a"))
    reply = handlers.handle(1, UploadBuffer(b"a"))
    assert isinstance(reply, Error)
    assert (reply.name, reply.details["limit"]) == ("limit_exceeded", "buffers")
    assert handlers.handle(1, FreeBuffers((1,))) == Done()
    assert handlers.handle(1, UploadBuffer(b"a")) == BufferReady(3)


def test_nothing_is_freed_when_one_handle_is_unknown(backend: Backend) -> None:
    handlers = Handlers(backend, Limits())
    handlers.handle(1, UploadBuffer(b"a"))
    assert error_name(handlers.handle(1, FreeBuffers((1, 9)))) == "unknown_buffer"
    assert isinstance(handlers.handle(1, DownloadBuffer(1)), BufferData)
    assert handlers.handle(1, FreeBuffers((1, 1))) == Done()


def test_the_source_used_longest_ago_is_forgotten(backend: Backend, make_launch: Callable[..., Launch]) -> None:
    handlers = Handlers(backend, Limits(sources=2))

    def run(source: str, send: bool) -> Any:
        launch = make_launch(source)
        launch = launch if send else replace(launch, source="")
        return handlers.handle(1, ExecuteKernel((launch,), {}, {"input": 64, "output": 64}))

    assert not isinstance(run("first", True), Error)
    assert not isinstance(run("second", True), Error)
    assert not isinstance(run("first", False), Error)  # now second is the older one
    assert not isinstance(run("third", True), Error)
    assert not isinstance(run("first", False), Error)
    reply = run("second", False)
    assert error_name(reply) == "unknown_source"
    assert reply.details == {"source_sha256": [make_launch("second").source_sha256]}
    assert error_name(handlers.handle(2, ExecuteKernel((replace(make_launch("first"), source=""),), {}, {}))) == (
        "unknown_source"
    )  # of another connection


def test_a_defect_is_an_error_and_not_the_end(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = Handlers(backend, Limits())
    handlers.handle(1, UploadBuffer(b"a"))
    monkeypatch.setattr(backend, "read", lambda buffer: 1 / 0)
    reply = handlers.handle(1, DownloadBuffer(1))
    assert reply == Error("internal_error", "ZeroDivisionError: division by zero")

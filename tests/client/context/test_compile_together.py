"""Test programs that are requested together: each is reported once, whatever fails."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from gputune.client.target.client import TargetClient, TargetError
from gputune.core.batches import Compiled
from gputune.core.launches import Launch, Variant
from gputune.server.protocol.messages import (
    Cancel,
    CompileKernel,
    Done,
    Error,
    FreeBuffers,
    LoadContext,
    Ping,
    Progress,
)
from tests.client.fake_target import FAST, HANG_UP, SILENCE, Cancelled, FakeTarget, fake_target, plain_answer

SOURCE = "__kernel void copy(__global const float *input, __global float *output) {}"


def program(number: int) -> CompileKernel:
    launch = Launch(SOURCE, "copy", f"-D{number}", (16,), (4,), ("input", "output"))
    return CompileKernel(Variant({}, (), launch, {}), {"input": 64, "output": 64})


def number_of(request: CompileKernel) -> int:
    return int(request.variant.main.options.removeprefix("-D"))


def answer(connection: int, request: Any) -> Any:
    if isinstance(request, CompileKernel):
        return Compiled(request.variant.main.options.encode(), 1, 1)
    return Done() if isinstance(request, Cancel) else plain_answer(connection, request)


@pytest.fixture
def target() -> Iterator[FakeTarget]:
    with fake_target(answer) as made:
        yield made


def compiled(target: FakeTarget, count: int) -> list[int]:
    """What is heard of, in that order."""
    heard: list[int] = []

    def hear(place: int, reply: Compiled) -> None:
        assert bytes(reply.binary) == f"-D{place}".encode()
        heard.append(place)

    with TargetClient.connect("127.0.0.1", target.port) as client:
        client.compile_kernels([program(number) for number in range(count)], hear)
        assert client.requests["compile"] >= count
        client.ping()
    return heard


def test_more_than_may_be_under_way_and_none_at_all(target: FakeTarget) -> None:
    assert compiled(target, 100) == list(range(100))
    assert compiled(target, 0) == []
    sources = [bool(each.variant.main.source) for each in target.requests(1)]
    assert sources == [True] + [False] * 99, "a text travels once"


def test_after_a_lost_connection_only_the_rest_is_asked_for(target: FakeTarget) -> None:
    def lost_once(connection: int, request: Any) -> Any:
        lost = connection == 1 and isinstance(request, CompileKernel) and number_of(request) == 5
        return HANG_UP if lost else answer(connection, request)

    target.answer = lost_once
    assert compiled(target, 9) == list(range(9))
    again = [number_of(each) for each in target.requests(2)]
    assert again == list(range(9))[-len(again) :] and 5 in again


def test_one_that_fails_ends_those_that_wait(target: FakeTarget) -> None:
    def fails(connection: int, request: Any) -> Any:
        if not isinstance(request, CompileKernel):
            return answer(connection, request)
        if number_of(request) == 2:
            return Error("build_failed", "no such thing")
        return answer(connection, request)

    heard: list[int] = []
    target.answer = fails
    with TargetClient.connect("127.0.0.1", target.port) as client:
        with pytest.raises(TargetError) as raised:
            client.compile_kernels([program(number) for number in range(200)], lambda place, _: heard.append(place))
        assert raised.value.name == "build_failed" and heard == [0, 1]
        client.ping()  # nothing of it is under way
    asked = [each for each in target.requests(1) if isinstance(each, CompileKernel)]
    assert len(asked) < 200
    assert any(isinstance(each, Cancel) for each in target.requests(1))


def test_what_is_under_way_is_given_up_when_nobody_wants_it_any_more(target: FakeTarget) -> None:
    """Where no reply comes, too: one program may take minutes. What was compiled until then is kept."""
    over: list[bool] = []

    def takes_long(connection: int, request: Any) -> Any:
        if isinstance(request, Cancel):
            return [Done(), Cancelled(request.request)]
        if isinstance(request, CompileKernel) and number_of(request) > 1:
            over.append(True)
            return SILENCE
        return answer(connection, request)

    heard: list[int] = []
    target.answer, target.limits = takes_long, FAST
    with TargetClient.connect("127.0.0.1", target.port) as client:
        with client.giving_up(lambda: bool(over)), pytest.raises(TargetError) as raised:
            client.compile_kernels([program(number) for number in range(9)], lambda place, _: heard.append(place))
        assert (raised.value.name, heard) == ("cancelled", [0, 1])
        client.compile_kernels([program(0)], lambda place, _: heard.append(place))
        assert heard[2:] == [0], "what comes after it, on the same connection"
    assert {connection for connection, _ in target.heard} == {1}


def test_one_request_is_given_up_and_what_is_given_back_is_not(target: FakeTarget) -> None:
    def takes_long(connection: int, request: Any) -> Any:
        if isinstance(request, Cancel):
            return [Done(), Cancelled(request.request)]
        return SILENCE if isinstance(request, LoadContext) else answer(connection, request)

    target.answer, target.limits = takes_long, FAST
    with TargetClient.connect("127.0.0.1", target.port) as client:
        buffer = client.upload(b"1234")
        with client.giving_up(lambda: True):
            with pytest.raises(TargetError) as raised:
                client.load_context(b"context")
            client.free(buffer)
        assert raised.value.name == "cancelled"
        client.ping()
    asked = target.requests(1)
    assert [type(each) for each in asked[-1:]] == [FreeBuffers]


def test_a_text_that_the_server_has_forgotten_is_sent_again(target: FakeTarget) -> None:
    forgotten: list[int] = []

    def forgets(connection: int, request: Any) -> Any:
        if isinstance(request, CompileKernel) and number_of(request) == 3 and not forgotten:
            forgotten.append(3)
            return Error("unknown_source", "1 source texts are not known here")
        return answer(connection, request)

    target.answer = forgets
    assert compiled(target, 6) == [0, 1, 2, 4, 5, 3]
    texts = [number_of(each) for each in target.requests(1) if each.variant.main.source]
    assert texts == [0, 3]


class Slowly(list[Any]):
    """Parts of an answer with pauses between them that are shorter than a heartbeat."""

    def __iter__(self) -> Iterator[Any]:
        for part in super().__iter__():
            time.sleep(0.4)
            yield part


@pytest.mark.slow
def test_news_of_what_waits_do_not_keep_the_client_from_showing_that_it_lives(target: FakeTarget) -> None:
    target.limits = FAST

    def waits(connection: int, request: Any) -> Any:
        if isinstance(request, CompileKernel):
            return Slowly([*(Progress("queued", 0, 1, "") for _ in range(6)), answer(connection, request)])
        return answer(connection, request)

    target.answer = waits
    assert compiled(target, 1) == [0]
    pings = [message for _, message in target.heard if isinstance(message, Ping)]
    assert len(pings) > 2, "that after everything is one"

"""Test a session that outlives its connection, with servers that are lost at chosen moments."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pytest

from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.client.target.reconnecting import Reconnecting
from gputune.client.target.session import LOSSES
from gputune.client.target.transport.target_connection import dial
from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.errors import ForkedProcess
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    Cancel,
    Done,
    Error,
    ExecuteContext,
    FreeBuffers,
    LoadContext,
    Ping,
    Progress,
    Status,
    UploadBuffer,
)
from tests.client.fake_target import (
    HANG_UP,
    SILENCE,
    FakeTarget,
    dies_at,
    failed,
    gave_up,
    ok,
    plain_answer,
)
from tests.client.target.asking import connect, measuring_request


def test_a_fork_neither_uses_nor_ends_the_connection(target: FakeTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(target) as client:
        here, given = os.getpid(), client.upload(b"1")
        with monkeypatch.context() as fork:
            fork.setattr(os, "getpid", lambda: here + 1)
            with pytest.raises(
                ForkedProcess, match=f"a connection to a target was opened by process {here} and cannot"
            ):
                client.upload(b"2")
            client.free(given)
            client.close()
        reference = client.upload(b"4444")
        assert client.measure_kernel(measuring_request(given, reference)).best == 0


class TestALostConnection:
    def test_is_made_again_and_only_what_the_request_needs_is_uploaded_again(self, target: FakeTarget) -> None:
        target.answer = dies_at((1, ProfileKernel))
        lines: list[str] = []
        with connect(target, lines.append) as client:
            given, other, reference = client.upload(b"1"), client.upload(b"22"), client.upload(b"4444")
            assert client.measure_kernel(measuring_request(given, reference)).best == 0
            client.free(given, other, reference)
        first, again, freed = target.requests(2)[:2], target.requests(2)[2], target.requests(2)[3]
        assert [bytes(upload.data) for upload in first] == [b"1", b"4444"]
        assert (again.buffers, again.reference) == ({"input": 2001}, 2004), "the handles are those of this connection"
        assert again.variants[0].main.source == "the text", "a new connection knows no sources"
        assert freed == FreeBuffers((2001, 2004))
        assert client.requests == {"upload": 5, "profile": 2, "free": 1}
        assert lines[0] == f"target {target.address} closed the connection; connecting again for up to 20 s"
        assert lines[1].startswith(f"target {target.address} is back after ")

    def test_arrays_are_not_copied_for_that(self, target: FakeTarget) -> None:
        array = np.arange(4, dtype=np.float32)
        with connect(target) as client:
            client.upload(array)
            (kept,) = client._data.values()
            assert np.shares_memory(np.frombuffer(kept, np.float32), array)

    def test_loads_contexts_again(self, target: FakeTarget) -> None:
        target.answer = dies_at((1, ExecuteContext))
        with connect(target) as client:
            context = client.load_context(b"context", "a graph", True).context
            assert bytes(client.execute_context(context, {"x": b"abc"}).outputs["x"]) == b"abc"
            upload, load, free, execute = target.requests(2)
            assert (bytes(upload.data), load) == (b"context", LoadContext(2007, "a graph", True))
            assert free == FreeBuffers((2007,)), "the server keeps the bytes with the context"
            assert execute.context == 2001
            client.free_contexts(context)
            with pytest.raises(TargetError, match="unknown_context"):
                client.execute_context(context, {})

    def test_does_not_ask_again_for_variants_that_have_failed(self, target: FakeTarget) -> None:
        def answer(connection: int, request: Any) -> Any:
            if isinstance(request, ProfileKernel) and connection == 1:
                return [gave_up(1, "timeout"), HANG_UP]
            if isinstance(request, ProfileKernel):
                assert [variant.configuration["N"] for variant in request.variants] == [0, 2, 3]
                failure = failed("crash")
                trials = (ok(50.0), failure, ok(30.0))
                return [Progress("recovering", 1, 3, "", 2, failure), Profiled(trials, 3, b"", None, {}, {})]
            return plain_answer(connection, request)

        target.answer = answer
        told: list[tuple[int | None, str]] = []
        with connect(target) as client:
            request = measuring_request(client.upload(b"1"), client.upload(b"2"), 4)
            measured = client.measure_kernel(
                request,
                lambda progress: told.append((progress.variant, progress.trial.status if progress.trial else "")),
            )
        assert [trial.status for trial in measured.trials] == ["ok", "timeout", "crash", "ok"]
        assert measured.best == 3
        assert told == [(1, "timeout"), (2, "crash")], "once each"

    def test_takes_nothing_that_is_said_of_what_was_not_asked_for(self, target: FakeTarget) -> None:
        def answer(connection: int, request: Any) -> Any:
            if isinstance(request, ProfileKernel):
                assert (request.baseline is None) == (connection > 1), "it is the variant that has failed"
                return [gave_up(0, "timeout"), HANG_UP] if connection == 1 else [gave_up(0, "crash"), SILENCE]
            return plain_answer(connection, request)

        target.answer = answer
        with connect(target) as client:
            request = measuring_request(client.upload(b"1"), client.upload(b"2"), 2)
            with pytest.raises(TargetError, match=r"progress on variant 0, which was not asked for \[bad_message\]"):
                client.measure_kernel(replace(request, baseline=request.variants[0]))

    def test_has_nothing_left_to_ask_when_all_have_failed(self, target: FakeTarget) -> None:
        target.answer = lambda connection, request: (
            [gave_up(0, "crash"), HANG_UP] if isinstance(request, ProfileKernel) else plain_answer(connection, request)
        )
        with connect(target) as client:
            measured = client.measure_kernel(measuring_request(client.upload(b"1"), client.upload(b"2")))
        assert ([trial.status for trial in measured.trials], measured.best) == (["crash"], None)

    def test_and_a_server_that_ended_twice_in_one_request_are_an_error_and_the_session_goes_on(
        self, target: FakeTarget
    ) -> None:
        target.restarts = True
        target.answer = dies_at((1, ProfileKernel), (2, ProfileKernel))
        with connect(target) as client:
            request = measuring_request(client.upload(b"1"), client.upload(b"2"))
            with pytest.raises(TargetError, match=r"ended twice .*\[lost_again\]") as caught:
                client.measure_kernel(request)
            assert caught.value.exit_code == 4
            assert client.measure_kernel(request).best == 0

    def test_is_not_the_servers_end_where_the_same_comes_back(self, target: FakeTarget) -> None:
        target.answer = dies_at(*((connection, ProfileKernel) for connection in range(1, LOSSES)))
        with connect(target) as client:
            request = measuring_request(client.upload(b"1"), client.upload(b"2"))
            assert client.measure_kernel(request).best == 0
            target.answer = lambda connection, request: HANG_UP
            with pytest.raises(TargetError, match=rf"lost {LOSSES} times .*\[connection_lost\]"):
                client.measure_kernel(request)

    def test_while_data_is_put_there_is_nobodys_doing(self, target: FakeTarget) -> None:
        target.restarts = True
        target.answer = dies_at((1, ProfileKernel), *((connection, UploadBuffer) for connection in range(2, LOSSES)))
        with connect(target) as client:
            request = measuring_request(client.upload(b"1"), client.upload(b"2"))
            assert client.measure_kernel(request).best == 0

    def test_of_a_server_that_is_being_stopped_does_not_count(self, target: FakeTarget) -> None:
        def answer(connection: int, request: Any) -> Any:
            if isinstance(request, ProfileKernel) and connection < 4:
                return Error("stopping", "the server is being stopped")
            return plain_answer(connection, request)

        target.answer = answer
        with connect(target) as client:
            assert client.measure_kernel(measuring_request(client.upload(b"1"), client.upload(b"2"))).best == 0

    def test_is_waited_for(self, target: FakeTarget) -> None:
        def answer(connection: int, request: Any) -> Any:
            if connection == 1:
                threading.Timer(0.3, target.reopen).start()
                return leaves(target)
            return plain_answer(connection, request)

        target.answer = answer
        lines: list[str] = []
        with connect(target, lines.append) as client:
            client.ping()
        assert len(lines) == 2, "one line when it begins and one when it is over"

    def test_is_not_waited_for_forever(self, target: FakeTarget) -> None:
        with connect(target, seconds=0.2) as client:
            target.answer = lambda connection, request: leaves(target)
            with pytest.raises(TargetError, match=r"not back after 0\.2 s: no target server reached") as caught:
                client.ping()
            assert caught.value.name == "connection_lost"

    def test_revives_a_server_of_our_own(self, target: FakeTarget) -> None:
        revived = []

        def revive() -> None:
            revived.append(1)
            if len(revived) == 1:
                raise TargetError("server_not_started", "not yet")
            target.reopen()

        with TargetClient(Reconnecting(lambda: dial("127.0.0.1", target.port), revive, seconds=20)) as client:
            target.answer = lambda connection, request: (
                leaves(target) if connection == 1 else plain_answer(connection, request)
            )
            client.ping()
        assert len(revived) == 2

    def test_is_not_given_up_for_whoever_took_the_port_of_our_own_server(self, target: FakeTarget) -> None:
        """Only one that was started again and still asks for another token is ours."""
        others = TargetError("authentication_failed", "somebody else's")
        before = dial("127.0.0.1", target.port)

        def again(revive: Any, times: int) -> None:
            answers = iter([others] * times)
            found = Reconnecting(
                lambda: refuse(others) if next(answers, None) else dial("127.0.0.1", target.port), revive, seconds=0.2
            )
            found.again("lost", before).close()

        def no_cable() -> None:
            raise TargetError("adb_no_device", "no such cable")

        again(lambda: None, 1)
        for revive in (None, lambda: None):
            with pytest.raises(TargetError, match="authentication_failed"):
                again(revive, 2)
        with pytest.raises(TargetError, match="somebody else's; it could not be started again: no such") as caught:
            again(no_cable, 1000)
        assert caught.value.name == "connection_lost"
        before.close()

    def test_needs_nothing_to_be_freed(self, target: FakeTarget) -> None:
        target.answer = dies_at((1, FreeBuffers))
        with connect(target) as client:
            buffers = [client.upload(b"1"), client.upload(b"2")]
            client.free(buffers[0])
            client.free(buffers[1])
            assert {number for number, _ in target.heard} == {1}, "nobody connects to free what is gone"
            client.ping()
        assert not target.requests(2)


class TestWhatComesBack:
    """Another device or driver makes all that was measured worthless."""

    @pytest.fixture
    def lost(self, target: FakeTarget) -> Iterator[TargetClient]:
        target.answer = dies_at((1, Ping))
        with connect(target) as client:
            yield client

    @pytest.mark.parametrize(("name", "value"), [("driver_version", "2"), ("name", "other"), ("compute_units", 7)])
    def test_must_be_the_same_device(self, target: FakeTarget, lost: TargetClient, name: str, value: object) -> None:
        target.device[name] = value
        with pytest.raises(TargetError, match=f"came back with {name} {value!r}, not .*device_changed"):
            lost.ping()

    def test_must_have_the_same_settings(self, target: FakeTarget, lost: TargetClient) -> None:
        target.server["settings"] = {"POCL_AFFINITY": "0"}
        with pytest.raises(TargetError, match=r"settings .*device_changed"):
            lost.ping()

    def test_may_have_other_memory(self, target: FakeTarget, lost: TargetClient) -> None:
        target.device.update(global_memory_bytes=1 << 20, max_allocation_bytes=1 << 18)
        target.limits = Limits(buffer_bytes=1 << 18)
        lost.ping()
        assert lost.limits.buffer_bytes == 1 << 18
        with pytest.raises(TargetError, match="limit_exceeded"):
            lost.upload(bytes(1 << 19))

    def test_must_speak_the_same_protocol(self, target: FakeTarget, lost: TargetClient) -> None:
        target.protocol = 99
        with pytest.raises(TargetError, match="version_mismatch"):
            lost.ping()


def leaves(target: FakeTarget) -> object:
    """The answer of a server that is gone for good."""
    target.close()
    return HANG_UP


def refuse(error: BaseException) -> NoReturn:
    raise error


class TestOneRequest:
    def test_one_that_is_interrupted_on_its_way_is_not_cancelled(
        self, target: FakeTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever followed half a frame would be taken for the rest of it."""
        with connect(target) as client:
            connection: Any = client._session.link.connection
            stream = connection._stream
            send, calls = stream.send, []

            def interrupted(buffers: Any, descriptor: int | None = None) -> int:
                calls.append(1)
                return int(send([buffers[0][:10]])) if len(calls) == 1 else refuse(KeyboardInterrupt())

            monkeypatch.setattr(stream, "send", interrupted)
            with pytest.raises(KeyboardInterrupt):
                client.upload(bytes(1000))
            target.wait_for(lambda: target.ended == 1)
        assert len(calls) == 2

    def test_an_interrupted_one_is_cancelled_and_the_connection_closed(self, target: FakeTarget) -> None:
        def answer(connection: int, request: Any) -> Any:
            match request:
                case ProfileKernel():
                    return [Progress("building", 0, 1, ""), SILENCE]
                case Cancel():
                    return Done()
            return plain_answer(connection, request)

        def interrupt(progress: Progress) -> None:
            raise KeyboardInterrupt

        target.answer = answer
        with connect(target) as client:
            request = measuring_request(client.upload(b"1"), client.upload(b"2"))
            with pytest.raises(KeyboardInterrupt):
                client.measure_kernel(request, interrupt)
            target.wait_for(lambda: target.ended == 1)
        assert target.requests(1)[-1] == Cancel(3), "the profile was the third request"

    def test_sources_travel_once_and_again_when_they_were_forgotten(self, target: FakeTarget) -> None:
        forgotten: list[int] = []

        def answer(connection: int, request: Any) -> Any:
            if isinstance(request, ProfileKernel) and not request.variants[0].main.source and not forgotten:
                forgotten.append(1)
                return Error("unknown_source", "never heard of it")
            return plain_answer(connection, request)

        target.answer = answer
        with connect(target) as client:
            request = measuring_request(client.upload(b"1"), client.upload(b"2"), 2)
            for _ in range(3):
                client.measure_kernel(request)
        sources = [[variant.main.source for variant in request.variants] for request in target.requests(1)[2:]]
        assert sources == [["the text", ""], ["", ""], ["the text", ""], ["", ""]]

    @pytest.mark.parametrize(
        ("measured", "words"),
        [
            (Profiled((ok(),), 0, b"", None, {}, {}), "1 trials for 2 variants"),
            (Profiled((ok(),) * 3, 0, b"", None, {}, {}), "3 trials for 2 variants"),
            (Profiled((ok(),) * 2, 2, b"", None, {}, {}), "the best variant is 2"),
            (Profiled((ok(), failed("crash")), 1, b"", None, {}, {}), "the best variant is 1"),
            ([gave_up(0, "crash"), Profiled((ok(),) * 2, 0, b"", None, {}, {})], "the best variant is 0"),
            ([gave_up(3, "crash"), SILENCE], "progress on variant 3, which was not asked for"),
        ],
    )
    def test_what_cannot_be_true_is_refused(self, target: FakeTarget, measured: Any, words: str) -> None:
        target.answer = lambda connection, request: (
            measured if isinstance(request, ProfileKernel) else plain_answer(connection, request)
        )
        with connect(target) as client:
            request = measuring_request(client.upload(b"1"), client.upload(b"2"), 2)
            with pytest.raises(TargetError, match=words) as caught:
                client.measure_kernel(request)
        assert caught.value.name == "bad_message"

    def test_a_device_without_an_identity_is_refused(self, target: FakeTarget) -> None:
        target.device["compute_units"] = "many"
        with pytest.raises(TargetError, match=r"compute_units: expected a 64-bit integer, got 'many'.*\[bad_message\]"):
            connect(target)

    def test_an_error_of_the_server_is_ours_and_costs_the_request_only(self, target: FakeTarget) -> None:
        def answer(connection: int, request: Any) -> Any:
            if isinstance(request, Status):
                return Error("device_unavailable", "the driver is gone", {"tries": 3})
            return plain_answer(connection, request)

        target.answer = answer
        with connect(target) as client:
            with pytest.raises(TargetError, match="the driver is gone") as caught:
                client.status()
            assert (caught.value.name, caught.value.details) == ("device_unavailable", {"tries": 3})
            client.ping()
        assert {number for number, _ in target.heard} == {1}

    def test_a_pong_may_come_in_pieces_and_with_other_messages(
        self, target: FakeTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with connect(target) as client:
            connection: Any = client._session.link.connection
            receive = connection._stream.receive
            monkeypatch.setattr(connection._stream, "receive", lambda space: receive(space[:5]))
            client.ping()
            assert client.upload(b"data") == 1
            monkeypatch.undo()
            connection._last_id += 1
            connection._transmit(*connection._begin(Ping(), connection._last_id))  # its answer comes with the next one
            client.ping()
            client.ping()
            assert client.upload(b"data") == 2
            assert client._session.link.connection is connection
            target.answer = lambda connection, request: Error("internal_error", "not well")
            with pytest.raises(TargetError, match="not well"):
                client.ping()

    def test_many_pings_keep_to_the_servers_limit(self, target: FakeTarget) -> None:
        target.limits = Limits(requests=4)
        with connect(target) as client:
            client.pings(1000)
            assert client.requests["ping"] == 1000
        assert sum(isinstance(message, Ping) for _, message in target.heard) == 1000

"""Test a server under hostile inputs, under several clients at once, and after many sessions.

These are short forms of scripts/fuzz and scripts/stress/server/soak.
"""

import struct
from itertools import islice
from typing import Any

import pytest

from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import DownloadBuffer, Error, Pong, UploadBuffer, Welcome
from stress.fuzz import connections as fuzz_connections
from stress.server import soak_crowd, soak_sessions
from stress.server.attack import HANDLE, STAGES, Input, Outcome, Stage, ends_whole, packed
from stress.server.crew import Crew, Promises
from stress.server.hostile_inputs import REQUESTS, inputs
from stress.server.observed import ObservedServer, Usage
from stress.server.wire import Wire, frame, signed
from stress.server.workload import DATA
from tests.waiting import PATIENCE_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("count", [600, pytest.param(3_000, marks=pytest.mark.night)])  # many wrong proofs are slow
def test_hostile_inputs_leave_the_server_well(count: int) -> None:
    promises = Promises()
    # always the same; scripts/fuzz connections sends others, and more
    figures = fuzz_connections.fuzz(count, 2, 0.5, 28, promises, answer_seconds=PATIENCE_SECONDS)
    assert promises.broken == []
    assert figures["inputs"] == count
    assert figures["ready"] >= 0.3 * count
    answers = figures["answers"]
    # inputs reached what they were made for: every check of the protocol (what the worker answers depends on how many
    # requests of other inputs wait there)
    expected = {"bad_frame", "bad_message", "limit_exceeded", "unexpected_message", "authentication_failed"}
    assert expected | {"token_required", "unknown_buffer", "Hello", "BufferReady"} <= answers.keys()
    assert "Welcome" not in answers


def test_whole_requests_reach_the_worker() -> None:
    with ObservedServer("null") as server, Wire(server.host, server.port, PATIENCE_SECONDS, first_id=2**60) as wire:
        wire.authenticate(server.token)
        assert wire.mac is not None
        buffer = wire.upload(DATA)
        for number, one in enumerate(REQUESTS, 1):
            wire.send(signed(frame(one, number).replace(packed(HANDLE), packed(buffer)), wire.mac))
        answers = {type(wire.reply(number)).__name__ for number in range(1, len(REQUESTS) + 1)}
    assert {"Compiled", "Profiled", "Executed", "BufferReady", "BufferData", "Done", "Pong"} <= answers


@pytest.mark.night
def test_clients_that_work_at_once_get_about_as_much_each() -> None:
    figures = soak_crowd.soak(50, 8.0, Promises())
    assert figures["failures"] == []
    assert len(figures["trials"]) == 50
    assert figures["trials"][0] >= figures["trials"][-1] / 2 > 0


@pytest.mark.night
def test_sessions_leave_nothing_behind() -> None:
    promises = Promises()
    figures = soak_sessions.soak(80, promises)
    assert promises.broken == []
    assert figures["sessions"] == 80
    assert len(figures["kinds"]) == 6  # one good way to end, and five bad ones


# --- the tools themselves -------------------------------------------------------------------------


def test_the_same_seed_makes_the_same_inputs() -> None:
    one, same, other = (list(islice(inputs(seed, 0.5, b"hello", b"proof"), 200)) for seed in (5, 5, 6))
    assert one == same != other
    assert {item.stage for item in one} == set(STAGES)
    assert sum(item.stage == "ready" for item in one) > 60


@pytest.mark.parametrize("stage", STAGES)
def test_a_failed_input_can_be_replayed(stage: Stage) -> None:
    made = Input("random_bytes", b"\x00\xffgpt1", stage)
    parsed = Input.parse(str(made))
    assert (parsed.data, parsed.stage) == (made.data, made.stage)


@pytest.mark.parametrize("text", ["", "00ff", "later:00", "ready:0g"])
def test_nonsense_cannot_be_replayed(text: str) -> None:
    with pytest.raises(ValueError, match=r"HEX|hexadecimal"):
        Input.parse(text)


def test_a_server_waits_for_more_unless_the_last_frame_is_whole() -> None:
    whole = frame(UploadBuffer(bytes(10_000)), 1) + frame(DownloadBuffer(HANDLE), 2)
    assert ends_whole(whole)
    assert not any(ends_whole(whole[:-cut]) for cut in (1, 10, 50))
    assert not ends_whole(whole + b"g")
    assert not ends_whole(b"nonsense")
    assert not ends_whole(struct.pack("<4sIIQ", b"gpt1", 1, 1, 2**64 - 1) + b"\x80")


@pytest.mark.parametrize(
    ("message", "stage", "broken"),
    [
        (Pong(), "start", True),
        (Welcome(Limits(), {}, {}), "greeted", True),
        (Welcome(Limits(), {}, {}), "ready", False),
        (Error("token_required", ""), "start", False),
        (Error("internal_error", "division by zero"), "ready", True),
        (Error("surprise", ""), "ready", True),
    ],
)
def test_answers_that_break_a_promise_are_noticed(message: Any, stage: Stage, broken: bool) -> None:
    outcome = Outcome()
    outcome.add(message, stage == "ready")
    assert bool(outcome.broken) is broken


@pytest.mark.parametrize(("resident", "descriptors", "broken"), [(110, 5, 0), (111, 5, 1), (50, 8, 1)])
def test_a_leak_is_a_broken_promise(resident: int, descriptors: int, broken: int) -> None:
    promises = Promises()
    promises.no_leak("daemon", Usage(100, 200, 5), Usage(resident, 200, descriptors), 10, 2)
    assert len(promises.broken) == broken
    assert promises.report({}, None) == broken


def test_a_crew_goes_on_after_a_failure_and_reports_it() -> None:
    crew, rounds = Crew(), iter(range(3))

    def once() -> bool:
        if (number := next(rounds, None)) == 1:
            raise ValueError("the second time")
        return number is not None

    crew.add("one", once)
    crew.join()
    assert crew.failures == ["one: ValueError: the second time"]
    assert crew.rounds["one"] == 2

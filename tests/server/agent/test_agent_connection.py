"""Test what a target server believes of an agent, and how long it waits for one."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core.errors import BuildFailed, DeviceError, DeviceNotFound, LaunchFailed, LimitExceeded
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.server.agent import agent_connection
from gputune.server.agent import state as agent_state
from gputune.server.agent import votes as agent_votes
from gputune.server.agent.agent_connection import AgentConnection, AgentLost
from gputune.server.agent.message_parts import Batch, Expected, Found, Guarded, Seen, Span
from gputune.server.agent.messages import (
    REPLIES,
    Allocate,
    Begin,
    BeginProfile,
    Bind,
    Build,
    Built,
    Check,
    Checked,
    Contents,
    Copy,
    Done,
    EndProfile,
    Failed,
    Fill,
    FirstLaunch,
    Free,
    Greeting,
    Harvest,
    Keep,
    ListDevices,
    LoadContext,
    Open,
    Opened,
    OpenState,
    Ran,
    Read,
    ReadFiles,
    ReadState,
    ResetState,
    RunContext,
    SetVotes,
    Started,
    Timed,
    TimePass,
    Vote,
    Write,
)
from gputune.server.agent.state import ConnectedState
from gputune.server.agent.votes import AgentPower
from tests.server.agent.lying import TOKEN, LyingAgent

Start = Callable[[Mapping[type, Any]], LyingAgent]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.chdir(tmp_path)  # paths of sockets are short
    monkeypatch.setenv("GPUTUNE_AGENT_TOKEN", TOKEN)
    agents: list[LyingAgent] = []

    def start(lies: Mapping[type, Any]) -> LyingAgent:
        agents.append(LyingAgent(Path(f"./{len(agents)}"), lies))
        return agents[-1]

    yield start
    for agent in agents:
        agent.close()


BOUNDS = np.zeros(4).tobytes()
READ, FILES = Read((Span(1, 0, 8), Span(1, 8, 4))), ReadFiles(("/sys/a", "/sys/b"), 1)
PASS = TimePass((Batch((1, 2), 2, True), Batch((1,), 1, True)), 10)
CHECK = Check((Guarded(1, 0, 64, 16, 32, True),), (Expected(2, "float32", BOUNDS),))
RUN = RunContext(1, (b"",), False, True)
OPEN = Open(0, True, ())
REMEMBERED = ReadState(1, "past", 4)
REQUESTS = (
    ListDevices(),
    OPEN,
    Allocate(1, 8),
    Free((1,)),
    Write((Span(1, 0, 1),), (b"x",)),
    Fill((Span(1, 0, 1),), (1,)),
    Copy((Span(1, 0, 1),), (Span(2, 0, 1),)),
    READ,
    FILES,
    Keep(1, b""),
    CHECK,
    Build(1, "", "", b""),
    Harvest(1),
    Bind(1, 2, "k", (1,), (1,), ()),
    FirstLaunch(1, True),
    PASS,
    LoadContext(1, b"", "", True, ()),
    RUN,
    OpenState(1, 2),
    ResetState(1),
    REMEMBERED,
    BeginProfile(1, "basic"),
    EndProfile(),
    SetVotes(0, ()),
    Vote(True),
)


def seen(before: int = 0, after: int = 0) -> Seen:
    return Seen(0, before, 0, after, 0)


def ask(agent: LyingAgent, request: Any) -> Any:
    with closing(AgentConnection(agent.address)) as connection:
        return connection.ask(request, outputs=[16] if request is RUN else ())


def test_good_replies_are_believed(start: Start) -> None:
    assert {type(request) for request in REQUESTS} | {Begin} == REPLIES.keys()
    agent = start({})
    with closing(AgentConnection(agent.address)) as connection:
        for request in REQUESTS:
            assert isinstance(connection.ask(request, outputs=[16] if request is RUN else ()), REPLIES[type(request)])


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("lie", ["another kind", "another number", "started", "twice"])
def test_replies_are_of_the_kind_and_number_of_their_request(start: Start, request_: Any, lie: str) -> None:
    kind = type(request_)
    good = start({})
    reply = ask(good, request_)
    lies: Mapping[str, Any] = {
        "another kind": Built(1) if kind is not Build else Done(),
        "another number": (77, reply),
        "started": [Started(), Started(), reply],
        "twice": [reply, reply],
    }
    with closing(AgentConnection(start({kind: lies[lie]}).address)) as connection:
        with pytest.raises(AgentLost, match="answers"):
            for _ in range(2):
                connection.ask(request_, outputs=[16] if request_ is RUN else ())
        assert connection.closed


LIES: Mapping[str, tuple[Any, Any, str]] = {
    "nothing read": (READ, Contents(()), "0 contents, not 2"),
    "too little read": (READ, Contents((bytes(8),)), "1 contents, not 2"),
    "too much read": (READ, Contents((bytes(8), bytes(4), b"")), "3 contents, not 2"),
    "a byte for all": (READ, Contents((b"x", bytes(4))), "1 bytes in place 0, not 8"),
    "a byte more": (READ, Contents((bytes(8), bytes(5))), "5 bytes in place 1, not 4"),
    "fewer files": (FILES, Contents((b"x",)), "1 files, not 2"),
    "more files": (FILES, Contents((b"x",) * 3), "3 files, not 2"),
    "a large file": (FILES, Contents((bytes((1 << 16) + 1), b"")), "too large"),
    "no zones": (CHECK, Checked((), ()), "0, 0"),
    "no comparison": (CHECK, Checked((seen(),), ()), "1, 0"),
    "a guard before": (CHECK, Checked((seen(17),), (Found(0, 0, 0, b"", b""),)), "than a guard has"),
    "a guard after": (CHECK, Checked((seen(0, 17),), (Found(0, 0, 0, b"", b""),)), "than a guard has"),
    "no wrong element": (CHECK, Checked((seen(),), (Found(1, 0, 0, b"", b""),)), "0 bytes of a wrong element"),
    "half of one": (CHECK, Checked((seen(),), (Found(1, 0, 0, b"xx", bytes(8)),)), "2 bytes of a wrong element"),
    "half of an error": (CHECK, Checked((seen(),), (Found(1, 0, 0, bytes(4), bytes(4)),)), "4 of an error"),
    "no memory": (REMEMBERED, Contents(()), "0 contents, not 1"),
    "less memory": (REMEMBERED, Contents((bytes(3),)), "3 bytes in place 0, not 4"),
    "two binaries": (Harvest(1), Contents((b"", b"")), "2 contents, not 1"),
    "no log": (EndProfile(), Contents(()), "0 contents, not 1"),
    "no times": (FirstLaunch(1, True), Timed(b"", b""), "0 bytes in place 0, not 8"),
    "part of the times": (FirstLaunch(1, True), Timed(bytes(8), bytes(24)), "24 bytes in place 1, not 32"),
    "bytes of times": (PASS, Timed(b"123", b"1234567"), "3 bytes of times for 2 batches"),
    "no batch": (PASS, Timed(b"", b""), "0 bytes of times"),
    "more batches": (PASS, Timed(bytes(24), bytes(160)), "24 bytes of times"),
    "half a row": (PASS, Timed(bytes(8), bytes(8)), "8 bytes in place 0, not 128"),
    "others' rows": (PASS, Timed(bytes(16), bytes(128)), "128 bytes in place 0, not 160"),
    "before it began": (PASS, Timed(b"\xff" * 16, bytes(160)), "below zero"),
    "no output": (RUN, Ran((), 1, "launches"), "0 contents, not 1"),
    "part of an output": (RUN, Ran((bytes(15),), 1, "launches"), "15 bytes in place 0, not 16"),
    "a secret": (OPEN, Opened(1, ("HOME=/root",)), "'HOME', which no agent tells"),
    "no variable": (OPEN, Opened(1, ("POCL_AFFINITY",)), "which no agent tells"),
    "a nameless one": (OPEN, Opened(1, ("=",)), "'', which no agent tells"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_reply_has_what_was_asked_for(start: Start, name: str) -> None:
    request, lie, why = LIES[name]
    with pytest.raises(AgentLost, match=why):
        ask(start({type(request): lie}), request)


@pytest.mark.parametrize("ended", ["\x1b[2J", "two\nlines", "x" * 201])
def test_an_ending_is_a_short_line(start: Start, ended: str) -> None:
    with pytest.raises(DeviceNotFound, match="no short line"):
        AgentConnection(start({Begin: Greeting(ended)}).address)


def test_an_agent_without_a_place_says_so(start: Start) -> None:
    with pytest.raises(DeviceNotFound, match="it serves 8 connections already"):
        AgentConnection(start({Begin: Failed("device_limits", "it serves 8 connections already")}).address)


def test_a_session_is_asked_for_by_its_name(start: Start) -> None:
    agent = start({})
    connection = AgentConnection(agent.address)
    connection.abort()
    assert connection.ending() == ""
    first, second = agent.asked
    assert (first.session, first.earlier) == (connection.session, "") and second.earlier == connection.session
    assert second.session != first.session and len(first.session) == 32


def test_of_several_failures_the_first_is_told(start: Start) -> None:
    """Those after it are mostly due to it."""
    whys = {1: Failed("device_limits", "the cause"), 2: Failed("runtime", "no buffer"), 3: Done()}
    agent = start({Allocate: lambda asked: whys[asked.handle], Build: Failed("compile", "its own")})
    with closing(AgentConnection(agent.address)) as connection:
        for handle in (3, 1, 2):
            connection.post(Allocate(handle, 8))
        with pytest.raises(LimitExceeded, match="the cause"):
            connection.ask(Free(()))
        connection.ask(Free(()))  # it was told
        connection.post(Allocate(2, 8))
        with pytest.raises(LaunchFailed, match="no buffer"):
            connection.ask(Build(1, "", "", b""))
        with pytest.raises(BuildFailed, match="its own"):
            connection.ask(Build(1, "", "", b""))


# --- how long it waits --------------------------------------------------------------------------------------------


def serve(path: str, talk: Callable[[socket.socket], None]) -> socket.socket:
    """Return a socket that listens at a path, where each connection is talked to."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()

    def accept() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listening


def drip(client: socket.socket) -> None:
    try:
        for byte in b"gpt1" + b"\x00\x0e\0\0" + bytes(4) + b"x" * 3000:
            client.sendall(bytes([byte]))
            time.sleep(0.02)
    except OSError:
        client.close()


def keep_silent(client: socket.socket) -> None:
    while client.recv(1 << 16):
        pass


@pytest.mark.usefixtures("start")
@pytest.mark.parametrize("talk", [drip, keep_silent])
def test_a_greeting_has_one_deadline(monkeypatch: pytest.MonkeyPatch, talk: Callable[[socket.socket], None]) -> None:
    monkeypatch.setattr(agent_connection, "GREETING_SECONDS", 0.2)
    listening = serve("./silent", talk)
    begun = time.monotonic()
    with pytest.raises(DeviceNotFound, match=r"not answer in time|timed out"):
        AgentConnection("./silent")
    assert 0.2 <= time.monotonic() - begun < 10
    listening.close()


def soon(request: Any) -> Any:
    time.sleep(0.1)
    return Done()


def late(request: Any) -> Any:
    time.sleep(3)
    return Done()


def test_who_can_do_without_an_answer_waits_for_some_time_only(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_state, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(agent_votes, "ANSWER_SECONDS", 0.2)
    agent = start({ReadFiles: late, SetVotes: late})
    begun = time.monotonic()
    with closing(ConnectedState(agent.address)) as far:
        assert far.read() == {}
    with pytest.raises(ValueError, match=r"not answer in time|timed out"):
        AgentPower(PerfProfile.from_preset("burst"), agent.address, 0)
    assert time.monotonic() - begun < 2.5


def test_a_limit_is_for_each_answer(start: Start) -> None:
    agent = start({Vote: soon, Free: late})
    with closing(AgentConnection(agent.address, answer_seconds=0.5)) as connection:
        for _ in range(7):
            connection.ask(Vote(True))
        with pytest.raises(DeviceError):
            connection.ask(Free(()))

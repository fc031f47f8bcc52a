"""Test what the process of an agent that listens promises, and keeps about each connection."""

import fcntl
import itertools
import os
import resource
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gputune.core.errors import DeviceError, DeviceNotFound
from gputune.server.agent.agent_connection import KEEP_ALIVE, AgentConnection
from gputune.server.agent.messages import ListDevices
from gputune.server.clients import admission
from gputune.server.protocol.connection import HANDSHAKE_LIMITS
from gputune.server.protocol.limits import Limits
from tests.native.agent.running import (
    CRASH,
    NO_LIBRARY,
    TOKEN,
    Running,
    crash,
    frame,
    hello,
    is_ended,
    running,
    stranger,
)
from tests.native.compiling import agent as agent_program
from tests.waiting import becomes

pytestmark = pytest.mark.usefixtures("c_compiler")
MOST_CONNECTIONS, MOST_UNPROVEN = 8, 64
PROOF_SECONDS = 10


@pytest.fixture(scope="module")
def agent(c_compiler: str) -> Iterator[Running]:
    with running("--listen", "0") as started:
        yield started


@pytest.fixture(autouse=True)
def _nothing_is_left(agent: Running) -> Iterator[None]:
    yield
    assert becomes(lambda: not agent.children())


def crashed(agent: Running) -> AgentConnection:
    """Return a connection whose process a kernel has ended."""
    made, process = agent.connection()
    crash(process)
    with pytest.raises(DeviceError):
        made.ask(ListDevices())
    return made


# --- how a process ended belongs to the session that it served ----------------------------------------------------

Act = Callable[[Running], object]


def ends(agent: Running, before: set[int]) -> None:
    """Wait until there are no other processes than before."""
    assert becomes(lambda: agent.children() <= before)


def stranger_leaves(agent: Running) -> None:
    before = agent.children()
    with stranger(agent):
        assert becomes(lambda: agent.children() > before)
    ends(agent, before)


def stranger_says_hello(agent: Running) -> None:
    before = agent.children()
    with stranger(agent, frame(hello())) as one:
        assert one.recv(1)
    ends(agent, before)


def stranger_guesses(agent: Running) -> None:
    with pytest.raises(DeviceNotFound):
        AgentConnection(agent.address, TOKEN + "?")


def another_ends(agent: Running) -> None:
    before = agent.children()
    AgentConnection(agent.address, TOKEN).close()
    ends(agent, before)


def another_crashes(agent: Running) -> None:
    assert crashed(agent).ending() == CRASH


def another_asks(agent: Running) -> None:
    with closing(AgentConnection(agent.address, TOKEN)) as other:
        assert other.ended == ""


def another_names_no_session(agent: Running) -> None:
    with closing(AgentConnection(agent.address, TOKEN, "0" * 32)) as other:
        assert other.ended == ""


OTHERS: tuple[Act, ...] = (
    stranger_leaves,
    stranger_says_hello,
    stranger_guesses,
    another_ends,
    another_crashes,
    another_asks,
    another_names_no_session,
)


@pytest.mark.parametrize("act", OTHERS, ids=lambda act: act.__name__)
def test_no_other_changes_how_a_session_ended(agent: Running, act: Act) -> None:
    lost, kept = crashed(agent), AgentConnection(agent.address, TOKEN)
    lost_later, process = agent.connection()
    act(agent)
    crash(process)
    with pytest.raises(DeviceError):
        lost_later.ask(ListDevices())
    act(agent)
    kept.close()
    assert becomes(lambda: not agent.children())
    assert lost.ending() == lost_later.ending() == CRASH
    assert lost.ending() == CRASH  # as often as it is asked
    assert kept.ending() == ""


def test_an_ending_is_the_sessions_own(agent: Running) -> None:
    by_signal, process = agent.connection()
    os.kill(process, 9)
    with pytest.raises(DeviceError):
        by_signal.ask(ListDevices())
    by_crash = crashed(agent)
    assert by_signal.ending() == "it was ended by signal 9" and by_crash.ending() == CRASH


def test_a_session_that_its_client_has_left_has_not_crashed(agent: Running) -> None:
    made, process = agent.connection()
    os.kill(process, 19)  # it hangs, as a kernel that never ends
    made.close()
    assert becomes(lambda: process not in agent.children())
    assert made.ending() == ""


# --- what a server promises ---------------------------------------------------------------------------------------


def keeps_silent_and_unproven_apart(agent: Running) -> None:
    """Whoever knows the token gets in, while strangers have more connections than there are places."""
    with ExitStack() as stack:
        kept = [stack.enter_context(closing(AgentConnection(agent.address, TOKEN)))]
        pieces = (), (b"gpt1",), (frame(hello()),)
        strangers = [stack.enter_context(stranger(agent, *pieces[n % 3])) for n in range(MOST_UNPROVEN + 6)]
        assert all(is_ended(one) for one in strangers[:6])  # the oldest
        assert not is_ended(strangers[-1], 0.05) and not is_ended(strangers[6], 0.05)
        for _ in range(3):
            AgentConnection(agent.address, TOKEN).close()
        assert kept[0].ended == "" and not kept[0].closed
        with pytest.raises(DeviceError, match="/no/library"):
            kept[0].ask(ListDevices())


def shares_places_between_addresses(agent: Running) -> None:
    """An address has to share its places with itself only, as long as others have fewer."""
    with ExitStack() as stack:
        first = stack.enter_context(stranger(agent, host="127.0.0.3"))
        crowd = [stack.enter_context(stranger(agent, host="127.0.0.2")) for _ in range(MOST_UNPROVEN + 3)]
        assert all(is_ended(one) for one in crowd[:4]) and not is_ended(first, 0.05)


def serves_so_many_clients(agent: Running) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            stack.enter_context(closing(AgentConnection(agent.address, TOKEN)))
        with pytest.raises(DeviceNotFound, match=f"serves {MOST_CONNECTIONS} connections already; try again later"):
            AgentConnection(agent.address, TOKEN)
    assert becomes(lambda: not agent.children())
    AgentConnection(agent.address, TOKEN).close()


def bounds_memory_before_the_proof(agent: Running) -> None:
    """A frame that announces more than the handshake needs ends the connection at once, and takes no memory."""
    largest = HANDSHAKE_LIMITS.header_bytes
    with stranger(agent, frame(hello())) as one:
        one.recv(1 << 16)
        (process,) = agent.children()
        before = resident_bytes(process)
        one.sendall(b"gptm" + (largest - 12).to_bytes(4, "little") + bytes(4) + bytes(100))
        assert not is_ended(one, 0.1) and resident_bytes(process) - before < 1 << 20
    for front in ((largest - 11, 0), (largest + 1, 0), (1 << 20, 0), (100, 1)):
        head = b"".join(number.to_bytes(4, "little") for number in front)
        with stranger(agent, b"gpt1" + head) as one:
            assert is_ended(one)
        with stranger(agent, frame(hello()), b"gptm" + head) as one:
            assert is_ended(one)


def resident_bytes(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def pauses_without_descriptors(agent: Running) -> None:
    """It does not try again at once, and serves when there are descriptors."""
    pid = agent.process.pid
    used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, before[1]))
    try:
        with stranger(agent, frame(hello())) as one:
            begun = ticks(pid)
            assert not select.select([one], [], [], 0.4)[0]
            assert ticks(pid) - begun <= 3
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            assert one.recv(1 << 16)
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def ticks(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]))


def serves_beside_a_flood(agent: Running) -> None:
    """Sessions go on while strangers come and go."""
    with closing(AgentConnection(agent.address, TOKEN)) as kept:
        for number in range(200):
            stranger(agent, *(() if number % 2 else (bytes(100),))).close()
            if number % 50 == 0:
                with pytest.raises(DeviceError, match="/no/library"):
                    kept.ask(ListDevices())


PROMISES: Mapping[str, Callable[[Running], None]] = {
    "SILENT_AT_MOST": keeps_silent_and_unproven_apart,
    "UNPROVEN_AT_MOST": keeps_silent_and_unproven_apart,
    "Slots": shares_places_between_addresses,
    "ACCEPTED_AT_ONCE": serves_beside_a_flood,
    "MET_AT_ONCE": serves_beside_a_flood,
    "PAUSE_SECONDS": pauses_without_descriptors,
    "HANDSHAKE_LIMITS": bounds_memory_before_the_proof,
    "connections": serves_so_many_clients,
}
"""By what bounds the target server (server/clients/admission.py, slots.py, Limits), how the agent keeps the same."""


@pytest.mark.parametrize("keeps", dict.fromkeys(PROMISES.values()), ids=lambda keeps: keeps.__name__)
def test_an_agent_promises_what_the_server_does(agent: Running, keeps: Callable[[Running], None]) -> None:
    keeps(agent)


def test_no_promise_of_the_server_is_left_out() -> None:
    assert {name for name in vars(admission) if name.isupper()} <= PROMISES.keys()
    assert Limits().authenticate_seconds == PROOF_SECONDS  # the test of deadlines


@pytest.mark.night
def test_a_stranger_has_so_many_seconds_in_all(agent: Running) -> None:
    """However it spends them: silent, after its hello, or sending a byte now and then."""
    begun = time.monotonic()
    said = frame(hello())
    with stranger(agent) as silent, stranger(agent, said) as greeted, stranger(agent) as dripping:
        try:
            for byte in itertools.cycle(said):
                dripping.sendall(bytes([byte]))
                time.sleep(0.5)
        except ConnectionError:
            pass
        assert is_ended(silent) and is_ended(greeted) and is_ended(dripping)
    assert PROOF_SECONDS - 1 < time.monotonic() - begun < 2 * PROOF_SECONDS
    AgentConnection(agent.address, TOKEN).close()


def timer_of(local: int, remote: int) -> tuple[int, int]:
    """Return the kind of timer of a TCP connection, and after how many hundredths of a second it rings."""
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        _, here, there, _, _, timer = line.split()[:6]
        if int(here.split(":")[1], 16) == local and int(there.split(":")[1], 16) == remote:
            kind, when = timer.split(":")
            return int(kind, 16), int(when, 16)
    raise LookupError


def test_both_sides_notice_a_machine_that_was_switched_off(agent: Running) -> None:
    with closing(AgentConnection(agent.address, TOKEN)) as made:
        host, port = made._socket.getsockname()
        keepalive = 2
        for local, remote in ((agent.where[1], port), (port, agent.where[1])):

            def rings(local: int = local, remote: int = remote) -> bool:
                kind, when = timer_of(local, remote)
                return kind == keepalive and when <= 100 * KEEP_ALIVE["TCP_KEEPIDLE"]

            assert host == "127.0.0.1" and becomes(rings)


# --- what it says, and what it leaves alone -----------------------------------------------------------------------


def test_each_connection_has_a_line() -> None:
    with running("--listen", "0") as started:
        made, process = started.connection()
        assert started.line() == "connection 1 from 127.0.0.1"
        crash(process)
        assert started.line() == "connection 1 has ended: it was ended by signal 11"
        made, _ = started.connection()
        made.close()
        assert [started.line(), started.line()] == ["connection 2 from 127.0.0.1", "connection 2 has ended"]
        stranger_guesses(started)
        assert started.line() == "a connection from 127.0.0.1 did not prove that it knows the token"


def test_who_does_not_read_its_output_keeps_no_client_waiting() -> None:
    with running("--listen", "0") as started:
        assert started.process.stdout is not None
        room = fcntl.fcntl(started.process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        for _ in range(room // 40):  # their lines are more than that
            AgentConnection(started.address, TOKEN).close()


def test_it_leaves_the_socket_of_another_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # paths of sockets are short
    with running("--listen", "./socket"):
        Path("socket").unlink()
        with running("--listen", "./socket") as second:
            first_ends = second.address
            assert Path("socket").exists()
    assert first_ends == "./socket" and not Path("socket").exists()
    with running("--listen", "./socket") as first:
        Path("socket").unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind("socket")
            first.process.terminate()
            assert first.process.wait() == 0 and Path("socket").exists()


def test_a_path_of_a_program_that_hangs_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        hangs = stack.enter_context(socket.socket(socket.AF_UNIX))
        hangs.bind("socket")
        hangs.listen(0)
        while True:
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            try:
                waiting.connect("socket")
            except BlockingIOError:
                break
        done = subprocess.run(
            [agent_program(), "--listen", "./socket"],
            env={"GPUTUNE_TOKEN": TOKEN, **NO_LIBRARY},
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 1 and "in use" in done.stderr and Path("socket").exists()

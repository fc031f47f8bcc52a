"""Test what an agent answers on the device of fake_opencl.c: in each state, when calls fail, and what it tells."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core import errors
from gputune.core.errors import BuildFailed, ContextError, DeviceError, LaunchFailed, LimitExceeded, WrongDevice
from gputune.core.quirks import DRIVERS
from gputune.runtime.context.format import context_of
from gputune.server.agent.agent_connection import AgentConnection, AgentLost
from gputune.server.agent.message_parts import Batch, Expected, Given, Guarded, Span
from gputune.server.agent.messages import (
    GIVEN_VARIABLES,
    REPLIES,
    Allocate,
    Begin,
    BeginProfile,
    Bind,
    Build,
    Check,
    Copy,
    EndProfile,
    Fill,
    FirstLaunch,
    Free,
    Harvest,
    Keep,
    ListDevices,
    LoadContext,
    Open,
    OpenState,
    Read,
    ReadFiles,
    ReadState,
    ResetState,
    RunContext,
    SetVotes,
    TimePass,
    Vote,
    Write,
)
from tests.native.agent.running import TOKEN, Running, running
from tests.native.fake import DEVICE, ELEMENTS, NBYTES, SOURCE, STAGES, doubling_context, fake_library
from tests.native.stateful import LATER, stateful_context
from tests.native.test_needs import FEATURE, needing

pytestmark = pytest.mark.usefixtures("c_compiler")
VALUES = np.arange(ELEMENTS, dtype=np.float32)
WHOLE = Span(1, 0, NBYTES)
OPENED = Open(0, True, ())


@dataclass
class FakeAgent:
    """An agent on the made-up device. orders: the file that says what its library does in later connections."""

    running: Running
    orders: Path

    def order(self, call: int = 0, allowed: int = 1024, compiled: int = 0) -> None:
        """Have the call of this number fail, the device allow so many work-items, and kernels be compiled for so
        many."""
        self.orders.write_text(f"{call} {allowed} {compiled}\n", encoding="ascii")

    @property
    def failed(self) -> str:
        """Where the call was that failed last; nothing if none has."""
        path = self.orders.with_name(f"{self.orders.name}.failed")
        where = path.read_text(encoding="ascii") if path.exists() else ""
        path.unlink(missing_ok=True)
        return where

    def connect(self) -> AgentConnection:
        return AgentConnection(self.running.address, TOKEN)


def on_fake(orders: Path, **variables: str) -> dict[str, str]:
    """Return an agent's variables for the made-up device."""
    return {"GPUTUNE_OPENCL_LIBRARY": str(fake_library()), "FAKE_ORDERS": str(orders), **variables}


@pytest.fixture(scope="module")
def fake(c_compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeAgent]:
    orders = tmp_path_factory.mktemp("agent") / "orders"
    with running("--listen", "0", variables=on_fake(orders)) as started:
        yield FakeAgent(started, orders)


@pytest.fixture
def connection(fake: FakeAgent) -> Iterator[AgentConnection]:
    fake.order()
    with closing(fake.connect()) as made:
        yield made


@pytest.fixture(scope="module")
def stateful(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return stateful_context(tmp_path_factory.mktemp("context") / "a.bin", {"fixed": 0, "one": 1}).read_bytes()


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return doubling_context(tmp_path_factory.mktemp("context") / "a.bin").read_bytes()


# --- each message in a state that it does not fit -----------------------------------------------------------------

BUILT = (Allocate(1, NBYTES), Build(2, SOURCE, "", b""), Allocate(9, NBYTES))
BINDING = Bind(3, 2, "twice", (ELEMENTS,), (4,), (Given(1, 0, NBYTES, 0), Given(9, 0, NBYTES, 0)))
MOST_CALLS = 500  # before a program is built
BOUNDS = np.array([1e-3, 9.0, 1e-3, 1e-6]).tobytes()
NEED_A_DEVICE = (
    Allocate(1, 16),
    Write((WHOLE,), (bytes(NBYTES),)),
    Fill((WHOLE,), (1,)),
    Copy((WHOLE,), (Span(9, 0, NBYTES),)),
    Read((WHOLE,)),
    Read(()),
    Keep(1, b"data"),
    Check((Guarded(1, 0, 8, 0, 8, True),), ()),
    Build(2, SOURCE, "", b""),
    Harvest(2),
    BINDING,
    FirstLaunch(3, True),
    TimePass((), 0),
    TimePass((Batch((3,), 1, True),), 0),
    LoadContext(4, b"no context", "main", False, ()),
    RunContext(4, (), False, True),
    OpenState(5, 4),
    ResetState(5),
    ReadState(5, "a", NBYTES),
    BeginProfile(4, "basic"),
)
NEED_NOTHING = (ListDevices(), Free((1,)), ReadFiles((), 0), SetVotes(0, ()), Vote(True))


def test_each_message_is_in_one_of_the_lists() -> None:
    listed = {type(each) for each in (*NEED_A_DEVICE, *NEED_NOTHING)}
    assert listed | {Begin, Open, EndProfile} == REPLIES.keys()


@pytest.mark.parametrize("request_", NEED_A_DEVICE, ids=lambda each: type(each).__name__)
def test_without_a_device_a_message_says_so(connection: AgentConnection, request_: Any) -> None:
    with pytest.raises(LaunchFailed, match="no device is open"):
        connection.ask(request_)
    connection.ask(ListDevices())


def test_what_needs_no_device_is_done_without(connection: AgentConnection) -> None:
    for request in NEED_NOTHING:
        connection.ask(request)
    with pytest.raises(LaunchFailed, match="no profile is open"):
        connection.ask(EndProfile())
    connection.ask(OPENED)
    with pytest.raises(LaunchFailed, match="a device is open already"):
        connection.ask(OPENED)
    with pytest.raises(LaunchFailed, match="no profile is open"):
        connection.ask(EndProfile())


NAMES_HANDLES: Mapping[str, tuple[Any, str]] = {
    "harvest": (Harvest(7), "program"),
    "bind": (replace(BINDING, program=7), "program"),
    "first launch": (FirstLaunch(7, False), "bound kernel"),
    "pass": (TimePass((Batch((7,), 1, True),), 0), "bound kernel"),
    "run": (RunContext(7, (bytes(NBYTES),), False, True), "context"),
    "open": (OpenState(8, 7), "context"),
    "reset": (ResetState(7), "state"),
    "remembered": (ReadState(7, "a", NBYTES), "state"),
    "profile": (BeginProfile(7, "basic"), "context"),
    "write": (Write((Span(7, 0, 4),), (b"1234",)), "buffer"),
    "fill": (Fill((Span(7, 0, 4),), (1,)), "buffer"),
    "copy": (Copy((Span(7, 0, 4),), (WHOLE,)), "buffer"),
    "copy to": (Copy((WHOLE,), (Span(7, 0, NBYTES),)), "buffer"),
    "read": (Read((Span(7, 0, 4),)), "buffer"),
    "check": (Check((Guarded(7, 0, 8, 0, 8, True),), ()), "buffer"),
    "expected": (Check((Guarded(1, 0, 8, 0, 8, True),), (Expected(7, "int8", BOUNDS),)), "kept data"),
    "argument": (replace(BINDING, arguments=(Given(7, 0, 4, 0), BINDING.arguments[1])), "buffer"),
}


@pytest.mark.parametrize("name", NAMES_HANDLES)
def test_a_handle_of_nothing_or_of_another_kind_is_refused(
    connection: AgentConnection, context: bytes, stateful: bytes, name: str
) -> None:
    request, kind = NAMES_HANDLES[name]
    connection.ask(OPENED)
    for made in (*BUILT, LoadContext(10, stateful, "one", True, ())):
        connection.ask(made)
    others = {
        "state": OpenState(7, 10),
        "kept data": Keep(7, b"1234"),
        "buffer": Allocate(7, 16),
        "program": Build(7, SOURCE, "", b""),
    }
    others |= {"bound kernel": replace(BINDING, handle=7), "context": LoadContext(7, context, "main", False, ())}
    for other in (None, *(make for other, make in others.items() if other != kind)):
        if other is not None:
            connection.ask(other)
        with pytest.raises(LaunchFailed, match=f"handle 7 is no {kind}"):
            connection.ask(request)
        connection.ask(Free((7,)))


SPANS: Mapping[str, tuple[Any, str]] = {
    "beyond": (Read((Span(1, 8, NBYTES - 7),)), f"{NBYTES - 7} bytes at 8 of a buffer of {NBYTES} bytes"),
    "in use": (Allocate(1, 16), "handle 1 is in use"),
    "kept in use": (Keep(1, b"data"), "handle 1 is in use"),
    "too many": (Allocate(1 << 20, 16), "those from 1 to 65536 are known"),
    "inside": (Copy((Span(1, 0, 8),), (Span(1, 8, 8),)), "inside a buffer"),
    "expected": (Check((), (Expected(1, "int8", b""),)), "more is expected"),
    "guards": (Check((Guarded(1, 0, 8, 4, 5, True),), ()), "guards lie outside of 8 bytes"),
    "a profile": (BeginProfile(4, "basic"), "a profile is open already"),
    "no state": (OpenState(5, 4), "graph 'main' has no state"),
    "another kind": (RunContext(4, (bytes(NBYTES),), False, True, 1), "handle 1 is no state"),
    "a copy of another kind": (OpenState(5, 4, 1), "handle 1 is no state"),
}


@pytest.mark.parametrize("name", SPANS)
def test_what_lies_outside_is_refused(connection: AgentConnection, context: bytes, name: str) -> None:
    connection.ask(OPENED)
    connection.ask(Allocate(1, NBYTES))
    connection.ask(LoadContext(4, context, "main", False, ()))
    connection.ask(BeginProfile(4, "basic"))
    request, why = SPANS[name]
    connection.post(request)  # of a request that is not waited for
    with pytest.raises(DeviceError, match=why):
        connection.ask(Free(()))
    connection.ask(EndProfile())


def test_what_kernels_debug_is_not_read(connection: AgentConnection) -> None:
    paths = ("/sys/kernel", "/sys/kernel/debug", "/sys/kernel/../kernel/tracing")
    listed, *hidden = map(bytes, connection.ask(ReadFiles(paths, 10**9)).data)
    assert listed and hidden == [b"", b""]


def test_a_reply_that_is_too_large_is_refused_and_ends_nothing(connection: AgentConnection) -> None:
    connection.ask(OPENED)
    connection.ask(Allocate(1, DEVICE.max_allocation_bytes))
    whole = Span(1, 0, DEVICE.max_allocation_bytes)
    with pytest.raises(LimitExceeded, match="a reply of more than 1073741824 bytes"):
        connection.ask(Read((whole,) * 5))  # each of them alone would not be
    many = tuple(f"/no/{number}" for number in range(1024))
    assert len(connection.ask(ReadFiles(many, 0)).data) == 1024
    connection.ask(Allocate(2, 16))


# --- variables ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variable",
    ["GPUTUNE_OPENCL_LIBRARY=/tmp/evil.so", "LD_PRELOAD=x", "PATH=", "POCL_AFFINITY", "=", "POCL_AFFINITY2=1"],
)
def test_a_client_gives_listed_variables_only(connection: AgentConnection, variable: str) -> None:
    with pytest.raises(LaunchFailed, match="is none that a client gives an agent") as refused:
        connection.ask(Open(0, True, ("POCL_AFFINITY=0", variable)))
    assert repr(variable) in str(refused.value)
    told = connection.ask(OPENED).variables
    assert "POCL_AFFINITY=1" in told  # none was set


def test_what_a_client_gives_is_what_drivers_take(connection: AgentConnection) -> None:
    assert set(GIVEN_VARIABLES) == {name for driver in DRIVERS for name in driver.unbound}
    given = tuple(f"{name}=0" for name in GIVEN_VARIABLES)
    assert set(given) <= set(connection.ask(Open(0, True, given)).variables)


def test_an_agent_tells_listed_variables_as_utf8(tmp_path: Path) -> None:
    told = {"POCL_WORK_GROUP_METHOD": "loops", "IGC_x": "1", "OPENCL_LAYERS": "", "CL_CONFIG_CPU_y": "M\udcfcnchen"}
    secrets = {"SOME_SERVICE_PASSWORD": "hunter2", "POCL_WORK_GROUP_METHOD2": "hunter2", "xPOCL_AFFINITY": "hunter2"}
    long = {f"LONG{number}": "x" * 100_000 for number in range(6)}
    variables = on_fake(tmp_path / "orders", **told, **secrets, **long)
    with (
        running("--listen", "0", variables=variables) as started,
        closing(AgentConnection(started.address, TOKEN)) as one,
    ):
        found = set(one.ask(OPENED).variables)
    told |= {"CL_CONFIG_CPU_y": "M?nchen"}
    assert {f"{name}={value}" for name, value in told.items()} <= found
    assert not any("hunter2" in each or each.startswith("LONG") for each in found)


# --- texts --------------------------------------------------------------------------------------------------------


def test_texts_of_a_driver_are_utf8_and_cut_at_characters(tmp_path: Path, context: bytes) -> None:
    orders = tmp_path / "orders"
    log = "é" * 40_000  # 80 kB
    named = "Ger\udce4t €\udce2\udc82"
    with running("--listen", "0", variables=on_fake(orders, FAKE_NAME=named, FAKE_LOG=log)) as started:
        fake = FakeAgent(started, orders)
        with closing(fake.connect()) as one:
            assert one.ask(ListDevices()).devices[0].name == "Ger?t €??"
            one.ask(OPENED)
            for begin in ("", "a", "aa", "aaa"):
                with pytest.raises(LaunchFailed, match=r"é$|€$"):
                    one.ask(LoadContext(1, context, begin + "é" * 4000, False, ()))
                with pytest.raises(LaunchFailed, match=r"€$"):
                    one.ask(LoadContext(1, context, begin + "€" * 4000, False, ()))
        for call in range(1, MOST_CALLS):
            fake.order(call)
            with closing(fake.connect()) as one:
                try:
                    one.ask(OPENED)
                    one.ask(Build(1, SOURCE, "", b""))
                except BuildFailed as error:
                    if fake.failed == "clBuildProgram":
                        assert str(error).startswith("é") and "\ufffd" not in str(error)
                        return
                except DeviceError:
                    pass
        pytest.fail("no build has failed")


# --- calls that fail ----------------------------------------------------------------------------------------------

PASSED_OVER = {"answer"}
"""Where a call may fail and a request still succeeds: what a driver says about itself."""


def work(connection: AgentConnection, context: bytes, stateful: bytes) -> list[bytes]:
    """Return what a kernel and contexts compute, by all that a device does."""
    wanted = (2 * VALUES).tobytes()
    connection.ask(OPENED)
    for request in (
        *BUILT,
        Write((WHOLE,), (VALUES.tobytes(),)),
        Fill((Span(9, 0, NBYTES),), (0,)),
        BINDING,
        Bind(4, 2, "twice", (ELEMENTS // 2,), (4,), (Given(1, 128, 128, 0), Given(9, 128, 128, 0))),  # on parts
        Keep(5, wanted),
    ):
        connection.post(request)
    connection.ask(FirstLaunch(3, True))
    connection.ask(TimePass((Batch((3, 4), 2, True), Batch((4,), 1, False)), 10**18))
    expected = (Expected(5, "float32", BOUNDS),)
    (found,) = connection.ask(Check((Guarded(9, 0, NBYTES, 0, NBYTES, True),), expected)).found
    connection.ask(Build(6, "", "", bytes(connection.ask(Harvest(2)).data[0])))
    connection.ask(Allocate(8, NBYTES))
    connection.ask(Copy((Span(9, 0, NBYTES),), (Span(8, 0, NBYTES),)))
    (computed,) = connection.ask(Read((Span(8, 0, NBYTES),))).data
    connection.ask(LoadContext(7, context, "main", True, ()))
    connection.ask(BeginProfile(7, "detailed"))
    ran = connection.ask(RunContext(7, (VALUES.tobytes(),), True, True), outputs=[NBYTES])
    connection.ask(EndProfile())
    for made in (LoadContext(10, stateful, "fixed", True, ()), OpenState(11, 10), OpenState(12, 10, 11)):
        connection.ask(made)
    connection.ask(ResetState(12))
    step = RunContext(10, (VALUES.tobytes(),), False, True, 11)
    *_, moved = [connection.ask(step, outputs=[NBYTES]).outputs[0] for _ in range(3)]
    (remembered,) = connection.ask(ReadState(11, "b", NBYTES)).data
    assert found.wrong == 0
    return [bytes(computed), bytes(ran.outputs[0]), bytes(moved), bytes(remembered)]


def test_every_call_may_fail(fake: FakeAgent, context: bytes, stateful: bytes) -> None:
    """The request says that it failed, save where nothing depends on the call; nothing crashes, hangs or is wrong."""
    wanted = [(times * VALUES).tobytes() for times in (2, 2**STAGES, LATER, 4)]
    told: set[str] = set()
    for call in itertools.count(1):
        fake.order(call)
        with closing(fake.connect()) as one:
            try:
                assert work(one, context, stateful) == wanted, f"call {call} failed"
            except AgentLost as error:
                pytest.fail(f"call {call} in {fake.failed} ended the connection: {error}")
            except (DeviceError, ContextError) as error:
                assert str(error) and "\n" not in str(error)
                told.add(fake.failed)
            else:
                if not (where := fake.failed):
                    break  # that was the last call
                assert where in PASSED_OVER, f"call {call} failed in {where}, and nothing said so"
    assert {"clBuildProgram", "clCreateKernel", "clSetKernelArg", "clFinish", "clCreateSubBuffer", "command"} <= told


@pytest.mark.parametrize(
    ("allowed", "compiled", "good"), [(1024, 0, True), (256, 512, True), (256, 0, False), (256, 256, False)]
)
def test_a_kernel_may_be_as_large_as_it_was_compiled_for(
    fake: FakeAgent, allowed: int, compiled: int, good: bool
) -> None:
    """NVIDIA says 256 for each kernel, and runs those that were compiled for more."""
    fake.order(0, allowed, compiled)
    with closing(fake.connect()) as one:
        one.ask(OPENED)
        for request in BUILT:
            one.ask(request)
        large = replace(BINDING, global_size=(512,), local_size=(512,))
        if good:
            one.ask(large)
        else:
            with pytest.raises(LimitExceeded, match="work-group of 512 work-items, kernel 'twice' allows 256 here"):
                one.ask(large)


Damage = Callable[[bytes], bytes]
DAMAGED: Mapping[str, Damage] = {
    "NotAContext": lambda whole: b"no context" + whole,
    "UnsupportedFormatVersion": lambda whole: whole[:8] + b"\xff\xff" + whole[10:],
    "Truncated": lambda whole: whole[:20],
    "ChecksumMismatch": lambda whole: whole[:60] + bytes([whole[60] ^ 1]) + whole[61:],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_context_has_the_error_that_it_has_here(
    connection: AgentConnection, context: bytes, name: str
) -> None:
    damaged, kind = DAMAGED[name](context), getattr(errors, name)
    with pytest.raises(kind):
        context_of(memoryview(damaged), "a context")
    connection.ask(OPENED)
    with pytest.raises(kind):
        connection.ask(LoadContext(1, damaged, "main", True, ()))


@pytest.mark.parametrize("name", ["another driver", "the device's own"])
def test_features_that_the_client_has_proved_let_a_source_be_built(
    connection: AgentConnection, tmp_path: Path, name: str
) -> None:
    elsewhere = name == "another driver"
    path = needing(tmp_path / "a.bin", replace(DEVICE, driver_version="2.0") if elsewhere else DEVICE)
    connection.ask(OPENED)
    load = LoadContext(1, path.read_bytes(), "main", False, ("half",))
    if elsewhere:
        with pytest.raises(WrongDevice, match=f"does not prove: {FEATURE}, because no proof of it is given"):
            connection.ask(load)
    loaded = connection.ask(replace(load, features=("half", FEATURE)) if elsewhere else load)
    assert [warning.split(":")[0] for warning in loaded.warnings] == elsewhere * [
        "building from source on another device"
    ]
    (output,) = connection.ask(RunContext(1, (VALUES.tobytes(),), False, True), outputs=[NBYTES]).outputs
    assert bytes(output) == (VALUES * 2**STAGES).tobytes()

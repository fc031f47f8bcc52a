"""Run states on a target server that has the device, or an agent's: what they compute, what travels, how they end."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import Target
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.core.errors import LimitExceeded
from gputune.runtime.application.context import Context, load
from gputune.runtime.application.states import State
from gputune.runtime.devices.discovery import DeviceReport
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Done, ResetState
from tests.client.commands import Gputune, read_json
from tests.native.fake import ELEMENTS
from tests.native.stateful import CAPACITY, LATER, stateful_context
from tests.server.conftest import serving
from tests.waiting import becomes

pytestmark = [
    pytest.mark.own("it ends workers, and counts what a server holds"),
    pytest.mark.filterwarnings("ignore:.*building from source:UserWarning"),
]
GRAPHS = {"one": 1, "four": 4, "fixed": 0}
CRASHING = 1.0
SOURCE = """
__kernel void twice(__global const float *x, __global float *y) {
    int i = get_global_id(0);
    if (x[0] == 1.0f) *(__global volatile int *)(size_t)(x[0] - 1.0f) = 1;
    y[i] = 2.0f * x[i];
}
"""
ROWS = (CAPACITY, ELEMENTS // CAPACITY)
Executors = Mapping[str, Any]


@pytest.fixture(scope="module")
def path(report: DeviceReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Graphs that are built from source."""
    assert report.identity is not None
    device = replace(report.identity, driver_version="another")
    return stateful_context(tmp_path_factory.mktemp("there") / "a.bin", GRAPHS, source=SOURCE, device=device)


@pytest.fixture(scope="module")
def here(report: DeviceReport, path: Path) -> Iterator[Context]:
    assert report.identity is not None
    with load(path, device=report.identity.name) as context:
        yield context


@pytest.fixture(scope="module", params=["server", "agent"])
def address(request: pytest.FixtureRequest, report: DeviceReport) -> Iterator[Callable[[], TargetClient]]:
    """What connects to a server, which has the device or reaches an agent's."""
    if request.param == "agent":
        yield request.getfixturevalue("target").connect
    else:
        with serving(Limits(states=3), report=report) as (_, where):
            yield lambda: TargetClient.connect(*where)


@pytest.fixture
def client(address: Callable[[], TargetClient]) -> Iterator[TargetClient]:
    with address() as made:
        yield made


@pytest.fixture
def there(client: TargetClient, path: Path) -> Iterator[Executors]:
    """The graphs on the target. Nothing of them is left in the end."""
    executors = {name: RemoteExecutor(client, path, name, strict=False) for name in GRAPHS}
    yield executors
    with suppress(TargetError):
        for executor in executors.values():
            executor.close()
    assert client.status().memory_bytes == 0


def step(executor: Any, state: Any, number: float) -> bytes:
    """Run a step on an x that is all of one number; return y."""
    tensor = executor.graph.inputs[0]
    outputs, _ = executor.step_timed(state, {tensor.name: np.full(tensor.shape, number, np.float32)})
    assert list(outputs) == ["y"]
    return bytes(outputs["y"].tobytes())


def growing(executors: Executors) -> Iterator[object]:
    """Yield what two graphs on one state show, which is rewound, copied and reset."""
    one, four = executors["one"], executors["four"]
    with closing(one.open_state()) as state:
        yield from (state.capacity, state.nbytes)
        yield from (step(one, state, 3), step(four, state, 4), step(one, state, 5), state.length)
        state.rewind(2)
        with closing(state.copy()) as copy:
            yield from (step(four, copy, 6), step(one, copy, 7), copy.length, state.length)
            yield from (each.read(name, "float32", ROWS).tobytes() for each in (state, copy) for name in "ab")
        yield from (step(four, state, 8), state.length)
        state.reset()
        yield from (step(one, state, 9), step(one, state, 10), step(one, state, 11), state.length)


def fixed(executors: Executors) -> Iterator[object]:
    """Yield what a state shows that does not grow."""
    graph = executors["fixed"]
    with closing(graph.open_state()) as state, pytest.raises(ValueError, match="a state with 'a', which does not grow"):
        yield from (step(graph, state, number) for number in (3, 4, 5))
        state.reset()
        yield from (step(graph, state, number) for number in (6, 7, 8))
        yield from (state.capacity, state.length, state.nbytes)
        state.rewind(0)


def in_chunks(executors: Executors) -> Iterator[object]:
    """Yield what a prompt of six tokens shows, and what does not fit."""
    x = np.arange(12 * 16, dtype=np.float32).reshape(12, 16) + 2
    with State({"four": executors["four"]}, executors["four"].open_state()) as state:
        yield from (state.run(x[:4])["y"].tobytes(), state.run(x[4:7])["y"].tobytes(), state.length)
        with pytest.raises(LimitExceeded, match="5 tokens do not fit a state that has 7 of 8 rows"):
            state.run(x[7:])
        yield state.length


@pytest.mark.parametrize("story", [growing, fixed, in_chunks], ids=lambda each: each.__name__)
def test_a_state_does_there_what_it_does_here(here: Context, there: Executors, story: Any) -> None:
    assert list(story(there)) == list(story(here.executors))


BAD: dict[str, tuple[Callable[[Executors, Any], object], str]] = {
    "another graph's": (lambda there, state: step(there["fixed"], state, 3), "cannot use this state"),
    "an input of it": (lambda there, state: there["one"].step_timed(state, {"a": np.zeros(ROWS)}), "has no input 'a'"),
    "what it has not": (lambda there, state: state.read("x", "float32", (1,)), "the state has no 'x'"),
    "other bytes": (lambda there, state: state.read("a", "float32", (8,)), "'a' of the state has 256 bytes"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_use_is_one_line_and_loses_nothing(there: Executors, what: str) -> None:
    act, words = BAD[what]
    with closing(there["one"].open_state()) as state:
        step(there["one"], state, 3)
        step(there["one"], state, 4)
        with pytest.raises(TargetError, match=words) as caught:
            act(there, state)
        assert "\n" not in str(caught.value)
        assert step(there["one"], state, 5) == np.full(ELEMENTS, LATER * 3, np.float32).tobytes()
    with pytest.raises(TargetError, match=r"this connection has no state \d+ \(any more\)"):
        step(there["one"], state, 6)


def test_a_worker_that_crashes_loses_its_states_and_nothing_else(there: Executors) -> None:
    graph = there["one"]
    with closing(graph.open_state()) as state, closing(graph.open_state()) as other:
        step(graph, state, 3)
        with pytest.raises(TargetError) as crashed:
            step(graph, state, CRASHING)
        assert crashed.value.name in ("worker_died", "launch_failed")
        for each in (state, other):
            with pytest.raises(TargetError, match=r"state \d+ is lost with the worker that had it") as lost:
                step(graph, each, 4)
            assert lost.value.name == "unknown_state" and "\n" not in str(lost.value)
    with closing(graph.open_state()) as state:
        found = [step(graph, state, number) for number in (3, 4, 5)]
    assert found == [np.full(ELEMENTS, LATER * number, np.float32).tobytes() for number in (0, 0, 3)]


def test_states_belong_to_their_connection_and_end_with_it(
    address: Callable[[], TargetClient], client: TargetClient, path: Path
) -> None:
    with address() as other, ExitStack() as stack:
        one, two = (RemoteExecutor(each, path, "one", strict=False) for each in (client, other))
        state = stack.enter_context(closing(one.open_state()))
        held = client.status().memory_bytes
        theirs = two.open_state()
        assert client.status().memory_bytes == held + theirs.nbytes
        with pytest.raises(TargetError, match="this connection has no state"):
            other.ask_state(replace(theirs.there, handle=state.there.handle), ResetState, Done)
        other.close()
        assert becomes(lambda: client.status().memory_bytes < held)
        step(one, state, 3)


def test_net_run_takes_lines_as_steps(
    address: Callable[[], TargetClient],
    target: Target,
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with address() as client:
        words = ["--retrieve_context", path, "--graph", "fixed", "--target", client.address]
        if client.address == f"{target.host}:{target.port}":
            monkeypatch.setenv("GPUTUNE_TOKEN", str(target.credentials.token))
    for number in range(4):
        np.full(ELEMENTS, number + 2, np.float32).tofile(tmp_path / f"{number}.raw")
    (tmp_path / "list.txt").write_text("".join(f"x:={tmp_path}/{number}.raw\n" for number in range(4)))
    words += ["--input_list", tmp_path / "list.txt", "--output_dir", tmp_path / "out"]
    ran = Gputune(capfd)("net-run", *words, "--profile", tmp_path / "profile.json")
    assert ran.code == 0, ran.err
    found = [np.fromfile(tmp_path / "out" / f"Result_{number}" / "y.raw", np.float32)[0] for number in range(4)]
    assert found == [0, 0, LATER * 2, LATER * 3]
    assert sorted(file.name for file in (tmp_path / "out" / "Result_3").iterdir()) == ["y.raw"]
    profile = read_json(tmp_path / "profile.json")
    assert (profile["inferences"], profile["state_bytes"], len(profile["operations"])) == (4, 2 * 2 * 4 * ELEMENTS, 3)

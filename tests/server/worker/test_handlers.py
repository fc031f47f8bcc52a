"""Test the worker's side without a process: what each request does on the null device, and what the page says."""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core.batches import Compiled, ProfileKernel
from gputune.core.errors import BuildFailed, LaunchFailed
from gputune.core.launches import Launch, Trial, Variant, source_sha256
from gputune.runtime.backends import Backend, Bound, Timing, open_backend
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import BufferRef, Context, GraphRecord, LaunchRecord, ProgramRecord, TensorRecord
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.profiling.log import read_log_of
from gputune.server.protocol import codec
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.launches import launches_of, with_launches
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    CompileKernel,
    Done,
    Error,
    ExecuteContext,
    ExecuteKernel,
    LoadContext,
    ProfileContext,
    Progress,
)
from gputune.server.worker.handlers import Handlers
from gputune.server.worker.heartbeat_page import HeartbeatPage
from gputune.server.worker.link import (
    DEVICE_LOST,
    FROM_WORKER,
    TO_WORKER,
    BuildPrograms,
    Forget,
    ProgramsBuilt,
    PutBeside,
    PutBuffer,
    PutContext,
    program_key,
)
from gputune.server.worker.watcher import LinkWatcher, launch_seconds
from tests.server.conftest import batch_of
from tests.variants import numbered

SOURCE = "__kernel void copy(__global const float *input, __global float *output) {}"
SOURCES = {source_sha256(SOURCE): SOURCE}
LIMITS = Limits(compile_seconds=50, launch_seconds=20, request_seconds=70)
X = np.arange(8, dtype=np.float32)


@pytest.fixture
def backend() -> Backend:
    return open_backend(NULL_REPORT)


@dataclass
class Worker:
    """Handlers with a page of their own, and what they have sent; sources and `programs` go in front of a request."""

    handlers: Handlers
    page: HeartbeatPage
    sent: list[Progress] = field(default_factory=list)
    programs: dict[str, Any] = field(default_factory=dict)

    def __call__(self, request: object) -> Any:
        sources = {one.source_sha256: one.source for one in launches_of(request)}
        if sources:
            programs, self.programs = self.programs, {}
            assert self.handlers.handle(PutBeside(sources, programs)) == Done()
        reply = self.handlers.handle(with_launches(request, lambda one: replace(one, source="")))
        assert self.page.read().step is None, "a worker that waits does nothing"
        return reply


@pytest.fixture
def worker(backend: Backend) -> Worker:
    page, sent = HeartbeatPage.create(), list[Progress]()
    return Worker(Handlers(backend, LIMITS, page, sent.append), page, sent)


def launch(options: str = "", *arguments: str) -> Launch:
    return Launch(SOURCE, "copy", options, (16,), (4,), arguments or ("input", "output"))


def variant(number: int) -> Variant:
    return Variant({"N": number}, (), launch(f"-DN={number}"), {})


def measuring_request(variants: int, **fields: Any) -> ProfileKernel:
    return batch_of(7, 8, **{"variants": numbered(map(variant, range(variants))), "samples": 5, **fields})


@pytest.fixture
def supplied(worker: Worker) -> Worker:
    """A worker that has buffer 7, an input, and buffer 8, a reference."""
    for handle in (7, 8):
        assert worker(PutBuffer(handle, np.arange(16, dtype=np.float32).data)) == Done()
    return worker


def error_of(reply: object) -> tuple[str, str]:
    assert isinstance(reply, Error)
    return reply.name, reply.message


def test_handlers_have_the_names_and_the_order_of_the_messages(worker: Worker) -> None:
    names = [re.sub(r"(?<!^)([A-Z])", r"_\1", kind).lower() for kind in TO_WORKER]
    public = [name for name in vars(Handlers) if not name.startswith("_") and name != "handle"]
    assert public == names
    assert list(worker.handlers._by_message) == list(TO_WORKER.values())


def test_a_buffer_is_there_until_it_is_forgotten(supplied: Worker) -> None:
    assert not isinstance(supplied(measuring_request(1)), Error)
    assert supplied(Forget((7, 99), (5,))) == Done()
    assert error_of(supplied(measuring_request(1))) == ("unknown_buffer", "the worker has no buffer 7")


def test_measuring_gives_trials_a_baseline_and_what_it_cost(supplied: Worker) -> None:
    reply = supplied(measuring_request(3, baseline=replace(variant(9), number=9)))
    assert [trial.status for trial in reply.trials] == ["ok"] * 3
    assert reply.baseline.status == "ok" and len(reply.baseline.samples_ns) == 5
    assert set(reply.spent_ns) == {"build", "verify", "measure"}
    assert set(reply.state) == {"before", "after"} and isinstance(reply.state["before"], dict)
    assert supplied(measuring_request(3)).baseline is None
    assert error_of(supplied(measuring_request(1, output_bytes=60)))[0] == "bad_message"


def test_the_numbers_of_variants_are_their_own(supplied: Worker) -> None:
    twice = replace(measuring_request(1), variants=(variant(0), variant(1)))
    another = measuring_request(2, baseline=variant(9))
    assert error_of(supplied(twice)) == ("bad_message", "two variants have the same number")
    assert error_of(supplied(another)) == (
        "bad_message",
        "the baseline has the number of variant 0 and is another one",
    )


def test_what_is_concluded_is_sent_at_once_and_nothing_of_the_baseline(supplied: Worker) -> None:
    broken = replace(variant(1), main=launch("", "nowhere"))
    request = measuring_request(3, baseline=replace(variant(9), number=9))
    supplied(replace(request, variants=numbered((variant(0), broken, variant(2)))))
    assert [(p.phase, p.done, p.total, p.variant) for p in supplied.sent] == [
        ("building", 1, 3, 0),
        ("building", 2, 3, 1),
        ("building", 3, 3, 2),
    ]
    assert [p.trial.status for p in supplied.sent if p.trial] == ["ok", "runtime", "ok"]
    assert supplied.sent[1].message.startswith("runtime: kernel 'copy' wants a buffer 'nowhere'")


def test_a_source_that_names_a_file_fails_its_variant_only(supplied: Worker) -> None:
    text = f'#include "/etc/hostname"\n{SOURCE}'
    curious = replace(variant(1), main=replace(launch(), source=text, source_sha256=source_sha256(text)))
    reply = supplied(replace(measuring_request(1), variants=numbered((variant(0), curious))))
    assert [trial.status for trial in reply.trials] == ["ok", "compile"]
    assert reply.trials[1].message.startswith("#include is not allowed")
    name, message = error_of(supplied(CompileKernel(replace(variant(1), main=launch("-I/etc")), {"input": 64})))
    assert (name, message[:23]) == ("build_failed", "the build option '-I/et")


def test_a_failure_in_the_race_is_told_as_one(
    supplied: Worker, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = backend.time

    def failing(bound: Bound, launches: int) -> Timing:
        assert launches == 1, "lost"
        return time(bound, launches)

    monkeypatch.setattr(backend, "time", failing)
    supplied(measuring_request(1, sample_ns=10**9))  # which takes more than one launch
    assert [(p.phase, p.done, p.trial and p.trial.status) for p in supplied.sent] == [
        ("building", 1, "ok"),
        ("measuring", 1, "runtime"),
    ]


def test_a_warm_up_is_given_up_when_the_request_is(
    supplied: Worker, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    time, count = backend.time, 0

    def counted(bound: Bound, launches: int) -> Timing:
        nonlocal count
        count += 1
        supplied.page.cancel(count == 3)
        assert count < 4, "it goes on"
        return time(bound, launches)

    monkeypatch.setattr(backend, "time", counted)
    assert error_of(supplied(measuring_request(2, warm_up_ns=10**18)))[0] == "cancelled"


def test_a_cancelled_request_says_so_and_the_worker_lives_on(supplied: Worker) -> None:
    supplied.page.cancel(True)
    for request in (
        measuring_request(2),
        ExecuteKernel((launch(),), {"input": 7}, {"output": 64}),
        BuildPrograms((launch(),), SOURCES),
    ):
        assert error_of(supplied(request)) == ("cancelled", "the request was cancelled")
    supplied.page.cancel(False)
    assert not isinstance(supplied(measuring_request(2)), Error)


@pytest.mark.parametrize(
    ("expected_ns", "seconds"), [(0, 20), (1, 1.5), (0.5e9, 1.5), (0.6e9, 1.8), (6.0e9, 18), (7.0e9, 20)]
)
def test_the_limit_of_a_launch_scales_between_floor_and_ceiling(expected_ns: float, seconds: float) -> None:
    assert launch_seconds(expected_ns, LIMITS) == pytest.approx(seconds)


def test_each_step_has_its_limit_on_the_page(worker: Worker) -> None:
    watcher = LinkWatcher(worker.page, LIMITS, worker.sent.append, range(2))
    allowed = {}
    for step in ("preparing", "building", "starting", "launching", "checking", "measuring"):
        watcher.step(step, 1, 1e9)
        doing = worker.page.read()
        assert (doing.step, doing.variant) == (step, 1)
        allowed[step] = doing.allowed_ns / 1e9
    assert allowed == {
        "preparing": 70,
        "building": 50,
        "starting": 50,
        "launching": 3,
        "checking": 70,
        "measuring": 3,
    }


class Left(BaseException):
    """The process has ended itself."""


@pytest.fixture
def failing(supplied: Worker, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """A worker whose launches fail."""

    def launched(bound: Bound, started: Callable[[], None]) -> Timing:
        started()
        raise LaunchFailed("a launch failed: clWaitForEvents failed: OUT_OF_RESOURCES")

    def leave(code: int) -> None:
        doing = supplied.page.read()
        raise Left(code, doing.step, doing.variant)

    monkeypatch.setattr(backend, "first_launch", launched)
    monkeypatch.setattr("os._exit", leave)
    return supplied


def test_a_worker_on_whose_device_nothing_works_any_more_blames_one_variant_and_ends(
    failing: Worker, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a bad access on a GPU: every later variant would fail, too, and be remembered as one that does."""
    monkeypatch.setattr(backend, "lost", lambda: True)
    with pytest.raises(Left) as left:
        failing(measuring_request(2))
    assert left.value.args == (DEVICE_LOST, "launching", 0)
    assert [told for told in failing.sent if told.trial is not None] == []
    with pytest.raises(Left):
        failing(ExecuteKernel((launch(),), {"input": 7}, {"output": 64}))


def test_a_worker_whose_device_works_tells_what_failed(failing: Worker) -> None:
    profiled = failing(measuring_request(2))
    assert [trial.status for trial in profiled.trials] == ["runtime", "runtime"]
    assert error_of(failing(ExecuteKernel((launch(),), {"input": 7}, {"output": 64})))[0] == "launch_failed"


def test_nothing_that_goes_wrong_in_a_watcher_reaches_the_batch(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(message: Progress) -> None:
        raise BrokenPipeError

    watcher = LinkWatcher(worker.page, LIMITS, gone, range(2))
    watcher.verified(0, Trial("ok"))
    watcher.failed(1, Trial("runtime"))
    watcher.step("no such step", 1, 0.0)  # type: ignore[arg-type]
    assert len(caplog.records) == 3


def test_compiling_gives_a_binary(worker: Worker) -> None:
    reply = worker(CompileKernel(variant(3), {"input": 64, "output": 64}))
    assert isinstance(reply, Compiled) and len(reply.binary) > 0
    assert error_of(worker(CompileKernel(variant(3), {"input": 64})))[0] == "launch_failed"


def test_programs_travel_from_one_worker_to_the_next_request_of_another(
    supplied: Worker, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = [launch(f"-DN={number}") for number in (0, 1, 0)]
    reply = supplied(BuildPrograms(tuple(launches), SOURCES))
    assert isinstance(reply, ProgramsBuilt)
    assert list(reply.binaries) == [program_key(launches[0]), program_key(launches[1])]
    built: list[str] = []
    build = backend.build

    def noted(source: str, options: str) -> object:
        built.append(options)
        if options == "-DN=5":
            raise BuildFailed("no")
        return build(source, options)

    monkeypatch.setattr(backend, "build", noted)
    supplied.programs = reply.binaries
    assert supplied(PutBuffer(9, b"1234")) == Done()  # comes between, and is no request of a client's
    supplied(measuring_request(3))
    assert built == ["-DN=2"]
    supplied.handlers._programs._kept.clear()
    supplied(measuring_request(3))
    assert built == ["-DN=2", "-DN=0", "-DN=1", "-DN=2"]
    assert supplied(BuildPrograms((launch("-DN=5"),), SOURCES)) == ProgramsBuilt({})


def test_sources_are_for_the_next_request_and_for_none_after_it(supplied: Worker) -> None:
    empty = with_launches(measuring_request(2), lambda one: replace(one, source=""))
    assert supplied.handlers.handle(PutBeside(SOURCES)) == Done()
    assert [trial.status for trial in supplied.handlers.handle(empty).trials] == ["ok", "ok"]  # type: ignore[attr-defined]
    assert error_of(supplied.handlers.handle(empty))[0] == "unknown_source"


@pytest.fixture
def context(backend: Backend, tmp_path: Path) -> bytes:
    """y = f(x), twice: graphs "one" and "two"."""
    program = backend.build(SOURCE, "")
    assert program.binary is not None
    x, y = BufferRef("input", 0, 0, 32), BufferRef("output", 0, 0, 32)
    graph = GraphRecord(
        "one",
        (TensorRecord("x", (2, 4)),),
        (TensorRecord("y", (8,)),),
        tuple(LaunchRecord(name, "0" * 64, 0, "copy", (8,), (4,), (x, y)) for name in ("first", "second")),
        arena_bytes=(),
    )
    made = Context(
        graphs=(graph, replace(graph, name="two")),
        programs=(ProgramRecord(program.binary, SOURCE, ""),),
        weights=(),
        device=backend.identity.to_dict(),
        tier="null",
        configuration={},
        versions={},
        computes=False,
    )
    write_context(tmp_path / "context.bin", made)
    return (tmp_path / "context.bin").read_bytes()


def test_a_context_is_loaded_run_profiled_and_forgotten(worker: Worker, context: bytes) -> None:
    loaded = worker(PutContext(5, LoadContext(1, "", True), context))
    assert (loaded.context, loaded.computes, loaded.warnings) == (5, False, ()) and loaded.load_ns > 0
    ran = worker(ExecuteContext(5, {"x": X.data}))
    assert bytes(ran.outputs["y"]) == bytes(32) and ran.elapsed_ns > 0
    profiled = worker(ProfileContext(5, {"x": X.data}, 4, "qhas"))
    log = read_log_of(BytesIO(profiled.log), "the log")
    assert [launch.operation for launch in log.graphs[0].launches] == ["first", "second"]
    assert log.complete and len(log.inferences) == 4 and all((one.took_ns() > 0).all() for one in log.inferences)
    worker.handlers._limits = replace(LIMITS, timings=7)
    refused = worker(ProfileContext(5, {"x": X.data}, 4, "qhas"))
    assert (refused.name, refused.details) == ("limit_exceeded", {"limit": "timings", "allowed": 7, "got": 8})
    assert worker(Forget((), (5,))) == Done()
    assert error_of(worker(ExecuteContext(5, {"x": X.data})))[0] == "unknown_context"


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "graph 'one' needs the input 'x'"),
        ({"x": X.data, "z": X.data}, "graph 'one' has no input 'z'"),
        ({"x": X[:7].data}, "input 'x' has 28 bytes, float32[2, 4] has 32"),
    ],
)
def test_inputs_that_do_not_fit_are_named(
    worker: Worker, context: bytes, inputs: dict[str, memoryview], words: str
) -> None:
    worker(PutContext(5, LoadContext(1, "two", False), context))
    worker(PutContext(5, LoadContext(1, "one", False), context))
    for request in (ExecuteContext(5, dict(inputs)), ProfileContext(5, dict(inputs), 1, "basic")):
        name, message = error_of(worker(request))
        assert name == "bad_message" and message.startswith(words)


@pytest.mark.parametrize(
    ("damage", "graph", "reason", "words"),
    [
        (lambda data: b"no context" + data, "", "not_a_context", "the uploaded context: not a gputune context"),
        (lambda data: data[:-1], "", "truncated", "the uploaded context: "),
        (lambda data: data[:20] + b"!" + data[21:], "", "checksum_mismatch", "the header is damaged"),
        (lambda data: data, "three", "unknown_graph", "there is no graph 'three'; the graphs are ['one', 'two']"),
    ],
)
def test_a_context_that_cannot_be_loaded_says_why(
    worker: Worker, context: bytes, damage: Callable[[bytes], bytes], graph: str, reason: str, words: str
) -> None:
    reply = worker(PutContext(5, LoadContext(1, graph, False), damage(context)))
    assert isinstance(reply, Error)
    assert (reply.name, reply.details["reason"]) == ("bad_context", reason) and words in reply.message
    assert error_of(worker(ExecuteContext(5, {})))[0] == "unknown_context"


def test_profiling_a_context_can_be_cancelled_and_tells_of_itself(
    worker: Worker, context: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker(PutContext(5, LoadContext(1, "", True), context))
    monkeypatch.setattr("gputune.server.worker.handlers.PROGRESS_SECONDS", 0.0)
    worker(ProfileContext(5, {"x": X.data}, 3, "detailed"))
    assert [(p.phase, p.done, p.total) for p in worker.sent] == [("running", done, 3) for done in (1, 2, 3)]
    worker.page.cancel(True)
    assert error_of(worker(ProfileContext(5, {"x": X.data}, 3, "detailed")))[0] == "cancelled"


def test_only_some_of_many_warnings_are_told(worker: Worker, context: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(*arguments: Any) -> Any:
        executor = executor_on(*arguments)
        executor.warnings += ["x" * 100_000] * 30
        return executor

    monkeypatch.setattr("gputune.server.worker.handlers.context_on", loaded)
    reply = worker(PutContext(5, LoadContext(1, "", True), context))
    assert len(reply.warnings) == 21 and reply.warnings[-1] == "and 10 more such warnings"
    assert codec.unpack(*codec.pack(reply, 1), FROM_WORKER)[1] == reply


def test_no_message_is_longer_than_it_may_be(supplied: Worker, context: bytes) -> None:
    supplied(PutContext(5, LoadContext(1, "", True), context))
    many = {f"{number:0999}": 7 for number in range(900)}
    for request in (
        replace(measuring_request(1), buffers={"x": 7}, variants=(replace(variant(0), main=launch("", "nowhere")),)),
        ExecuteKernel((launch("", "nowhere"),), many, {}),
        ExecuteContext(5, {"n" * 1000: b""}),
    ):
        reply = supplied(request)
        texts = [reply.message] if isinstance(reply, Error) else [trial.message for trial in reply.trials]
        assert max(map(len, texts)) < 2500
        assert codec.unpack(*codec.pack(reply, 1), FROM_WORKER)[1] == reply
    handlers = supplied.handlers
    handlers._by_message = {**handlers._by_message, ExecuteKernel: lambda request: _raise("x" * 100_000)}
    assert len(supplied(ExecuteKernel((launch(),), {}, {})).message) == 4000


def _raise(message: str) -> None:
    raise ProtocolError("bad_message", message)


def test_a_defect_is_an_error_and_not_the_end(
    worker: Worker, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "upload", lambda data: 1 / 0)
    assert worker(PutBuffer(1, b"a")) == Error("internal_error", "ZeroDivisionError: division by zero")
    monkeypatch.undo()
    assert error_of(worker(PutBuffer(1, b""))) == ("launch_failed", "a buffer of 0 bytes, at least 1 is needed")
    assert worker(PutBuffer(1, struct.pack("<f", 1))) == Done()

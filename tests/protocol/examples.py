"""List one example of every message, and a few with fields that may be empty."""

from dataclasses import replace
from typing import Any

from gputune.core.batches import Compiled, Profiled, ProfileKernel
from gputune.core.launches import Launch, Stage, Trial, Variant, Work
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    PROTOCOL_VERSION,
    BufferData,
    BufferReady,
    Cancel,
    CompileKernel,
    ContextExecuted,
    ContextLoaded,
    ContextProfiled,
    Done,
    DownloadBuffer,
    Error,
    ExecuteContext,
    Executed,
    ExecuteKernel,
    FeaturesProven,
    FreeBuffers,
    FreeContexts,
    FreeStates,
    Hello,
    LoadContext,
    MemoryReady,
    OpenState,
    PerfProfileSet,
    Ping,
    Pong,
    ProfileContext,
    Progress,
    Proof,
    ProveFeatures,
    ReadState,
    RegisterMemory,
    ResetState,
    SetPerfProfile,
    StateReady,
    Status,
    StatusReport,
    UploadBuffer,
    Welcome,
)

SOURCE = "__kernel void add(__global float *y, int n) {}"
LAUNCH = Launch(SOURCE, "add", "-DN=4", (64, 2), (8, 1), ("output", -7))
STAGED = replace(LAUNCH, stages=(Stage("fill", (32,), (4,), ("scratch", 3)),))
VARIANT = Variant({"MWG": 8}, (LAUNCH,), STAGED, {"packed": 256}, {"scratch": 512})
BASELINE = Variant({"MWG": 4}, (), LAUNCH, {}, number=2)
WON = Trial("ok", "", (1500.5, 1499.0), (1600.0, 1601.0), 90_000_000, 300_000_000, {"clock": "event", "rounds": 2})
LOST = Trial("compile", "no such function", (), (), 5, 0, {})
DEVICE: dict[str, object] = {"name": "a device", "max_work_item_sizes": [4, 4, 4]}

PROFILE = ProfileKernel(
    task="conv",
    buffers={"input": 1},
    output_bytes=4096,
    reference=2,
    relative=1e-3,
    absolute=0.0,
    dtype="float32",
    variants=(VARIANT, replace(VARIANT, number=1)),
    baseline=BASELINE,
    best_ns=1499.5,
    work=Work(2, 3),
    samples=7,
    sample_ns=1_000_000,
    warm_up_ns=20_000_000,
    cold=True,
    together=True,
    harvest=False,
)
STATUS = StatusReport(
    software="gputune 0.1.0",
    device=DEVICE,
    uptime_seconds=12.5,
    clients=2,
    queued=1,
    running="profile",
    worker_restarts=1,
    last_restart="killed by signal 9",
    requests={"ping": 3},
    memory_bytes=4096,
    state={"load": 0.5, "cpu_mhz": [800, 2400, 1600]},
)

# one of each class, in the order of messages.py; golden_frames.txt has a line for each
EXAMPLES: list[Any] = [
    Hello(PROTOCOL_VERSION, "gputune 0.1.0", "0123456789abcdef" * 4, "token", "fedcba98" * 4),
    Proof(),
    Welcome(Limits(), DEVICE, {"software": "gputune 0.1.0"}),
    Ping(),
    Cancel(3),
    Status(),
    UploadBuffer(b"\x00\x01\x02\x03"),
    RegisterMemory(4096, 128),
    DownloadBuffer(3),
    FreeBuffers((3, 2**40 + 1)),
    CompileKernel(VARIANT, {"input": 1024}),
    PROFILE,
    ExecuteKernel((LAUNCH,), {"weight": 5}, {"packed": 256}),
    LoadContext(4, "main", True),
    ExecuteContext(6, {"x": b"four", "y": b""}),
    ProfileContext(6, {"x": b"four"}, 20, "qhas", 5, "net", {"y": 3}, {"z": 4}),
    FreeContexts((6,)),
    SetPerfProfile({"general": {"DSP_HYSTERESIS_TIME_US": 300_000}}),
    OpenState(6, 8),
    ResetState(9),
    ReadState(9, "past", 4096),
    FreeStates((9, 8)),
    ProveFeatures(("half", "subgroups")),
    Progress("building", 1, 2, "", 1, LOST),
    Pong(),
    STATUS,
    BufferReady(7),
    MemoryReady(8),
    BufferData(b"data"),
    Done(),
    Compiled(b"binary", 90_000_000, 300_000_000),
    Profiled((WON, LOST), 0, b"binary", WON, {"build": 95_000_000, "measure": 3_000_000}, {"before": {"load": 0.5}}),
    Executed({"a": b"first", "empty": b"", "b": b"second"}),
    ContextLoaded(6, True, ("the driver is another one",), 40_000_000),
    ContextExecuted({"out": b"result"}, 1_500_000),
    StateReady(9, 4096),
    ContextProfiled(b"a profile log"),
    PerfProfileSet(("cpufreq", "cpu_latency")),
    FeaturesProven({"half": "", "subgroups": "it does not compile"}),
    Error("unknown_buffer", "this connection has no buffer 9 (any more)", {"buffer": 9}),
]

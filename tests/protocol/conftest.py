"""One example of every message."""

from typing import Any

import pytest

from gputune.server.protocol.launches import source_sha256
from gputune.server.protocol.messages import (
    BufferData,
    BufferReady,
    Compiled,
    CompileKernel,
    Done,
    DownloadBuffer,
    Error,
    Executed,
    ExecuteKernel,
    FreeBuffers,
    Hello,
    Launch,
    Limits,
    Profiled,
    ProfileKernel,
    Trial,
    UploadBuffer,
    Variant,
    Welcome,
    Work,
)

SOURCE = "__kernel void add(__global float *y, int n) {}"
LAUNCH = Launch(SOURCE, source_sha256(SOURCE), "add", "-DN=4", (64, 2), (8, 1), ("output", -7))
VARIANT = Variant({"MWG": 8}, (LAUNCH,), LAUNCH, {"packed": 256})
TRIALS = (
    Trial("ok", "", (1500.5, 1499.0), (1600.0, 1601.0), 90_000_000, 300_000_000, {"clock": "event", "rounds": 2}),
    Trial("compile", "no such function", (), (), 5, 0, {}),
)
EXAMPLES: list[Any] = [
    Hello(1, "gputune 0.1.0"),
    Welcome(Limits(), {"name": "a device", "max_work_item_sizes": [4, 4, 4]}, {"software": "gputune 0.1.0"}),
    UploadBuffer(b"\x00\x01\x02\x03"),
    DownloadBuffer(3),
    FreeBuffers((3, 2**40 + 1)),
    CompileKernel(VARIANT, {"input": 1024}),
    ProfileKernel("conv", {"input": 1}, 4096, 2, 1e-3, 0.0, (VARIANT, VARIANT), Work(2, 3), 7, 1_000_000, 20_000_000),
    ExecuteKernel((LAUNCH,), {"weight": 5}, {"packed": 256}),
    BufferReady(7),
    BufferData(b"data"),
    Done(),
    Compiled(b"binary", 90_000_000, 300_000_000),
    Profiled(TRIALS, 0, b"binary"),
    Executed({"a": b"first", "empty": b"", "b": b"second"}),
    Error("unknown_buffer", "this connection has no buffer 9 (any more)", {"buffer": 9}),
]


@pytest.fixture(params=EXAMPLES, ids=lambda message: type(message).__name__)
def example(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def examples() -> list[Any]:
    return EXAMPLES

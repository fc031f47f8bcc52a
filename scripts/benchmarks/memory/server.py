"""Measure what registered memory saves on the way to a target on this machine: inferences on registered memory over a
local socket, and inferences that carry tensors over TCP loopback, turn by turn; and frames that pass through three
processes.

A part of `scripts/bench memory`.
"""

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tool
from benchmarks.memory.three_processes import pass_frames
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import parse_address
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.runtime.execution.loading import load

MIB = 1 << 20
SIZES_BYTES = (4 << 10, MIB, 16 * MIB)
LEAST_FACTOR = 5.0  # at the largest size
MOST_LINK_BYTES = 1024  # of an inference, whatever the tensors
WARM_UP = 3


def measure(folder: Path, inferences: int, frames: int, device: str | None) -> tuple[dict[str, Any], list[list[str]]]:
    """Figures for programs and rows (what, memory, TCP, factor, mark). Each size is inferred `inferences` times in both
    ways, in turns; so many frames of the smallest size pass through three processes. device: as gputune's --device."""
    figures: dict[str, Any] = {}
    rows: list[list[str]] = []
    with _served(device) as (local, distant):
        for nbytes in SIZES_BYTES:
            context = _context(folder, nbytes, device)
            figures[str(nbytes)] = figure = _compare(context, local, distant, inferences)
            largest = nbytes == SIZES_BYTES[-1]
            rows.append(
                [
                    f"{nbytes // 1024} KiB in and out",
                    _shown(figure["memory_us"]),
                    _shown(figure["tcp_us"]),
                    f"{figure['factor']:.1f}",
                    f"at least {LEAST_FACTOR:g}" if largest else "",
                ]
            )
            link = f"{figure['link_bytes']} bytes"
            rows.append(["on the local socket, each", link, "", "", f"at most {MOST_LINK_BYTES}"])
    with load(_context(folder, SIZES_BYTES[0], device), device=device) as executor:
        passed = pass_frames(executor, frames)
    equal = "equal bits" if passed.seen == passed.wanted else "OTHER BITS"
    figures["three_processes"] = {"frames": frames, "equal": equal, "copied_bytes": passed.copied_bytes}
    what = f"{frames} frames through three processes"
    rows.append([what, f"{statistics.median(passed.frame_ns) / 1e3:.0f} us each", "", "", ""])
    rows.append(["bytes that gputune has copied", f"{passed.copied_bytes}, {equal}", "", "", "0, equal bits"])
    return figures, rows


def _compare(context: Path, local: TargetClient, distant: TargetClient, inferences: int) -> dict[str, Any]:
    ours = RemoteExecutor(local, context, None, strict=False)
    theirs = RemoteExecutor(distant, context, None, strict=False)
    (x,), (y,) = ours.graph.inputs, ours.graph.outputs
    given, taken = ours.allocate_for(x), ours.allocate_for(y)
    values = np.random.default_rng(1).standard_normal(x.shape, np.float32)
    given.view(x.dtype, x.shape)[...] = values
    times_ns: tuple[list[int], list[int]] = [], []
    link_bytes: list[int] = []
    for number in range(WARM_UP + inferences):
        begun_ns = time.perf_counter_ns()
        with _counted(local) as count:
            here = ours.run_timed({x.name: given}, {y.name: taken})[0]
        between_ns = time.perf_counter_ns()
        there = theirs.run_timed({x.name: values})[0]
        ended_ns = time.perf_counter_ns()
        if not np.array_equal(here[y.name], there[y.name]):
            raise SystemExit("the two ways give other results")
        if number >= WARM_UP:
            times_ns[0].append(between_ns - begun_ns)
            times_ns[1].append(ended_ns - between_ns)
            link_bytes.append(sum(count))
    copied = ours.copied_bytes
    for executor in (ours, theirs):
        executor.close()
    memory_us, tcp_us = ([value / 1e3 for value in of] for of in times_ns)
    return {
        "memory_us": memory_us,
        "tcp_us": tcp_us,
        "factor": statistics.median(tcp_us) / statistics.median(memory_us),
        "link_bytes": max(link_bytes),
        "copied_bytes": copied,
    }


@contextmanager
def _counted(client: TargetClient) -> Iterator[list[int]]:
    """Every number of bytes that is sent or received meanwhile."""
    connection: Any = client._session.link.connection
    stream = connection._stream
    send, receive, counts = stream.send, stream.receive, list[int]()

    def counting_send(buffers: Any, descriptor: int | None = None) -> int:
        counts.append(send(buffers, descriptor))
        return counts[-1]

    def counting_receive(space: memoryview) -> int:
        counts.append(receive(space))
        return counts[-1]

    vars(stream).update(send=counting_send, receive=counting_receive)
    try:
        yield counts
    finally:
        del stream.send, stream.receive


@contextmanager
def _served(device: str | None) -> Iterator[tuple[TargetClient, TargetClient]]:
    """Clients of two servers on the device, one on a local socket and one on a port."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gputune-"))
        clients = []
        for where in (("--unix", f"{folder}/socket"), ("--port", "0")):
            command = [sys.executable, "-m", "gputune.server", *where, *(("--device", device) if device else ())]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.terminate)
            assert process.stdout is not None
            lines = (re.match(r"gputune target server listening on (\S+) ", line) for line in process.stdout)
            address = next(match[1] for match in lines if match)
            clients.append(stack.enter_context(TargetClient.connect(*parse_address(address, "the server"))))
        yield clients[0], clients[1]


def _context(folder: Path, nbytes: int, device: str | None) -> Path:
    """A graph of one Relu on a tensor of so many bytes."""
    path = folder / f"relu_{nbytes}" / "context.bin"
    if not path.exists():
        info = onnx.helper.make_tensor_value_info
        x, y = (info(name, onnx.TensorProto.FLOAT, [1, nbytes // 4]) for name in "xy")
        node = onnx.helper.make_node("Relu", ["x"], ["y"], name="relu")
        graph = onnx.helper.make_graph([node], "relu", [x], [y])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
        file = folder / f"relu_{nbytes}.onnx"
        onnx.save(model, file)
        tool.generate(path.parent, file, f"x=1,{nbytes // 4}", "none", None, device)
    return path


def _shown(microseconds: list[float]) -> str:
    low, middle, high = statistics.quantiles(microseconds, n=4)
    return f"{middle:.0f} us ({low:.0f} to {high:.0f})"

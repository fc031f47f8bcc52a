"""Record today's tuning spaces as far as time allows, and what the compiler says about some variants.

Each task gets an equal share of the time: its default, its starters, then the estimate's best and others at random in
turns. Recordings are for
`--device replay:FOLDER`. For the best, worst and default variant of each, the compiler's log and its binary come back.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from gpu.device import Device, cl
from gpu.record import Record, brief, run
from gputune.client.model.plan import Task
from gputune.client.progress import reporting
from gputune.client.target.connecting import choose_target
from gputune.core.dtypes import HALF
from gputune.kernels.family import Launch
from gputune.kernels.indexing.steps import Places
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.runtime.devices import recording
from gputune.runtime.devices.recording import Row
from recording.recorder import Recorder, Way

LOGS_S = 8.0
"""Kept back for the compiler's logs."""
LEAST_S = 0.5
"""No task is begun with less."""
MOST, LIKELY = 400, 100
WAY = Way(sample=MOST, samples=9, sample_ns=500_000, warm_up_ns=20_000_000, cold=False, likely=LIKELY)
BUILDERS = 8


def _conv(side: int, channels: int) -> ConvProblem:
    return ConvProblem(1, side, side, channels, channels, (3, 3), pads=(1, 1, 1, 1), bias=True)


_HEADS, _ROWS, _DEPTH = 12, 197, 64
_HEAD = _ROWS * _DEPTH
_SCORES = Places((_HEADS,), (_HEAD, _DEPTH, 1), (_HEAD, 1, _DEPTH), (_ROWS * _ROWS, _ROWS, 1), (_HEADS * _HEAD,) * 2)
_ATTENTION = MatMulProblem(_ROWS, _DEPTH, _ROWS, places=_SCORES)
IN_HALF = "_half"
"""The end of the names of what stores float16."""
TASKS: dict[str, Task] = {
    "gemm_1024": Task("MatMul", MatMulProblem(1024, 1024, 1024), 1),
    f"gemm_1024{IN_HALF}": Task("MatMul", MatMulProblem(1024, 1024, 1024, dtype=HALF), 1),
    "conv_14x14x256": Task("Conv", _conv(14, 256), 1),
    "conv_56x56x64": Task("Conv", _conv(56, 64), 1),
    "skinny_1x4096x4096": Task("MatMul", MatMulProblem(1, 4096, 4096), 1),
    f"skinny_1x4096x4096{IN_HALF}": Task("MatMul", MatMulProblem(1, 4096, 4096, dtype=HALF), 1),
    "conv_7x7x512": Task("Conv", _conv(7, 512), 1),
    "softmax_1x1000": Task("Softmax", SoftmaxProblem(1, 1000, 1), 1),
    "depthwise_56x56x144": Task(
        "DepthwiseConv", DepthwiseProblem(1, 56, 56, 144, (3, 3), pads=(1, 1, 1, 1), bias=True), 1
    ),
    "conv_28x28x128": Task("Conv", _conv(28, 128), 1),
    "squeeze_55x55x96_16": Task("MatMul", MatMulProblem(55 * 55, 96, 16, bias=True), 1),
    "attention_12x197x64": Task("MatMul", _ATTENTION, 1),
    "gemm_512": Task("MatMul", MatMulProblem(512, 512, 512), 1),
    "gemm_4096": Task("MatMul", MatMulProblem(4096, 4096, 4096), 1),
}
REHEARSED, REHEARSED_S = ("softmax_1x1000",), 1.0


def main(record: Record) -> None:
    """Records task by task on one server, then asks the compiler."""
    os.environ.setdefault("CUDA_CACHE_DISABLE", "1")  # what compiling takes is a part of a recording
    names = REHEARSED if record.rehearse else tuple(TASKS)
    chosen: list[tuple[str, Launch]] = []
    with reporting(sys.stderr, "warn") as progress:
        target = choose_target(None, os.environ, None, log_level="warn", notice=logging.warning)
        with target, target.connect() as client:
            for place, name in enumerate(names):
                seconds = (record.left - LOGS_S) / (len(names) - place)
                if seconds < LEAST_S:
                    break
                end = time.monotonic() + (min(seconds, REHEARSED_S) if record.rehearse else seconds)
                try:
                    path = record.folder / f"{name}{recording.SUFFIX}"
                    recorder = Recorder(client, TASKS[name], path, WAY, progress)
                    recorder.run(functools.partial(_before, end))
                    chosen += [(f"{name}_{which}", launch) for which, launch in _kept(record, name, recorder).items()]
                except Exception as error:
                    record.put("recordings", name, value={"failed": brief(error)})
                    record.say(f"{name}: {brief(error)}")
    _logs(record, chosen)


def _before(end: float) -> bool:
    return time.monotonic() < end


def _kept(record: Record, name: str, recorder: Recorder) -> dict[str, Launch]:
    """Tells what a recording holds; the launches of its default, best and worst variant."""
    rows = recording.read(record.folder / f"{name}{recording.SUFFIX}").rows
    names = recorder.header.parameters
    right = sorted((row for row in rows if row.status == "ok"), key=_us)
    statuses: dict[str, int] = {}
    for row in rows:
        statuses[row.status] = statuses.get(row.status, 0) + 1
    default = next((row for row in rows if dict(zip(names, row.values, strict=True)) == recorder.search.default), None)
    picked = {"default": default, **({"best": right[0], "worst": right[-1]} if right else {})}
    told: dict[str, Any] = {"rows": len(rows), "space": recorder.header.space_size, "statuses": statuses}
    told |= {f"{which}_us": _us(row) for which, row in picked.items() if row is not None and row.status == "ok"}
    told["best"] = dict(zip(names, right[0].values, strict=True)) if right else None
    record.put("recordings", name, value=told)
    work = recorder.search.family.work(recorder.search.task.problem)
    rate = work.flops / told["best_us"] / 1e6 if right else 0.0
    shown = ", ".join(f"{which} {told.get(f'{which}_us')}" for which in ("default", "best", "worst"))
    record.say(f"{name}: {len(rows)} of {told['space']}, us: {shown}; {rate:.2f} TFLOP/s; {statuses}")
    launches = {}
    for which, one in picked.items():
        if one is not None:
            configuration = dict(zip(names, one.values, strict=True))
            launches[which] = recorder.search.rendered(configuration).main
    return launches


def _us(row: Row) -> float:
    return round(statistics.median(row.samples_ns) / 1e3, 3) if row.samples_ns else float("inf")


def _logs(record: Record, chosen: list[tuple[str, Launch]]) -> None:
    """Builds variants on all cores; keeps what the compiler says of each, and its binary in a file."""
    device = Device()
    option = "-cl-nv-verbose" if device.nvidia else ""

    def build(one: tuple[str, Launch]) -> tuple[str, dict[str, Any]]:
        name, launch = one
        start = time.perf_counter()
        try:
            program = device.build(launch.source, f"{launch.options} {option}".strip())
        except Exception as error:
            return name, {"failed": brief(error)}
        if device.gpu:
            (record.folder / f"{name}.ptx").write_bytes(program.get_info(cl.program_info.BINARIES)[0])
        lines = [line.strip() for line in device.log_of(program).splitlines() if line.strip()]
        sizes = {"global": launch.global_size, "local": launch.local_size}
        return name, {**sizes, "log": lines[-12:], "build_s": round(time.perf_counter() - start, 3)}

    (record.folder / "launches.json").write_text(json.dumps({name: asdict(launch) for name, launch in chosen}))
    with ThreadPoolExecutor(BUILDERS) as threads:
        for name, told in threads.map(build, chosen):
            record.put("logs", name, value=told)


if __name__ == "__main__":
    run(main)

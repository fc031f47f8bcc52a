"""Measure products of networks by CLBlast and by gputune's defaults and starters, in turns, by the host's clock.

CLBlast is found as libclblast.so.1, or as the file that CLBLAST names. Debian's package libclblast1 has it. CLBlast
brings its own tuned parameters. A call may launch several kernels, and so may a configuration whose reduction is split:
the time of a call counts when many follow each other. Results are compared with numpy's.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gpu.device import Device, cl, in_turns
from gpu.estimated import limits_of
from gpu.record import Record, brief, run, spread
from gputune.kernels.family import Launch, Stage
from gputune.kernels.ops.matmul import FAMILY, MatMulProblem

LIBRARY = "CLBLAST"
PRODUCTS = (
    (1024, 1024, 1024),
    (1, 4096, 4096),
    (3025, 128, 16),
    (3136, 64, 256),
    (784, 512, 128),
    (196, 256, 1024),
    (49, 2048, 512),
    (128, 384, 1536),
    (197, 768, 768),
    (512, 512, 512),
)
STARTERS, CALLS, ROUNDS = 5, 20, 7
ROW_MAJOR, AS_IT_IS = 101, 111
TOLERANCE = 1e-4

Call = Callable[[], Any]


def main(record: Record) -> None:
    """Times product by product; a product that fails costs itself."""
    try:
        library = ctypes.CDLL(os.environ.get(LIBRARY, "libclblast.so.1"))
    except OSError as error:
        record.put("error", "clblast", value=brief(error))
        record.say(f"CLBlast cannot be loaded; {LIBRARY} may name the file of Debian's libclblast1")
        return
    device = Device()
    for shape in PRODUCTS[-1:] if record.rehearse else PRODUCTS:
        name = "x".join(map(str, shape))
        if record.left > 2:
            try:
                found: Any = _product(record, device, library, shape)
            except Exception as error:
                found = brief(error)
            record.put("products", name, value=found)
            record.say(f"{name}: {found}")


def _product(record: Record, device: Device, library: Any, shape: tuple[int, int, int]) -> dict[str, Any]:
    problem, chance = MatMulProblem(*shape), np.random.default_rng(1)
    m, k, n = shape
    a, b = (chance.standard_normal(size, dtype=np.float32) for size in ((m, k), (k, n)))
    inputs = {"a": device.upload(a), "b": device.upload(b)}
    output = device.empty(4 * m * n)
    contenders = {"clblast": _clblast(device, library, shape, [inputs["a"], inputs["b"], output])}
    limits = limits_of(_facts(device))
    chosen = [FAMILY.default(problem, limits), *FAMILY.starters(problem, limits)[:STARTERS]]
    for number, one in enumerate(chosen[:2] if record.rehearse else chosen):
        instance = FAMILY.rendered(problem, one, limits)
        made = {name: device.empty(size) for name, size in {**instance.packed, **instance.scratch}.items()}
        buffers = {**inputs, **made, "output": output}
        for launch in instance.prepare:
            for call in _calls(device, launch, buffers):
                call()
        calls = list(_calls(device, instance.main, buffers))
        contenders["default" if number == 0 else f"starter {number}"] = functools.partial(_all, calls)
    want = a @ b
    for name, call in contenders.items():
        call()
        got = device.read(output, np.float32, m * n).reshape(m, n)
        off = float(np.abs(got - want).max() / np.abs(want).max())
        if off > TOLERANCE:
            raise ValueError(f"{name} is off by {off:.1e}")
    timed = {name: functools.partial(device.wall_us, call, CALLS) for name, call in contenders.items()}
    found = in_turns(timed, 2 if record.rehearse else ROUNDS, lambda: record.left - 1)
    return {name: spread(samples) if isinstance(samples, list) else samples for name, samples in found.items()}


def _facts(device: Device) -> dict[str, Any]:
    names = ("MAX_WORK_GROUP_SIZE", "LOCAL_MEM_SIZE", "GLOBAL_MEM_SIZE", "MAX_COMPUTE_UNITS")
    return {name: device.device.get_info(getattr(cl.device_info, name)) for name in names}


def _all(calls: Iterable[Call]) -> None:
    for call in calls:
        call()


def _calls(device: Device, launch: Launch, buffers: dict[str, Any]) -> Iterable[Call]:
    """Yield what enqueues each kernel of a launch."""
    program = device.build(launch.source, launch.options)
    kernels: tuple[Stage | Launch, ...] = launch.sequence
    for each in kernels:
        arguments = [buffers[one] if isinstance(one, str) else np.int32(one) for one in each.arguments]
        kernel = device.kernel(program, each.entry, *arguments)
        sizes = tuple(each.global_size), tuple(each.local_size)
        yield functools.partial(cl.enqueue_nd_range_kernel, device.queue, kernel, *sizes)


def _clblast(device: Device, library: Any, shape: tuple[int, int, int], buffers: list[Any]) -> Call:
    """Return what enqueues CLBlast's product of row-major matrices."""
    m, k, n = (ctypes.c_size_t(size) for size in shape)
    a, b, c = (ctypes.c_void_p(buffer.int_ptr) for buffer in buffers)
    zero, queue = ctypes.c_size_t(0), ctypes.c_void_p(device.queue.int_ptr)
    one, nothing = ctypes.c_float(1.0), ctypes.c_float(0.0)

    def call() -> None:
        code = library.CLBlastSgemm(
            *(ROW_MAJOR, AS_IT_IS, AS_IT_IS, m, n, k, one),
            *(a, zero, k, b, zero, n, nothing, c, zero, n, ctypes.byref(queue), None),
        )
        if code:
            raise OSError(code, f"CLBlastSgemm: error {code}")

    return call


if __name__ == "__main__":
    run(main)

"""Find out when a process crashes that closes contexts whose inferences ran in a thread that has ended.

Several forms run, each in a process of its own; the phase says where in C each crashed.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from gpu.device import PROGRAMS, Device, cl
from gpu.record import Record, brief, run
from gputune import runtime
from models import tune_models

FORM = "--form"
FORM_S = 14.0
AT_ONCE = 4
INFERENCES = 3


def main(record: Record) -> None:
    """Makes a context where none is left from the models, then runs the forms, several at a time."""
    library = record.folder / "backtrace.so"
    command = ["cc", "-O1", "-g", "-shared", "-fPIC", "-o", str(library), str(PROGRAMS / "backtrace.c")]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        record.put("error", "cc", value=built.stderr[-300:])
    contexts = _contexts(record)
    record.put("contexts", value=[path.name for path in contexts])
    names = list(FORMS)[:3] if record.rehearse else [*FORMS, *FORMS]  # twice: it may not happen each time
    with ThreadPoolExecutor(2 if record.rehearse else AT_ONCE) as threads:
        for name, found in zip(
            names, threads.map(lambda name: _ended(name, contexts, library, record), names), strict=True
        ):
            record.put("forms", name, value=[*(record.get("forms", name) or []), found])
    if library.exists():
        library.unlink()
    for name, found in (record.get("forms") or {}).items():
        record.say(f"{name}: exit codes {[one['code'] for one in found]}")


def _contexts(record: Record) -> list[Path]:
    """Two contexts: those of the models that are there, else one that is made now, twice."""
    folder = record.folder.parent / "contexts"
    left = sorted(folder.glob("*.bin"), key=lambda path: path.stat().st_size) if folder.is_dir() else []
    left = [path for path in left if not path.name.endswith("_schematic.bin")]
    if not left:
        model = tune_models.small()
        command = [sys.executable, "-m", "gputune", "context-binary-generator", "--model", str(model.path)]
        command += ["--binary_file", "small", "--output_dir", str(folder), "--tuning_effort", "none"]
        subprocess.run(command, check=True, timeout=max(record.left, 1))
        left = [folder / "small.bin"]
    return (left * 2)[:2]


def _ended(name: str, contexts: list[Path], library: Path, record: Record) -> dict[str, Any]:
    """How the process of a form ended, and what it said last."""
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "gpu.phases.crash",
        FORM,
        name,
        str(library),
        *map(str, contexts),
    ]
    seconds = min(FORM_S, record.left)
    if seconds < 1:
        return {"code": None, "said": "no time left"}
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"code": None, "said": f"no end within {seconds:.0f} s"}
    told = {"code": done.returncode, "seconds": round(time.monotonic() - start, 1), "said": done.stdout[-300:]}
    return told | ({"stack": done.stderr[:6000]} if done.returncode else {})


# --- the forms ---


def _run_all(executors: list[Any]) -> None:
    for executor in executors:
        inputs = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in executor.graph.inputs}
        for _ in range(INFERENCES):
            executor.run(inputs)


def _in_thread(work: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def _group(paths: list[Path], streams: int = 1) -> Any:
    return runtime.load_group(paths, names=["c0", "c1"], streams=streams)


def _members(group: Any) -> list[Any]:
    return [group[name] for name in ("c0", "c1")]


def same_thread(paths: list[Path]) -> None:
    """The control: all in one thread."""
    group = _group(paths)
    _run_all(_members(group))
    group.close()


def ended_thread(paths: list[Path]) -> None:
    """Inferences in a thread that has ended, then the group is closed."""
    group = _group(paths)
    _in_thread(lambda: _run_all(_members(group)))
    group.close()


def two_streams(paths: list[Path]) -> None:
    """The same with two queues."""
    group = _group(paths, streams=2)
    _in_thread(lambda: _run_all([*group.executors("c0"), *group.executors("c1")]))
    group.close()


def living_thread(paths: list[Path]) -> None:
    """The thread of the inferences still lives when the group is closed."""
    group, ran, closed = _group(paths), threading.Event(), threading.Event()

    def work() -> None:
        _run_all(_members(group))
        ran.set()
        closed.wait()

    thread = threading.Thread(target=work)
    thread.start()
    ran.wait()
    group.close()
    closed.set()
    thread.join()


def also_here(paths: list[Path]) -> None:
    """Inferences in a thread that has ended, then more in this one, then the group is closed."""
    group = _group(paths)
    _in_thread(lambda: _run_all(_members(group)))
    _run_all(_members(group))
    group.close()


def never_closed(paths: list[Path]) -> None:
    """Inferences in a thread that has ended; the process just ends."""
    group = _group(paths)
    _in_thread(lambda: _run_all(_members(group)))
    os.environ["KEPT"] = str(id(group))


def one_context(paths: list[Path]) -> None:
    """One context without a group."""
    with runtime.load(paths[0]) as executor:
        _in_thread(lambda: _run_all([executor]))


def plain_calls(paths: list[Path]) -> None:
    """No gputune: launches on parts of a buffer with events, in a thread that has ended; then all is released here."""
    device = Device(profiling=False)
    arena = device.empty(1 << 20)
    parts = [arena.get_sub_region(number * 4096, 4096) for number in range(16)]
    program = device.build(
        "__kernel void k(__global float *a, __global float *b) { b[get_global_id(0)] = a[get_global_id(0)]; }"
    )
    kernels = [device.kernel(program, "k", parts[number], parts[number + 1]) for number in range(15)]

    def work() -> None:
        for kernel in kernels:
            cl.enqueue_nd_range_kernel(device.queue, kernel, (64,), (64,))
        device.queue.finish()

    _in_thread(work)
    kernels.clear()
    parts.clear()
    arena.release()


FORMS: dict[str, Callable[[list[Path]], None]] = {
    form.__name__: form
    for form in (
        *(ended_thread, same_thread, plain_calls, two_streams),
        *(living_thread, also_here, never_closed, one_context),
    )
}


def _form(name: str, library: str, *paths: str) -> None:
    try:
        FORMS[name]([Path(path) for path in paths])
        print("closed", flush=True)
    except Exception as error:
        print(brief(error), flush=True)
        raise


if __name__ == "__main__":
    if FORM in sys.argv:
        if Path(sys.argv[3]).exists():
            _held = ctypes.CDLL(sys.argv[3])
        _form(*sys.argv[2:])
    else:
        run(main)

"""Measure how many work-groups run at once, and how long a barrier of all of them takes. Every wait has a bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.device import PROGRAMS, Device, in_turns
from gpu.record import Record, run, spread

SIZES = (128, 256, 1024)
LOCAL_BYTES = (0, 16384, 45056)
THREADS_OF_A_UNIT = 2048
LOOKS = 4000
"""Of a group that counts the others: a few milliseconds."""
LIMIT = 200_000
"""Of a group that waits for the others: a tenth of a second or so, then the flag is raised."""
FORMS = {
    "mem_fence atomic": (0, 0, ""),
    "mem_fence volatile": (0, 1, ""),
    "ptx atomic": (1, 0, ""),
    "ptx relaxed": (1, 2, ""),
    "cl3 atomic": (2, 0, "-cl-std=CL3.0"),
    "cl3 volatile": (2, 1, "-cl-std=CL3.0"),
}


def main(record: Record) -> None:
    """Counts groups first, then times barriers, then waits for one group too many."""
    device = Device()
    source = (PROGRAMS / "barrier.cl").read_text()
    most: dict[int, int] = {}
    for items in SIZES:
        for local in LOCAL_BYTES:
            name = f"{items} items, {local} bytes"
            try:
                seen = _census(device, source, items, local, record.rehearse)
                record.put("groups_at_once", name, value=seen)
                most[items] = max(most.get(items, 0), seen["most"])
            except Exception as error:
                record.put("groups_at_once", name, value=str(error)[:300])
    record.say(f"groups at once: {most}")
    forms = {name: form for name, form in FORMS.items() if device.nvidia or "ptx" not in name}
    units = device.units
    grids = ((units, 1),) if record.rehearse else ((units, 256), (2 * units, 256), (2 * units, 128), (units, 1024))
    for groups, items in grids:
        key = f"{groups} groups of {items}"
        found = {name: _built(device, source, form) for name, form in forms.items()}
        turns = {name: _timed(device, *one, groups, items, record) for name, one in found.items()}
        times = in_turns(turns, 3 if record.rehearse else 9, lambda: record.left - 3)
        for name, samples in times.items():
            told: Any = samples if isinstance(samples, str) else spread(samples)
            record.put("us_per_barrier", key, name, value=told)
        record.say(f"us per barrier, {key}: " + ", ".join(f"{name} {_median(one)}" for name, one in times.items()))
    record.attempt("look_ns", lambda: _looks(device, source, record.rehearse))
    if not record.rehearse and record.left > 2:
        groups = most.get(256, 4 * units) + 1
        record.put("one_too_many", value=_one_too_many(device, source, groups))


def _median(samples: Any) -> str:
    return "failed" if isinstance(samples, str) else f"{spread(samples).get('median')}"


def _census(device: Device, source: str, items: int, local: int, rehearse: bool) -> dict[str, Any]:
    """The most groups that any group has seen, of three launches with twice as many as could have room."""
    program = device.build(source, FENCE=0, READ=0, LOCAL=local)
    groups = 2 * device.units if rehearse else 2 * device.units * max(THREADS_OF_A_UNIT // items, 1)
    counts = []
    for _ in range(3):
        present, seen = device.upload(np.zeros(1, np.uint32)), device.upload(np.zeros(groups, np.uint32))
        looks = np.int32(200 if rehearse else LOOKS)
        us = device.event_us(device.kernel(program, "census", present, seen, looks), (groups * items,), (items,))
        counts.append((int(device.read(seen, np.uint32, groups).max()), round(us)))
    return {"launched": groups, "most": max(count for count, _ in counts), "seen and us": counts}


def _built(device: Device, source: str, form: tuple[int, int, str]) -> tuple[Any, str]:
    fence, read, options = form
    try:
        return device.build(source, options, FENCE=fence, READ=read, LOCAL=0), ""
    except Exception as error:
        return None, str(error)[-200:]


def _timed(device: Device, program: Any, why: str, groups: int, items: int, record: Record) -> Callable[[], float]:
    """Microseconds of a barrier: what 1000 rounds take more than one. Raises where something was read wrongly."""

    def once(rounds: int) -> float:
        state, cells = device.upload(np.zeros(4, np.uint32)), device.upload(np.zeros(2 * groups, np.uint32))
        kernel = device.kernel(program, "rounds", state, cells, np.int32(rounds), np.int32(LIMIT))
        us = device.event_us(kernel, (groups * items,), (items,))
        found = device.read(state, np.uint32, 4)
        if found[1] or found[2]:
            raise RuntimeError(f"flag {found[1]}, read wrongly {found[2]} times, {found[0]} arrivals, {us:.0f} us")
        return us

    def measure() -> float:
        if program is None:
            raise RuntimeError(why)
        rounds = 20 if record.rehearse else 1000
        return (once(rounds) - once(1)) / (rounds - 1)

    return measure


def _looks(device: Device, source: str, rehearse: bool) -> dict[str, Any]:
    """Nanoseconds of one look after the other at global memory, by way of looking."""
    ways = {"atomic": 0, "volatile": 1, **({"ptx relaxed": 2} if device.nvidia else {})}
    at, out, found = device.upload(np.zeros(4, np.uint32)), device.empty(4), {}
    count = 100 if rehearse else 2000
    for name, read in ways.items():
        program = device.build(source, FENCE=0, READ=read, LOCAL=0)
        kernel = device.kernel(program, "looks", at, out, np.int32(count))
        found[name] = spread([device.event_us(kernel, (1,), (1,)) * 1e3 / count for _ in range(5)], 1)
    return found


def _one_too_many(device: Device, source: str, groups: int) -> dict[str, Any]:
    """What happens with one group more than run at once: the flag, and when all have left."""
    program = device.build(source, FENCE=0, READ=0, LOCAL=0)
    state, cells = device.upload(np.zeros(4, np.uint32)), device.upload(np.zeros(2 * groups, np.uint32))
    kernel = device.kernel(program, "rounds", state, cells, np.int32(3), np.int32(LIMIT // 4))
    us = device.event_us(kernel, (groups * 256,), (256,))
    arrivals, flag, wrong, _ = device.read(state, np.uint32, 4).tolist()
    return {"groups": groups, "us": round(us), "arrivals": arrivals, "flag": flag, "wrong": wrong}


if __name__ == "__main__":
    run(main)

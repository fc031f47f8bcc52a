"""Decide when a device throttles because of heat, and how long tuning waits for it.

The module is pure: it takes states as runtime.device_state reads them, or whatever a server sent, and returns seconds.
The tuner does the waiting.
"""

from collections.abc import Mapping

NEAR_LIMIT_C = 2.0
FALLEN = 0.85
"""A clock below this share of what it was has fallen."""
HOT_C = 60.0
"""The hottest place of a device that throttles is hotter than this; below it, a clock falls for another reason."""
BUSY_PERCENT = 50.0
BUSY_TASKS = 0.5

FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 60.0
USELESS_PAUSES = 6
"""After so many pauses in a row, 195 s in all, that is how the device is: more of them would not help."""

_THROTTLES, _STEPS = "throttles", "cooling_steps"
_RISES = {_THROTTLES: "heat slowed it down {:.0f} times", _STEPS: "heat slows it down by {:.0f} steps more"}
_CPU_MHZ = "cpu_mhz_max"
_CPU_LOAD = "load_1_minute"


def throttled(before: Mapping[str, object], after: Mapping[str, object]) -> str | None:
    """Return what says that heat slowed the device down between two of its states, about "it"; None where nothing does.

    A clock counts where the device is known to have been busy both times, because a governor lowers the clock of one
    without work, too, and where it is hot; a CPU's only where its temperature can be read.
    """
    was, now = _numbers(before), _numbers(after)
    for name, meaning in _RISES.items():
        if name in was and name in now and now[name] > was[name]:
            return meaning.format(now[name] - was[name])
    headroom_c = now.get("temperature_headroom_c")
    if headroom_c is not None and headroom_c <= NEAR_LIMIT_C:
        return f"its temperature is {headroom_c:.1f} C below the limit"
    for name in sorted(_clocks(was) & _clocks(now)):
        if now[name] < FALLEN * was[name] and _busy(name, was) and _busy(name, now) and _hot(name, now):
            return f"its clock {name} fell from {was[name]:.0f} to {now[name]:.0f}"
    return None


class Cooling:
    """How long to wait before the next batch. One for each target, for as long as it is used.

    reason: why the last call asked for a pause, as throttled says it; empty when it asked for none.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._best: dict[str, float] = {}
        self._pauses = 0

    def after(self, state: Mapping[str, object]) -> float:
        """Seconds to wait after a batch, 0 for none. `state` is its reply's: the device "before" and "after".

        What was counted is compared over the batch, steps and clocks with the best that a batch has begun or ended
        with: a device that is hot already when a batch begins is as slow at its end. Pauses grow while they do not
        help, up to a limit, and end when enough of them have not, until the device has been well once.
        """
        before, after = _part(state, "before"), _part(state, "after")
        for part in (before, after):
            if _STEPS in part:
                self._best[_STEPS] = min(part[_STEPS], self._best.get(_STEPS, part[_STEPS]))
        counted = {_THROTTLES: before[_THROTTLES]} if _THROTTLES in before else {}
        reason = throttled(self._best | counted, after)
        for name in _clocks(after):
            if _busy(name, after):
                load = _load_name(name)
                self._best[load] = after[load]
                self._best[name] = max(after[name], self._best.get(name, 0.0))
        self._pauses = 0 if reason is None else self._pauses + 1
        if reason is None or self._pauses > USELESS_PAUSES:
            self.reason = ""
            return 0.0
        self.reason = reason
        return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** (self._pauses - 1))


def _part(state: Mapping[str, object], name: str) -> dict[str, float]:
    part = state.get(name)
    return _numbers(part) if isinstance(part, Mapping) else {}


def _numbers(state: Mapping[str, object]) -> dict[str, float]:
    return {name: float(value) for name, value in state.items() if isinstance(value, int | float)}


def _clocks(state: Mapping[str, float]) -> set[str]:
    return {name for name in state if name == _CPU_MHZ or name.endswith("_mhz")}


def _load_name(clock: str) -> str:
    return _CPU_LOAD if clock == _CPU_MHZ else clock.removesuffix("_mhz") + "_busy_percent"


def _busy(clock: str, state: Mapping[str, float]) -> bool:
    return state.get(_load_name(clock), 0.0) >= (BUSY_TASKS if clock == _CPU_MHZ else BUSY_PERCENT)


def _hot(clock: str, state: Mapping[str, float]) -> bool:
    own = clock.removesuffix("_mhz") + "_temperature_c"
    temperature_c = state.get(own, state.get("temperature_c"))
    return clock != _CPU_MHZ if temperature_c is None else temperature_c >= HOT_C

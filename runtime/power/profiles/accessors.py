"""Provide setters and getters of a perf profile under the names of the original's API, made from one table.

accessors.pyi has their types; scripts/docs writes it from the table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

from gputune.runtime.power.profiles.settings import (
    GENERAL,
    KINDS,
    MAX_HYSTERESIS_US,
    PHASES,
    Count,
    Moment,
    Phase,
    Value,
    accept,
    kind_of,
)
from gputune.runtime.power.records import Corner

_Rail: TypeAlias = Literal["BUS", "CORE"]
_End: TypeAlias = Literal["MIN", "TARGET", "MAX"]
_RAILS: tuple[_Rail, ...] = ("BUS", "CORE")
_ENDS: tuple[_End, ...] = ("MIN", "TARGET", "MAX")
_MOMENTS: tuple[Moment, ...] = ("start", "done")
_HYSTERESIS_MS = Count(0, MAX_HYSTERESIS_US // 1000, "ms")


def _corner_key(rail: _Rail, end: _End, moment: Moment) -> str:
    return f"{rail}_VOLTAGE_CORNER_{end}_{moment.upper()}"


OF_ALL = {
    "enable_async_voting": "ASYNC_VOTING_ENABLE",
    "dsp_hysteresis_time_us": "DSP_HYSTERESIS_TIME_US",
    "sleep_disable": "DSP_SLEEP_DISABLE_MS",
    "dsp_rpc_polling_time": "DSP_RPC_POLLING_TIME_US",
}
"""The settings of all phases together, by their names in the API."""
OF_PHASE = {
    "enable_dcvs_start": "DSP_ENABLE_DCVS_START",
    "enable_dcvs_done": "DSP_ENABLE_DCVS_DONE",
    "sleep_latency_start": "DSP_SLEEP_LATENCY_START_US",
    "sleep_latency_done": "DSP_SLEEP_LATENCY_DONE_US",
    "high_performance_mode": "HIGH_PERFORMANCE_MODE",
    "power_mode_start": "POWERMODE_START",
    "power_mode_done": "POWERMODE_DONE",
    **{
        f"{rail.lower()}_voltage_corner_{end.lower()}{'_mv' if rail == 'CORE' else ''}_{moment}": _corner_key(
            rail, end, moment
        )
        for rail in _RAILS
        for end in _ENDS
        for moment in _MOMENTS
    },
}
"""Those of a phase. The order of corners, min <= target <= max, is checked when a profile is applied or saved."""
OF_BOTH: dict[str, tuple[_End, Moment]] = {
    f"dcvs_voltage_corner_dcvs_v_corner_{end.lower()}_{moment}": (end, moment) for end in _ENDS for moment in _MOMENTS
}
"""One corner for bus and core, of devices that do not tell the two apart. A setter sets both, and lets the other two
corners follow as far as min <= target <= max demands; a getter tells of the core."""


class Accessors:
    """Set and get values by section and key. Setters without a phase set init, execute and deinit alike, as the
    original's do; getters return one phase's value. Setters raise ValueError for a value out of range, and then change
    nothing."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, Value]] = {
            section: {key: kind.default for key, kind in kinds.items() if kind.default is not None}
            for section, kinds in KINDS.items()
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        action, _, setting = name.partition("_")
        if action == "set" and setting in OF_ALL:
            return partial(self.set_value, GENERAL, OF_ALL[setting])
        if action == "get" and setting in OF_ALL:
            return partial(self.value, GENERAL, OF_ALL[setting])
        if action == "set" and setting in OF_PHASE:
            return partial(self._set, OF_PHASE[setting])
        if action == "set" and setting in OF_BOTH:
            return partial(self._set_both, *OF_BOTH[setting])
        if action == "get" and setting in OF_PHASE:
            return partial(self._get, OF_PHASE[setting])
        if action == "get" and setting in OF_BOTH:
            return partial(self._get, _corner_key("CORE", *OF_BOTH[setting]))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def set_value(self, section: str, key: str, value: object) -> None:
        """Set a setting by its name in the original's YAML files. Raises ValueError with section, key and reason."""
        self._values[section][key] = accept(section, key, value)

    def value(self, section: str, key: str) -> Value | None:
        """Return a setting by its name in the original's YAML files, or None if it is open. Raises ValueError for an
        unknown setting."""
        kind_of(section, key)
        return self._values[section].get(key)

    def set_dsp_hysteresis_time(self, time_ms: int) -> None:
        """Set the hysteresis in milliseconds, the unit of the original's API; its YAML files have microseconds."""
        self.set_value(GENERAL, OF_ALL["dsp_hysteresis_time_us"], _HYSTERESIS_MS.accept(time_ms) * 1000)

    def get_dsp_hysteresis_time(self) -> int:
        """Return the hysteresis in whole milliseconds, rounded down."""
        time_us = self.value(GENERAL, OF_ALL["dsp_hysteresis_time_us"])
        assert isinstance(time_us, int)
        return time_us // 1000

    def _get(self, key: str, phase: Phase = "execute") -> Value | None:
        return self.value(phase, key)

    def _set(self, key: str, value: object, phase: Phase | None = None) -> None:
        accepted = accept(phase or "execute", key, value)
        for each in PHASES if phase is None else (phase,):
            self.set_value(each, key, accepted)

    def _set_both(self, end: _End, moment: Moment, corner: Corner | str, phase: Phase | None = None) -> None:
        """One corner of bus and core; the other two follow as far as min <= target <= max demands."""
        own = _ENDS.index(end)
        for rail in _RAILS:
            self._set(_corner_key(rail, end, moment), corner, phase)
            for each in PHASES if phase is None else (phase,):
                limit = self._corner(each, _corner_key(rail, end, moment))
                for place, other in enumerate(_ENDS):
                    self._follow(each, _corner_key(rail, other, moment), limit, place - own)

    def _follow(self, phase: Phase, key: str, limit: Corner, side: int) -> None:
        """Move a corner above (side > 0) or below (side < 0) one that was set. DISABLE has no place in the order."""
        corner = self._corner(phase, key)
        if Corner.DISABLE not in (corner, limit) and (limit - corner) * side > 0:
            self.set_value(phase, key, limit)

    def _corner(self, phase: Phase, key: str) -> Corner:
        value = self.value(phase, key)
        assert isinstance(value, Corner)
        return value

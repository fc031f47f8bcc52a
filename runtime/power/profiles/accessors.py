"""Provide setters and getters of a perf profile under the names of the original's API."""

from __future__ import annotations

from typing import Literal, TypeAlias

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
from gputune.runtime.power.records import Corner, PowerMode

_Rail: TypeAlias = Literal["BUS", "CORE"]
_End: TypeAlias = Literal["MIN", "TARGET", "MAX"]
_RAILS: tuple[_Rail, ...] = ("BUS", "CORE")
_ENDS: tuple[_End, ...] = ("MIN", "TARGET", "MAX")
_HYSTERESIS_MS = Count(0, MAX_HYSTERESIS_US // 1000, "ms")


class Accessors:
    """Set and get values by section and key. Setters without a phase set init, execute and deinit alike, as the
    original's do; getters return one phase's value. Setters raise ValueError for a value out of range, and then change
    nothing."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, Value]] = {
            section: {key: kind.default for key, kind in kinds.items() if kind.default is not None}
            for section, kinds in KINDS.items()
        }

    def set_value(self, section: str, key: str, value: object) -> None:
        """Set a setting by its name in the original's YAML files. Raises ValueError with section, key and reason."""
        self._values[section][key] = accept(section, key, value)

    def value(self, section: str, key: str) -> Value | None:
        """Return a setting by its name in the original's YAML files, or None if it is open. Raises ValueError for an
        unknown setting."""
        kind_of(section, key)
        return self._values[section].get(key)

    # Of all phases.

    def set_enable_async_voting(self, enable: bool) -> None:
        """Set whether votes are cast on a thread of their own."""
        self.set_value(GENERAL, "ASYNC_VOTING_ENABLE", enable)

    def get_enable_async_voting(self) -> bool:
        return self._flag(GENERAL, "ASYNC_VOTING_ENABLE")

    def set_dsp_hysteresis_time_us(self, time_us: int) -> None:
        """Set how long the start vote is held after an inference, at most a minute; 0 for no hysteresis."""
        self.set_value(GENERAL, "DSP_HYSTERESIS_TIME_US", time_us)

    def get_dsp_hysteresis_time_us(self) -> int:
        return self._count(GENERAL, "DSP_HYSTERESIS_TIME_US")

    def set_dsp_hysteresis_time(self, time_ms: int) -> None:
        """Set the hysteresis in milliseconds, the unit of the original's API; its YAML files have microseconds."""
        self.set_dsp_hysteresis_time_us(_HYSTERESIS_MS.accept(time_ms) * 1000)

    def get_dsp_hysteresis_time(self) -> int:
        """Return the hysteresis in whole milliseconds, rounded down."""
        return self.get_dsp_hysteresis_time_us() // 1000

    def set_sleep_disable(self, time_ms: int) -> None:
        """Set for how many milliseconds a device may not sleep once an inference has begun; 0 for no such demand."""
        self.set_value(GENERAL, "DSP_SLEEP_DISABLE_MS", time_ms)

    def get_sleep_disable(self) -> int:
        return self._count(GENERAL, "DSP_SLEEP_DISABLE_MS")

    def set_dsp_rpc_polling_time(self, time_us: int) -> None:
        """Set for how many microseconds, 0 to 9999, to poll for an answer of the device before waiting for it."""
        self.set_value(GENERAL, "DSP_RPC_POLLING_TIME_US", time_us)

    def get_dsp_rpc_polling_time(self) -> int:
        return self._count(GENERAL, "DSP_RPC_POLLING_TIME_US")

    # Of a phase.

    def set_enable_dcvs_start(self, enable: bool, phase: Phase | None = None) -> None:
        """Set whether a governor may scale the clocks between the corners of the start vote."""
        self._set("DSP_ENABLE_DCVS_START", enable, phase)

    def get_enable_dcvs_start(self, phase: Phase = "execute") -> bool:
        return self._flag(phase, "DSP_ENABLE_DCVS_START")

    def set_enable_dcvs_done(self, enable: bool, phase: Phase | None = None) -> None:
        """Set whether a governor may scale the clocks between the corners of the done vote."""
        self._set("DSP_ENABLE_DCVS_DONE", enable, phase)

    def get_enable_dcvs_done(self, phase: Phase = "execute") -> bool:
        return self._flag(phase, "DSP_ENABLE_DCVS_DONE")

    def set_sleep_latency_start(self, latency_us: int, phase: Phase | None = None) -> None:
        """Set how many microseconds, 10 to 65535, waking up may take from the start vote on."""
        self._set("DSP_SLEEP_LATENCY_START_US", latency_us, phase)

    def get_sleep_latency_start(self, phase: Phase = "execute") -> int | None:
        return self._latency(phase, "DSP_SLEEP_LATENCY_START_US")

    def set_sleep_latency_done(self, latency_us: int, phase: Phase | None = None) -> None:
        """Set how many microseconds, 10 to 65535, waking up may take from the done vote on."""
        self._set("DSP_SLEEP_LATENCY_DONE_US", latency_us, phase)

    def get_sleep_latency_done(self, phase: Phase = "execute") -> int | None:
        return self._latency(phase, "DSP_SLEEP_LATENCY_DONE_US")

    def set_high_performance_mode(self, enable: bool, phase: Phase | None = None) -> None:
        """Set whether the start vote requests all that a device keeps switched off to save power."""
        self._set("HIGH_PERFORMANCE_MODE", enable, phase)

    def get_high_performance_mode(self, phase: Phase = "execute") -> bool:
        return self._flag(phase, "HIGH_PERFORMANCE_MODE")

    def set_power_mode_start(self, mode: PowerMode | str, phase: Phase | None = None) -> None:
        """Set in which direction a governor may move the clocks from the start vote on."""
        self._set("POWERMODE_START", mode, phase)

    def get_power_mode_start(self, phase: Phase = "execute") -> PowerMode:
        return self._mode(phase, "POWERMODE_START")

    def set_power_mode_done(self, mode: PowerMode | str, phase: Phase | None = None) -> None:
        """Set in which direction a governor may move the clocks from the done vote on."""
        self._set("POWERMODE_DONE", mode, phase)

    def get_power_mode_done(self, phase: Phase = "execute") -> PowerMode:
        return self._mode(phase, "POWERMODE_DONE")

    # Corners. Their order, min <= target <= max, is checked when a profile is applied or saved.

    def set_bus_voltage_corner_min_start(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set("BUS_VOLTAGE_CORNER_MIN_START", corner, phase)

    def get_bus_voltage_corner_min_start(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "BUS_VOLTAGE_CORNER_MIN_START")

    def set_bus_voltage_corner_min_done(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set("BUS_VOLTAGE_CORNER_MIN_DONE", corner, phase)

    def get_bus_voltage_corner_min_done(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "BUS_VOLTAGE_CORNER_MIN_DONE")

    def set_bus_voltage_corner_target_start(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set("BUS_VOLTAGE_CORNER_TARGET_START", corner, phase)

    def get_bus_voltage_corner_target_start(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "BUS_VOLTAGE_CORNER_TARGET_START")

    def set_bus_voltage_corner_target_done(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set("BUS_VOLTAGE_CORNER_TARGET_DONE", corner, phase)

    def get_bus_voltage_corner_target_done(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "BUS_VOLTAGE_CORNER_TARGET_DONE")

    def set_bus_voltage_corner_max_start(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set("BUS_VOLTAGE_CORNER_MAX_START", corner, phase)

    def get_bus_voltage_corner_max_start(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "BUS_VOLTAGE_CORNER_MAX_START")

    def set_bus_voltage_corner_max_done(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set("BUS_VOLTAGE_CORNER_MAX_DONE", corner, phase)

    def get_bus_voltage_corner_max_done(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "BUS_VOLTAGE_CORNER_MAX_DONE")

    def set_core_voltage_corner_min_mv_start(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set("CORE_VOLTAGE_CORNER_MIN_START", corner, phase)

    def get_core_voltage_corner_min_mv_start(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "CORE_VOLTAGE_CORNER_MIN_START")

    def set_core_voltage_corner_min_mv_done(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set("CORE_VOLTAGE_CORNER_MIN_DONE", corner, phase)

    def get_core_voltage_corner_min_mv_done(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "CORE_VOLTAGE_CORNER_MIN_DONE")

    def set_core_voltage_corner_target_mv_start(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set("CORE_VOLTAGE_CORNER_TARGET_START", corner, phase)

    def get_core_voltage_corner_target_mv_start(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "CORE_VOLTAGE_CORNER_TARGET_START")

    def set_core_voltage_corner_target_mv_done(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set("CORE_VOLTAGE_CORNER_TARGET_DONE", corner, phase)

    def get_core_voltage_corner_target_mv_done(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "CORE_VOLTAGE_CORNER_TARGET_DONE")

    def set_core_voltage_corner_max_mv_start(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set("CORE_VOLTAGE_CORNER_MAX_START", corner, phase)

    def get_core_voltage_corner_max_mv_start(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "CORE_VOLTAGE_CORNER_MAX_START")

    def set_core_voltage_corner_max_mv_done(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set("CORE_VOLTAGE_CORNER_MAX_DONE", corner, phase)

    def get_core_voltage_corner_max_mv_done(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "CORE_VOLTAGE_CORNER_MAX_DONE")

    # One corner for bus and core, of devices that do not tell the two apart. A setter sets both, and lets the other two
    # corners follow as far as min <= target <= max demands; a getter tells of the core.

    def set_dcvs_voltage_corner_dcvs_v_corner_min_start(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set_both("MIN", "start", corner, phase)

    def get_dcvs_voltage_corner_dcvs_v_corner_min_start(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "CORE_VOLTAGE_CORNER_MIN_START")

    def set_dcvs_voltage_corner_dcvs_v_corner_min_done(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set_both("MIN", "done", corner, phase)

    def get_dcvs_voltage_corner_dcvs_v_corner_min_done(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "CORE_VOLTAGE_CORNER_MIN_DONE")

    def set_dcvs_voltage_corner_dcvs_v_corner_target_start(
        self, corner: Corner | str, phase: Phase | None = None
    ) -> None:
        self._set_both("TARGET", "start", corner, phase)

    def get_dcvs_voltage_corner_dcvs_v_corner_target_start(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "CORE_VOLTAGE_CORNER_TARGET_START")

    def set_dcvs_voltage_corner_dcvs_v_corner_target_done(
        self, corner: Corner | str, phase: Phase | None = None
    ) -> None:
        self._set_both("TARGET", "done", corner, phase)

    def get_dcvs_voltage_corner_dcvs_v_corner_target_done(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "CORE_VOLTAGE_CORNER_TARGET_DONE")

    def set_dcvs_voltage_corner_dcvs_v_corner_max_start(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set_both("MAX", "start", corner, phase)

    def get_dcvs_voltage_corner_dcvs_v_corner_max_start(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "CORE_VOLTAGE_CORNER_MAX_START")

    def set_dcvs_voltage_corner_dcvs_v_corner_max_done(self, corner: Corner | str, phase: Phase | None = None) -> None:
        self._set_both("MAX", "done", corner, phase)

    def get_dcvs_voltage_corner_dcvs_v_corner_max_done(self, phase: Phase = "execute") -> Corner:
        return self._corner(phase, "CORE_VOLTAGE_CORNER_MAX_DONE")

    def _set(self, key: str, value: object, phase: Phase | None) -> None:
        accepted = accept(phase or "execute", key, value)
        for each in PHASES if phase is None else (phase,):
            self.set_value(each, key, accepted)

    def _set_both(self, end: _End, moment: Moment, corner: Corner | str, phase: Phase | None) -> None:
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

    def _flag(self, section: str, key: str) -> bool:
        value = self.value(section, key)
        assert isinstance(value, bool)
        return value

    def _count(self, section: str, key: str) -> int:
        value = self.value(section, key)
        assert isinstance(value, int)
        return value

    def _latency(self, phase: Phase, key: str) -> int | None:
        return None if self.value(phase, key) is None else self._count(phase, key)

    def _corner(self, phase: Phase, key: str) -> Corner:
        value = self.value(phase, key)
        assert isinstance(value, Corner)
        return value

    def _mode(self, phase: Phase, key: str) -> PowerMode:
        value = self.value(phase, key)
        assert isinstance(value, PowerMode)
        return value


def _corner_key(rail: _Rail, end: _End, moment: Moment) -> str:
    return f"{rail}_VOLTAGE_CORNER_{end}_{moment.upper()}"

"""Define the ten preset perf profiles, one row each.

sustained_high_performance is the sample in the original's documentation of its low-level perf API. Corners, DCVS and
sleep latencies of the others are taken from ONNX Runtime's QNN execution provider
(onnxruntime/core/providers/qnn/builder/qnn_htp_power_config_manager.cc). Power modes, done votes and hysteresis, which
it does not have, follow the sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gputune.runtime.power.profiles.corner_names import nearest, shown
from gputune.runtime.power.profiles.settings import GENERAL, PHASES, Moment, Value
from gputune.runtime.power.records import Corner, Corners, PowerMode

_IDLE = Corners(Corner.SVS2, Corner.SVS, Corner.SVS)
_LOWEST = Corners(Corner.MIN, Corner.MIN, Corner.MIN)
_NONE = Corners()


@dataclass(frozen=True)
class Preset:
    """A row: the start vote of every phase, the done vote of init and execute, and that of deinit. Bus and core have
    the same corners. asks: False where there is no vote at all."""

    start: Corner = Corner.DISABLE
    dcvs: bool = True
    latency_us: int = 1000
    done: Corners = _IDLE
    after_deinit: Corners = _LOWEST
    done_latency_us: int = 2000
    power_mode: PowerMode = PowerMode.ADJUST_UP_DOWN
    high_performance: bool = False
    hysteresis_us: int = 0
    rpc_polling_us: int = 0
    asks: bool = True

    def values(self) -> Iterator[tuple[str, str, Value]]:
        """Section, key and value of everything that it sets."""
        yield GENERAL, "DSP_HYSTERESIS_TIME_US", self.hysteresis_us
        yield GENERAL, "DSP_RPC_POLLING_TIME_US", self.rpc_polling_us
        for phase in PHASES if self.asks else ():
            done = self.after_deinit if phase == "deinit" else self.done
            settings = {
                "DSP_ENABLE_DCVS_START": self.dcvs,
                "DSP_SLEEP_LATENCY_START_US": self.latency_us,
                "DSP_SLEEP_LATENCY_DONE_US": self.done_latency_us,
                "HIGH_PERFORMANCE_MODE": self.high_performance,
                "POWERMODE_START": self.power_mode,
                "POWERMODE_DONE": self.power_mode,
                **_corners(Corners(self.start, self.start, self.start), "start"),
                **_corners(done, "done"),
            }
            yield from ((phase, key, value) for key, value in settings.items())


PRESETS: Mapping[str, Preset] = {
    "burst": Preset(Corner.MAX, False, 40, high_performance=True, hysteresis_us=300_000, rpc_polling_us=9999),
    "sustained_high_performance": Preset(
        Corner.TURBO, False, 100, high_performance=True, hysteresis_us=300_000, rpc_polling_us=9999
    ),
    "high_performance": Preset(Corner.TURBO, False, 100, high_performance=True, rpc_polling_us=9999),
    "balanced": Preset(Corner.NOM_PLUS),
    "low_balanced": Preset(Corner.NOM),
    "high_power_saver": Preset(Corner.SVS_PLUS),
    "power_saver": Preset(Corner.SVS),
    "low_power_saver": Preset(Corner.SVS2, done=Corners(Corner.SVS2, Corner.SVS2, Corner.SVS2)),
    "extreme_power_saver": Preset(done=_NONE, after_deinit=_NONE, power_mode=PowerMode.POWER_SAVER),
    "system_settings": Preset(asks=False),
}
"""By name. system_settings asks for nothing: the system's own settings stay in force."""

_PREFIX = "SNPE_PERFORMANCE_PROFILE_"


def preset_name(name: str) -> str:
    """Return the name of a preset in the table, of its name in any case or in the original's spelling, such as
    SNPE_PERFORMANCE_PROFILE_BURST. Raises ValueError where there is none, with the nearest."""
    plain = name.upper().removeprefix(_PREFIX).lower()
    if plain not in PRESETS:
        raise ValueError(f"there is no perf profile {shown(name)}{nearest(plain, PRESETS)}")
    return plain


def _corners(corners: Corners, moment: Moment) -> dict[str, Value]:
    ends = {"MIN": corners.least, "TARGET": corners.target, "MAX": corners.most}
    return {
        f"{rail}_VOLTAGE_CORNER_{end}_{moment.upper()}": corner
        for rail in ("BUS", "CORE")
        for end, corner in ends.items()
    }

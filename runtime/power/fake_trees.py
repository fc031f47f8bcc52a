"""Create trees of the files that control each family of devices, for tests and for `gputune power --root`.

The files have the names and forms of the kernel's files. They are plain files, so they take any value.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_KGSL = "sys/class/kgsl/kgsl-3d0"
_MALI = "sys/class/devfreq/13000000.mali"
_DMC = "sys/class/devfreq/dmc"
_CARD = "sys/class/drm/card0"
_POLICY = "sys/devices/system/cpu/cpufreq/policy"

TREES: Mapping[str, Mapping[str, str]] = {
    "kgsl": {
        f"{_KGSL}/num_pwrlevels": "6\n",
        f"{_KGSL}/min_pwrlevel": "5\n",
        f"{_KGSL}/max_pwrlevel": "1\n",
        f"{_KGSL}/gpu_available_frequencies": "680000000 585000000 499200000 392000000 345000000 257000000 \n",
        f"{_KGSL}/gpuclk": "257000000\n",
        f"{_KGSL}/gpu_busy_percentage": "3 %\n",
        f"{_KGSL}/temp": "41500\n",
        f"{_KGSL}/force_clk_on": "0\n",
        f"{_KGSL}/force_bus_on": "0\n",
        f"{_KGSL}/force_rail_on": "0\n",
        f"{_KGSL}/force_no_nap": "0\n",
        f"{_KGSL}/idle_timer": "80\n",
        f"{_KGSL}/devfreq/governor": "msm-adreno-tz\n",
        f"{_KGSL}/devfreq/available_governors": "msm-adreno-tz powersave performance simple_ondemand\n",
        f"{_KGSL}/devfreq/min_freq": "257000000\n",
        f"{_KGSL}/devfreq/max_freq": "585000000\n",
    },
    "mali": {
        f"{_MALI}/governor": "simple_ondemand\n",
        f"{_MALI}/available_governors": "powersave performance simple_ondemand\n",
        f"{_MALI}/available_frequencies": "200000000 300000000 400000000 600000000 800000000\n",
        f"{_MALI}/min_freq": "200000000\n",
        f"{_MALI}/max_freq": "800000000\n",
        f"{_MALI}/cur_freq": "200000000\n",
    },
    "memory": {
        f"{_DMC}/governor": "dmc_ondemand\n",
        f"{_DMC}/available_governors": "dmc_ondemand powersave performance userspace\n",
        f"{_DMC}/available_frequencies": "528000000 1068000000 1560000000 2112000000\n",
        f"{_DMC}/min_freq": "528000000\n",
        f"{_DMC}/max_freq": "2112000000\n",
        f"{_DMC}/cur_freq": "528000000\n",
    },
    "i915": {
        f"{_CARD}/gt/gt0/rps_RPn_freq_mhz": "100\n",
        f"{_CARD}/gt/gt0/rps_RP0_freq_mhz": "1500\n",
        f"{_CARD}/gt/gt0/rps_min_freq_mhz": "100\n",
        f"{_CARD}/gt/gt0/rps_max_freq_mhz": "1500\n",
        f"{_CARD}/gt/gt0/rps_boost_freq_mhz": "1500\n",
        f"{_CARD}/gt/gt0/rps_act_freq_mhz": "0\n",
    },
    "i915_old": {
        f"{_CARD}/gt_RPn_freq_mhz": "300\n",
        f"{_CARD}/gt_RP0_freq_mhz": "1150\n",
        f"{_CARD}/gt_min_freq_mhz": "300\n",
        f"{_CARD}/gt_max_freq_mhz": "1150\n",
        f"{_CARD}/gt_boost_freq_mhz": "1150\n",
        f"{_CARD}/gt_act_freq_mhz": "300\n",
    },
    "xe": {
        f"{_CARD}/device/tile0/gt{gt}/freq0/{name}": content
        for gt, highest in ((0, "2400\n"), (1, "1300\n"))
        for name, content in (
            ("rpn_freq", "300\n"),
            ("rp0_freq", highest),
            ("min_freq", "300\n"),
            ("max_freq", highest),
            ("act_freq", "0\n"),
        )
    },
    "amdgpu": {
        f"{_CARD}/device/power_dpm_force_performance_level": "auto\n",
        f"{_CARD}/device/pp_dpm_sclk": "0: 500Mhz *\n1: 800Mhz\n2: 1200Mhz\n3: 1600Mhz\n4: 2100Mhz\n",
        f"{_CARD}/device/pp_dpm_mclk": "0: 96Mhz *\n1: 456Mhz\n2: 1000Mhz\n",
    },
    "cpufreq": {
        f"{_POLICY}{policy}/{name}": content
        for policy, listed in ((0, "600000 1000000 1400000 1800000"), (4, "800000 1200000 1600000 2000000 2400000"))
        for name, content in (
            ("scaling_available_frequencies", f"{listed} \n"),
            ("scaling_available_governors", "schedutil powersave performance \n"),
            ("scaling_governor", "schedutil\n"),
            ("scaling_min_freq", f"{listed.split()[0]}\n"),
            ("scaling_max_freq", f"{listed.split()[-1]}\n"),
            ("scaling_cur_freq", f"{listed.split()[0]}\n"),
        )
    },
    "pstate": {
        f"{_POLICY}0/cpuinfo_min_freq": "400000\n",
        f"{_POLICY}0/cpuinfo_max_freq": "4700000\n",
        f"{_POLICY}0/scaling_available_governors": "performance powersave\n",
        f"{_POLICY}0/scaling_governor": "powersave\n",
        f"{_POLICY}0/scaling_min_freq": "400000\n",
        f"{_POLICY}0/scaling_max_freq": "4700000\n",
        f"{_POLICY}0/scaling_cur_freq": "1200000\n",
        f"{_POLICY}0/energy_performance_preference": "balance_performance\n",
    },
}
"""The files of each family, by paths below a root."""

LATENCY = "dev/cpu_dma_latency"
NO_REQUEST_US = 2_000_000_000
"""What the file of the latency reads while there is no request."""


def make_tree(root: Path, *families: str) -> Path:
    """Write the files of some families below a root, of all without a name, and the file of the processors' latency.
    Return the root. i915_old and pstate are other forms of i915 and cpufreq, and are made by name only. Raises KeyError
    for a family that is none of TREES."""
    for family in families or [name for name in TREES if name not in ("i915_old", "pstate")]:
        for path, content in TREES[family].items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content, encoding="ascii")
    (root / LATENCY).parent.mkdir(parents=True, exist_ok=True)
    (root / LATENCY).write_bytes(NO_REQUEST_US.to_bytes(4, "little"))
    return root

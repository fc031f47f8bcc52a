"""Write the preset perf profiles as C has them, from runtime/power/profiles/presets.py."""

from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.presets import PRESETS
from gputune.runtime.power.profiles.settings import MOMENTS, PHASES

PATH = "runtime/native/src/power/presets.c"
HEAD = """\
/* The preset perf profiles. scripts/docs writes this file from runtime/power/profiles/presets.py: change that. */
#include "power.h"

const preset PRESETS[] = {
"""


def text() -> str:
    """Return the table of all presets."""
    return "".join([HEAD, *map(_row, PRESETS), "    {NULL, {{{{0}}}, {{{0}}}, 0, false}},\n};\n"])


def _row(name: str) -> str:
    profile = PerfProfile.from_preset(name)
    start, done = (
        ",".join(f"{{{{{','.join(map(str, profile.vote(phase, moment).places))}}}}}" for phase in PHASES)
        for moment in MOMENTS
    )
    rest = f"{profile.hysteresis_us}, {str(profile.async_voting).lower()}"
    return f'    {{"{name}",\n     {{{{{start}}},\n      {{{done}}}, {rest}}}}},\n'

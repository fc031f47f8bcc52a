"""Draw perf profiles at random."""

from hypothesis import strategies as st

from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.settings import KINDS, Count, Flag, Kind
from gputune.runtime.power.records import Corner, PowerMode

DISABLED_OR_NOT = st.lists(st.booleans(), min_size=3, max_size=3)
CORNERS = st.lists(st.sampled_from(list(Corner)[1:]), min_size=3, max_size=3).map(sorted)


def values(kind: Kind) -> st.SearchStrategy[object]:
    if isinstance(kind, Flag):
        return st.booleans()
    if isinstance(kind, Count):
        return st.integers(kind.least, kind.most)
    return st.sampled_from(PowerMode)


@st.composite
def profiles(draw: st.DrawFn) -> PerfProfile:
    """Any settings, some left as they are; corners in order."""
    profile = PerfProfile()
    for section, kinds in KINDS.items():
        for key, kind in kinds.items():
            if "CORNER" not in key and draw(st.booleans()):
                profile.set_value(section, key, draw(values(kind)))
        for rail in ("BUS", "CORE") if section != "general" else ():
            for moment in ("START", "DONE"):
                chosen = zip(("MIN", "TARGET", "MAX"), draw(CORNERS), draw(DISABLED_OR_NOT), strict=True)
                for end, corner, kept in chosen:
                    profile.set_value(section, f"{rail}_VOLTAGE_CORNER_{end}_{moment}", corner if kept else "DISABLE")
    return profile

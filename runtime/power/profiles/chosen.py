"""Find the profile that is asked for, and name it among the settings of what is measured."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from gputune.core.json_text import canonical_json
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.presets import PRESETS
from gputune.runtime.power.profiles.yaml_form import read_yaml

PROFILE_SETTING = "gputune.perf_profile"
"""The setting that names a profile."""


def setting_of(profile: PerfProfile | None, controls: Sequence[str]) -> dict[str, str]:
    """Return what a profile adds to the settings under which something is measured: its name, of one with other
    settings than a preset's a digest; nothing where nothing steers the device's clocks."""
    if profile is None or profile.silent or not controls:
        return {}
    digest = hashlib.sha256(canonical_json(profile.to_dict()).encode()).hexdigest()[:16]
    return {PROFILE_SETTING: profile.name if profile.name in PRESETS else f"{profile.name} {digest}"}


def profile_named(profile: PerfProfile | str) -> PerfProfile:
    """Return a profile, or the preset of a name; checked, and a copy. Raises ValueError for a name that is none, and
    for corners out of order."""
    chosen = PerfProfile.from_preset(profile) if isinstance(profile, str) else profile.copy()
    chosen.check()
    return chosen


def chosen_profile(name: str | None, file: Path | None) -> PerfProfile | None:
    """Return the profile of a preset's name or of a file, as options give them; None for neither. Raises ValueError for
    both, and for what is none, OSError."""
    if name is not None and file is not None:
        raise ValueError("--perf_profile and --perf_config_yaml are two ways to say the same; drop one")
    if file is not None:
        return read_yaml(file)
    return None if name is None else profile_named(name)

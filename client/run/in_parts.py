"""Say what net-run cannot do with a model in parts, which onnxruntime runs on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gputune.client.device_errors import device_errors
from gputune.client.errors import ConfigError
from gputune.runtime.application.in_parts import LEVELS
from gputune.runtime.context.ep_context import is_in_parts
from gputune.runtime.profiling.records import Level


def check_in_parts(paths: Sequence[Path], wishes: Mapping[str, bool], level: Level | None) -> bool:
    """Return whether a model in parts is to run, and no contexts.

    wishes: whether each option is given that is for contexts only. level: of a profile. Raises ConfigError for such an
    option, and for a model in parts next to other files; DeviceOrContextError for a file that cannot be read.
    """
    found = [path for path in paths if _is_in_parts(path)]
    if not found:
        return False
    what = f"{found[0]} is a model in parts, which onnxruntime runs on this machine"
    if len(paths) > 1:
        raise ConfigError(f"--retrieve_context: {what}; run it alone, without other files")
    for option, given in wishes.items():
        if given:
            raise ConfigError(f"{option} is for contexts, but {what}; omit {option}")
    if level is not None and level not in LEVELS:
        raise ConfigError(f"profiling level {level}: {what}; its levels are {' and '.join(LEVELS)}")
    return True


def _is_in_parts(path: Path) -> bool:
    with device_errors(path):
        return is_in_parts(path)

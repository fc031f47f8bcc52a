"""Open the files that net-run is given, and say what it cannot do with a model in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gputune.client.device_errors import device_errors
from gputune.client.errors import ConfigError
from gputune.runtime.loading.in_parts import LEVELS
from gputune.runtime.loading.model import Model, open_any
from gputune.runtime.profiling.levels import Level


def open_models(paths: Sequence[Path], wishes: Mapping[str, bool], level: Level | None) -> list[Model]:
    """Return what the files hold: contexts, or one model in parts, which onnxruntime runs on this machine.

    wishes: whether each option is given that is for contexts only. level: of a profile. Raises ConfigError for such an
    option, and for a model in parts next to other files; DeviceOrContextError for a file that cannot be read.
    """
    models = []
    for path in paths:
        with device_errors(path):
            models.append(open_any(path))
    found = [model for model in models if model.in_parts]
    if not found:
        return models
    what = f"{found[0].path} is a model in parts, which onnxruntime runs on this machine"
    if len(paths) > 1:
        raise ConfigError(f"--retrieve_context: {what}; run it alone, without other files")
    for option, given in wishes.items():
        if given:
            raise ConfigError(f"{option} is for contexts, but {what}; omit {option}")
    if level is not None and level not in LEVELS:
        raise ConfigError(f"profiling level {level}: {what}; its levels are {' and '.join(LEVELS)}")
    return models

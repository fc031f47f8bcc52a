"""The generator's config file: JSON with the keys that users of tuning mode know.

A key that does not bind is an error: silently ignored keys are what users of such tools complain about most.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputune.client.errors import ConfigError
from gputune.client.tuning.effort import EFFORTS, Effort

SUPPORTED = {"tuning_mode": bool, "performance_cache_dir": str, "invalidate_performance_cache": bool}
NEEDS_TUNING_MODE = ("performance_cache_dir", "invalidate_performance_cache")
NOT_YET = frozenset(
    {
        "backend_extensions",
        "context_configs",
        "graph_configs",
        "profile_configs",
        "precision_mode",
        "perf_hint",
        "kernel_repo_path",
        "invalidate_kernel_repo",
        "disable_memory_optimizations",
        "disable_node_optimizations",
        "disable_queue_recording",
        "graph_names",
    }
)


@dataclass(frozen=True)
class Config:
    """What the config file asks for; None where it says nothing."""

    tuning_mode: bool | None = None
    performance_cache_dir: Path | None = None
    invalidate_performance_cache: bool = False


def read_config(path: Path | None) -> Config:
    """The config file's content, every key checked. Raises ConfigError; no path means no wishes."""
    if path is None:
        return Config()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        content = json.loads(text, object_pairs_hook=_no_twins)
    except ValueError as error:
        raise ConfigError(f"config file {path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f'config file {path} must hold one JSON object, like {{"tuning_mode": true}}')
    _check(path, content)
    folder = content.get("performance_cache_dir")
    return Config(
        tuning_mode=content.get("tuning_mode"),
        performance_cache_dir=None if folder is None else Path(folder).expanduser(),
        invalidate_performance_cache=content.get("invalidate_performance_cache", False),
    )


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"key {name!r} occurs twice")
    return dict(pairs)


def _check(path: Path, content: Mapping[str, Any]) -> None:
    for key, value in content.items():
        if key in NOT_YET:
            raise ConfigError(f"config file {path}: key {key!r} is not supported yet; remove it")
        if key not in SUPPORTED:
            near = difflib.get_close_matches(key, [*SUPPORTED, *NOT_YET], n=1, cutoff=0.0)
            raise ConfigError(f"config file {path}: unknown key {key!r}; did you mean {near[0]!r}?")
        kind = SUPPORTED[key]
        if not isinstance(value, kind):
            wanted = "true or false" if kind is bool else "a text"
            raise ConfigError(f"config file {path}: {key} must be {wanted}, not {json.dumps(value)}")
    for key in NEEDS_TUNING_MODE:
        if key in content and content.get("tuning_mode") is not True:
            raise ConfigError(f'config file {path}: {key} needs "tuning_mode": true beside it')
    if content.get("performance_cache_dir") == "":
        raise ConfigError(f"config file {path}: performance_cache_dir is empty")


def choose_effort(config: Config, option: str | None) -> Effort:
    """The effort that --tuning_effort and tuning_mode agree on. Raises ConfigError when they contradict."""
    if config.tuning_mode is False:
        if option not in (None, "none"):
            raise ConfigError(f'--tuning_effort {option} contradicts "tuning_mode": false in the config file')
        return EFFORTS["none"]
    if config.tuning_mode is True and option == "none":
        raise ConfigError('--tuning_effort none contradicts "tuning_mode": true in the config file')
    return EFFORTS[option or "normal"]

"""The generator's config file: JSON with the keys that users of tuning mode know.

A key that does not bind is an error: silently ignored keys are what users of such tools complain about most.
"""

import difflib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gputune.client.context.arena_search import SEARCH_STEPS
from gputune.client.errors import ConfigError
from gputune.client.target.connecting import parse_address
from gputune.client.tuning.search.effort import EFFORTS, Effort
from gputune.client.tuning.search.options import (
    TuningOptions,
    check_cache_mode,
    check_strategy,
    clean_patterns,
    parse_budget,
)
from gputune.core.identity import DeviceIdentity

Read = Callable[[Any, str], Any]
"""From a key's value and the words that name the key to what it means. Raises ConfigError, TargetError."""


HALF_EXTENSION = "cl_khr_fp16"
LARGEST_COUNT = 10**12
PRECISIONS = ("float32", "float16")
"""What tensors may be kept in between kernels; kernels are there for the first one."""


def _flag(value: Any, key: str) -> bool:
    return bool(_of_kind(bool, value, key, "true or false"))


def _text(value: Any, key: str) -> str:
    text = str(_of_kind(str, value, key, "a text"))
    if not text.strip():
        raise ConfigError(f"{key} is empty")
    return text


def _path(value: Any, key: str) -> Path:
    text = _text(value, key)
    try:
        if b"\0" in os.fsencode(text):
            raise ValueError("it holds a character that no path may hold")
        return Path(text).expanduser()
    except (ValueError, RuntimeError) as error:  # RuntimeError: a home folder that is not there
        raise ConfigError(f"{key}: {json.dumps(text)} is no path: {error}") from None


def _addresses(value: Any, key: str) -> str:
    text = _text(value, key)
    for address in text.split(","):
        parse_address(address, key)
    return text


def _precision(value: Any, key: str) -> str:
    text = _text(value, key)
    if text not in PRECISIONS:
        raise ConfigError(f"{key}: {text!r} is no precision; there are {', '.join(PRECISIONS)}")
    return text


def _tasks(value: Any, key: str) -> tuple[str, ...]:
    form = 'a list of texts, like ["Conv", "/head/*"]'
    return clean_patterns([_of_kind(str, text, key, form) for text in _of_kind(list, value, key, form)], key)


def _pins(value: Any, key: str) -> dict[str, dict[str, int]]:
    form = 'configurations by task, like {"Conv 1a2b3c4d5e": {"TILE": 4}}, with whole numbers'
    pins: dict[str, dict[str, int]] = {}
    for pattern, configuration in _of_kind(dict, value, key, form).items():
        (clean,) = clean_patterns([pattern], key)
        if clean in pins:
            raise ConfigError(f"{key} pins {clean!r} twice")
        for number in _of_kind(dict, configuration, key, form).values():
            if isinstance(number, bool) or not isinstance(number, int):
                raise ConfigError(f"{key} must be {form}, not {json.dumps(value)}")
        if not configuration:
            raise ConfigError(f"{key} pins {pattern!r} to nothing; give it a value for each parameter")
        pins[clean] = configuration
    return pins


def _of_kind(kind: type, value: Any, key: str, wanted: str) -> Any:
    if not isinstance(value, kind):
        raise ConfigError(f"{key} must be {wanted}, not {json.dumps(value)}")
    return value


def _count(value: Any, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_COUNT:
        raise ConfigError(f"{key} must be a whole number from 0 to {LARGEST_COUNT}, not {json.dumps(value)}")
    return value


_TUNING: dict[str, tuple[str, Read]] = {
    "tasks": ("only", _tasks),
    "pins": ("pins", _pins),
    "tuning_budget": ("budget_seconds", lambda value, key: parse_budget(_text(value, key), key)),
    "tuning_strategy": ("strategy", lambda value, key: check_strategy(_text(value, key), key)),
    "cold": ("cold", _flag),
    "cache_mode": ("cache_mode", lambda value, key: check_cache_mode(_text(value, key), key)),
    "report": ("report", _path),
}
"""The keys that say what is asked of the tuner, each with its field of TuningOptions."""
SUPPORTED: dict[str, Read] = {
    "tuning_mode": _flag,
    "performance_cache_dir": _path,
    "invalidate_performance_cache": _flag,
    "system_performance_cache_dir": _path,
    "kernel_repo_path": _path,
    "invalidate_kernel_repo": _flag,
    "target": _addresses,
    "precision_mode": _precision,
    "persistent_kernels": _flag,
    "memory_search_steps": _count,
    "memory_limit_hint": _count,
    "enable_spill_fill_buffer": _flag,
    **{key: read for key, (_, read) in _TUNING.items()},
}
NEEDS_TUNING_MODE = (
    "performance_cache_dir",
    "invalidate_performance_cache",
    "system_performance_cache_dir",
    *_TUNING,
)
NOT_YET = frozenset(
    {
        "backend_extensions",
        "context_configs",
        "graph_configs",
        "profile_configs",
        "perf_hint",
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
    system_performance_cache_dir: Path | None = None
    kernel_repo_path: Path | None = None
    invalidate_kernel_repo: bool = False
    target: str | None = None
    precision_mode: str = PRECISIONS[0]
    persistent_kernels: bool = True
    memory_search_steps: int = SEARCH_STEPS
    memory_limit_hint: int = 0
    enable_spill_fill_buffer: bool = False
    tuning: TuningOptions = field(default_factory=TuningOptions)


def read_config(path: Path | None) -> Config:
    """The config file's content, every key checked. Raises ConfigError, and TargetError for a target's address; no path
    means no wishes."""
    if path is None:
        return Config()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        content = json.loads(text, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"config file {path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f'config file {path} must hold one JSON object, like {{"tuning_mode": true}}')
    _check(path, content)
    read = {key: SUPPORTED[key](value, f"config file {path}: {key}") for key, value in content.items()}
    tuning = {name: read.pop(key) for key, (name, _) in _TUNING.items() if key in read}
    return Config(**read, tuning=TuningOptions(**tuning))


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"key {name!r} occurs twice")
    return dict(pairs)


def _check(path: Path, content: Mapping[str, Any]) -> None:
    for key in content:
        if key in NOT_YET:
            raise ConfigError(f"config file {path}: key {key!r} is not supported yet; remove it")
        if key not in SUPPORTED:
            near = difflib.get_close_matches(key, [*SUPPORTED, *NOT_YET], n=1, cutoff=0.0)
            raise ConfigError(f"config file {path}: unknown key {key!r}; did you mean {near[0]!r}?")
    for key in NEEDS_TUNING_MODE:
        if key in content and content.get("tuning_mode") is not True:
            raise ConfigError(f'config file {path}: {key} needs "tuning_mode": true beside it')


def check_precision(config: Config, device: DeviceIdentity) -> None:
    """That kernels for the precision are there. Raises ConfigError that says what the device has."""
    if config.precision_mode != PRECISIONS[0]:
        has = "has" if HALF_EXTENSION in device.extensions else "does not have"
        raise ConfigError(
            f"precision_mode {config.precision_mode!r} is not there for {device.name}, which {has} {HALF_EXTENSION}: "
            f"kernels compute in {PRECISIONS[0]} only; remove the key, or set it to {PRECISIONS[0]!r}"
        )


def choose_effort(config: Config, option: str | None) -> Effort:
    """The effort that --tuning_effort and tuning_mode agree on. Raises ConfigError when they contradict."""
    if config.tuning_mode is False:
        if option not in (None, "none"):
            raise ConfigError(f'--tuning_effort {option} contradicts "tuning_mode": false in the config file')
        return EFFORTS["none"]
    if config.tuning_mode is True and option == "none":
        raise ConfigError('--tuning_effort none contradicts "tuning_mode": true in the config file')
    return EFFORTS[option or "normal"]

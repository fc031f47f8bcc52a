"""The config file of the viewer: what is written beside the times themselves."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gputune.client.errors import ConfigError

LARGEST_BYTES = 1 << 20


@dataclass(frozen=True)
class Features:
    """What is on and off, by the names that the file has for it.

    enable_input_output_flow_events: arrows from an operation to those that read its output.
    enable_sequencer_flow_events: arrows from each launch to the next. htp_json: a file with the topology and each
    operation. runtrace: when the device executes and when it has gaps, preemptions, clocks and temperatures.
    memory_info: bytes in use and bytes/s. traceback: the ONNX nodes and the model of a launch. qhas_json: a summary;
    qhas_schema: its JSON schema."""

    enable_input_output_flow_events: bool = False
    enable_sequencer_flow_events: bool = False
    htp_json: bool = True
    runtrace: bool = True
    memory_info: bool = True
    traceback: bool = True
    qhas_schema: bool = False
    qhas_json: bool = False


NAMES = tuple(each.name for each in fields(Features))


def read_features(path: Path) -> Features:
    """What a config file says; what it leaves out is as usual.

    The file is {"features": {NAME: true or false}}. Raises ConfigError for anything else in it."""
    where = f"config file {path}"
    content = _map(_json(path, where), where)
    _check_keys(content, ("features",), where)
    given = _map(content.get("features", {}), f"{where}: 'features'")
    _check_keys(given, NAMES, f"{where}: 'features'")
    for name, value in given.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{where}: {name} is {json.dumps(value)[:80]}, it must be true or false")
    return Features(**given)


def _json(path: Path, where: str) -> object:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
        if len(content) > LARGEST_BYTES:
            raise ValueError(f"it has more than {LARGEST_BYTES} bytes")
        found: object = json.loads(content, object_pairs_hook=_without_twins)
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not valid JSON: {str(error)[:200] or type(error).__name__}") from error
    return found


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"key {max(names, key=names.count)!r} occurs twice")
    return dict(pairs)


def _map(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f'{where} is no map; the file is {{"features": {{"runtrace": true}}}}')
    return value


def _check_keys(given: Collection[str], known: Collection[str], where: str) -> None:
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
            raise ConfigError(f"{where}: unknown key {key[:80]!r}; did you mean {near[0]!r}?")

"""Read the config file of throughput-net-run: which contexts run in parallel, on which inputs, and how often."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gputune.client.durations import parse_duration
from gputune.client.errors import ConfigError
from gputune.client.strict_json import (
    Read,
    a_number,
    a_path,
    a_text,
    an_object,
    of_kind,
    one_of,
    read_keys,
    read_object,
)
from gputune.runtime.power.profiles.presets import preset_name

PRIORITIES = {"low": -1, "normal": 0, "high": 1}
DEFAULT_SECONDS = 10.0
MOST_INSTANCES = 1024
MOST_WARMUP = 10**9


@dataclass(frozen=True)
class ContextPlan:
    """A context that runs in `instances` threads, each with inputs of its own. group: the contexts with which it takes
    turns at one set of arenas, None for arenas and queues of its own. priority: of PRIORITIES, which decides whose turn
    comes next in its group. perf_profile: the name of a preset."""

    name: str
    path: Path
    graph: str | None = None
    input_list: Path | None = None
    instances: int = 1
    group: str | None = None
    priority: str = "normal"
    perf_profile: str | None = None


@dataclass(frozen=True)
class Plan:
    """What runs. streams: how many inferences of a group may run at a time, by its name. warmup: inferences of each
    instance before all of them begin."""

    contexts: tuple[ContextPlan, ...]
    streams: dict[str, int] = field(default_factory=dict)
    device: str | None = None
    seconds: float = DEFAULT_SECONDS
    warmup: int = 0


def read_plan(path: Path) -> Plan:
    """Return a config file's plan, every key checked. Raises ConfigError."""
    where = f"config file {path}"
    read = read_keys(read_object(path, '{"contexts": [{"path": "model.bin"}]}'), _KEYS, where)
    if "contexts" not in read:
        raise ConfigError(f'{where} needs "contexts", a list with a "path" in each')
    contexts = _named(read.pop("contexts"), where)
    declared: dict[str, int] = read.pop("groups", {})
    used = list(dict.fromkeys(each.group for each in contexts if each.group is not None))
    for name in declared:
        if name not in used:
            raise ConfigError(f"{where}: groups: no context is in group {name!r}; the groups of contexts are {used}")
    streams = {name: declared.get(name, 1) for name in used}
    return Plan(contexts, streams, read.get("device"), read.get("duration", DEFAULT_SECONDS), read.get("warmup", 0))


def _named(given: Sequence[dict[str, Any]], where: str) -> tuple[ContextPlan, ...]:
    """Return the contexts, by default under the names of their files. Raises ConfigError for names that are not
    distinct, and for what does not go together."""
    contexts = tuple(ContextPlan(**{"name": each["path"].stem, **each}) for each in given)
    counts = Counter(context.name for context in contexts)
    for context in contexts:
        if counts[context.name] > 1:
            raise ConfigError(
                f'{where}: {counts[context.name]} contexts are called {context.name!r}; give each a "name"'
            )
        if context.group is None and context.priority != "normal":
            raise ConfigError(
                f"{where}: context {context.name!r}: priority {context.priority!r} orders turns within a group, "
                "but it is in no group, so the device orders its work; give it a group"
            )
    return contexts


def _contexts(value: Any, where: str) -> list[dict[str, Any]]:
    contexts = of_kind(list, value, where, "a list of objects")
    if not contexts:
        raise ConfigError(f"{where} is empty")
    return [_context(each, f"{where}[{place}]") for place, each in enumerate(contexts)]


def _context(value: Any, where: str) -> dict[str, Any]:
    read = read_keys(an_object(value, where), _OF_A_CONTEXT, where)
    if "path" not in read:
        raise ConfigError(f'{where} needs "path", the file of a context')
    return read


def _groups(value: Any, where: str) -> dict[str, int]:
    return {
        name: read_keys(an_object(group, f"{where}: {name}"), _OF_A_GROUP, f"{where}: {name}").get("streams", 1)
        for name, group in an_object(value, where).items()
    }


def _name(value: Any, where: str) -> str:
    if "/" in (name := a_text(value, where)):
        raise ConfigError(f"{where}: {name!r} has a slash, which no name may have")
    return name


def _perf_profile(value: Any, where: str) -> str:
    try:
        return preset_name(a_text(value, where))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _seconds(value: Any, where: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return parse_duration(f"{value:f}" if is_number else a_text(value, where), where)


_KEYS: dict[str, Read] = {
    "contexts": _contexts,
    "groups": _groups,
    "device": a_text,
    "duration": _seconds,
    "warmup": a_number(0, MOST_WARMUP),
}
_OF_A_CONTEXT: dict[str, Read] = {
    "name": _name,
    "path": a_path,
    "graph": a_text,
    "input_list": a_path,
    "instances": a_number(1, MOST_INSTANCES),
    "group": _name,
    "priority": one_of(*PRIORITIES),
    "perf_profile": _perf_profile,
}
_OF_A_GROUP: dict[str, Read] = {"streams": a_number(1, MOST_INSTANCES)}

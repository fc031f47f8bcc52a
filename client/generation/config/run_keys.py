"""Define the keys of net-run's config file: how to load contexts, and how much of them to record."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gputune.client.generation.config import generator_keys, values
from gputune.client.generation.config.forms import Keys, read_file
from gputune.client.strict_json import one_of

_GENERATION = "it is a key of context-binary-generator, and the context is made already; leave it out here"
KEYS = Keys(
    inner={},
    context={
        "context_priority": generator_keys.normal_priority,
        "enable_graphs": values.names,
        "cache_compatibility_mode": one_of("permissive", "strict"),
    },
    graph={},
    profile={"num_max_events": generator_keys.COUNT},
    refused={
        **generator_keys.KEYS.refused,
        **dict.fromkeys((*generator_keys.SUPPORTED, "graph_name"), _GENERATION),
    },
)


@dataclass(frozen=True)
class RunConfig:
    """What the config file asks for; None where it says nothing. num_max_events: of a profile's log, 0 for no limit."""

    context_priority: str = "normal"
    enable_graphs: tuple[str, ...] = ()
    cache_compatibility_mode: Literal["permissive", "strict"] | None = None
    num_max_events: int = 0


def read_run_config(path: Path | None) -> RunConfig:
    """Return the config file's content, every key checked; no path means no wishes. Raises ConfigError."""
    return RunConfig() if path is None else RunConfig(**read_file(path, KEYS).keys)

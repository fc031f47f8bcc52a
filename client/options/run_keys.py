"""Define the keys of net-run's config file: how to load contexts, and how much of them to record."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gputune.client.options.config import KEYS as GENERATOR_KEYS
from gputune.client.options.config import normal_priority
from gputune.client.options.config_file import Keys, read_file
from gputune.client.options.kinds import COUNT, NAMES, choice
from gputune.client.options.option import Kind, option, options_of

_GENERATION = "it is a key of context-binary-generator, and the context is made already; leave it out here"


@dataclass(frozen=True)
class RunConfig:
    """Hold what the config file asks for; None where it says nothing. num_max_events: of a profile's log, 0 for no
    limit."""

    context_priority: str = option("normal", Kind(json=normal_priority), key=True, sections=("context",))
    enable_graphs: tuple[str, ...] = option((), NAMES, key=True, sections=("context",))
    cache_compatibility_mode: Literal["permissive", "strict"] | None = option(
        None, choice("permissive", "strict"), key=True, sections=("context",)
    )
    num_max_events: int = option(0, COUNT, key=True, sections=("profile",))


KEYS = Keys(
    options_of(RunConfig),
    refused={
        **GENERATOR_KEYS.refused,
        **dict.fromkeys((*GENERATOR_KEYS.of("file"), "graph_name"), _GENERATION),
    },
)


def read_run_config(path: Path | None) -> RunConfig:
    """Return the config file's content, every key checked; no path means no wishes. Raises ConfigError."""
    return RunConfig() if path is None else RunConfig(**read_file(path, KEYS).keys)

"""Define net-run's config file and the options that it shares with the original tool."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gputune.client.cli.say import say
from gputune.client.errors import ConfigError, DeviceOrContextError
from gputune.client.lists import comma_separated
from gputune.client.options.command_line import with_options
from gputune.client.options.config import check_graph_names
from gputune.client.options.files import INPUT
from gputune.client.options.originals import BACKEND, NATIVE_FILES
from gputune.client.options.run_keys import RunConfig, read_run_config
from gputune.client.run.validating import graph_names_of, validated
from gputune.client.target.connecting import AskedConnection


@dataclass(frozen=True)
class RunLimits:
    """timeout_us: what an inference may take in microseconds, None for any time; most_events: how many inferences and
    launches a profile's log may have, 0 for any number."""

    timeout_us: int | None = None
    most_events: int = 0

    def check(self, number: int, elapsed_ns: int) -> None:
        """Raise DeviceOrContextError for an inference, counted from 0, that took longer than it may."""
        if self.timeout_us is not None and elapsed_ns > 1000 * self.timeout_us:
            raise DeviceOrContextError(
                f"timed out: inference {number} took {elapsed_ns / 1000:.0f} us, and --timeout allows {self.timeout_us}"
            )


def run_wishes(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets them as `limits`, a RunLimits, and what the config file says of graph and
    cache_compatibility_mode where no option says it. It is not called where contexts are only validated."""

    @functools.wraps(command)
    def with_wishes(
        *arguments: Any, config_file: Path | None, validate_binary: bool, timeout: int | None, **options: Any
    ) -> Any:
        config = read_run_config(config_file)
        paths: Sequence[Path] = options["context_binary"]
        mode = "cache_compatibility_mode"
        source = click.get_current_context().get_parameter_source(mode)
        if config.cache_compatibility_mode is not None and source is ParameterSource.DEFAULT:
            options[mode] = config.cache_compatibility_mode
        options["graph"] = _graph(config, options["graph"], paths)
        if validate_binary:
            _validate(paths, options)
            return None
        return command(*arguments, limits=RunLimits(timeout, config.num_max_events), **options)

    for option in reversed(_OPTIONS):
        with_wishes = option(with_wishes)
    return with_options(BACKEND, *NATIVE_FILES)(with_wishes)


def _graph(config: RunConfig, graph: str | None, paths: Sequence[Path]) -> str | None:
    """Return which graph runs: that of --graph, else the first that is enabled. Raises ConfigError."""
    if not config.enable_graphs:
        return graph
    if len(paths) > 1:
        raise ConfigError("enable_graphs is for one context, and there are several; give --graph a name for each")
    check_graph_names("enable_graphs", config.enable_graphs, graph_names_of(paths[0]))
    if graph is None:
        return config.enable_graphs[0]
    for name in comma_separated(graph):
        if name not in config.enable_graphs:
            raise ConfigError(f"--graph: {name!r} is not among enable_graphs of the config file; add it there")
    return graph


def _validate(paths: Sequence[Path], options: dict[str, Any]) -> None:
    """Say of each context that it is valid. Raises DeviceOrContextError for the first that is not."""
    connection: AskedConnection = options["connection"]
    if connection.target is not None or connection.adb is not None:
        raise ConfigError("--validate_binary is for this machine's own devices; omit --target and --adb")
    for path in paths:
        found = validated(path, options["device"], options["cache_compatibility_mode"] == "strict")
        say(f"{path}: {found}")


_OPTIONS = (
    click.option(
        "--config_file",
        type=INPUT,
        metavar="F",
        help="JSON file in the original tools' format: context_configs with enable_graphs and "
        "cache_compatibility_mode, profile_configs with num_max_events.",
    ),
    click.option(
        "--validate_binary",
        is_flag=True,
        help="Check the header, every checksum, and how the context fits the device. Run nothing.",
    ),
    click.option(
        "--timeout",
        type=click.IntRange(min=1),
        metavar="US",
        help="End with an error after an inference that took more microseconds than this. OpenCL cannot stop an "
        "inference earlier.",
    ),
)

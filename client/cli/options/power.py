"""Define the options for clocks and power."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gputune.client.cli.options.completion import perf_profiles
from gputune.client.cli.options.files import INPUT
from gputune.client.errors import ConfigError
from gputune.runtime.power.profiles.presets import PRESETS


def perf_profile_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose a perf profile; the command gets it as `perf_profile`, a PerfProfile or None."""

    @functools.wraps(command)
    def with_profile(*arguments: Any, perf_profile: str | None, perf_config_yaml: Path | None, **options: Any) -> Any:
        from gputune.runtime.power.profiles.chosen import chosen_profile

        try:
            chosen = chosen_profile(perf_profile, perf_config_yaml)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        except OSError as error:
            raise ConfigError(f"--perf_config_yaml: {perf_config_yaml} cannot be read: {error.strerror}") from None
        return command(*arguments, perf_profile=chosen, **options)

    for option in reversed(_OPTIONS):
        with_profile = option(with_profile)
    return with_profile


_OPTIONS = (
    click.option(
        "--perf_profile",
        metavar="NAME",
        shell_complete=perf_profiles,
        help=f"Clocks and power to request while the device works, and to release afterwards: {', '.join(PRESETS)}. "
        "`gputune power check --perf_profile NAME` shows what that writes.  [default: leave the device as it is]",
    ),
    click.option(
        "--perf_config_yaml",
        type=INPUT,
        metavar="F",
        help="Perf profile from a YAML file in the original tools' format.",
    ),
)

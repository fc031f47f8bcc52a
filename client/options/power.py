"""Find the perf profile that options name."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gputune.client.errors import ConfigError
from gputune.client.options.command_line import given_of, with_options
from gputune.client.options.shared import PERF_PROFILE
from gputune.runtime.power.profiles.perf_profile import PerfProfile


def asked_profile(given: Mapping[str, Any]) -> PerfProfile | None:
    """Return the perf profile that options ask for, given by their names. Raises ConfigError."""
    from gputune.runtime.power.profiles.chosen import chosen_profile

    path = given.get("perf_config_yaml")
    try:
        return chosen_profile(given.get("perf_profile"), path)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(f"--perf_config_yaml: {path} cannot be read: {error.strerror}") from None


def perf_profile_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command these options; it gets them as `perf_profile`, a PerfProfile or None."""

    @functools.wraps(command)
    def with_profile(*arguments: Any, **values: Any) -> Any:
        mine = given_of({one.name: values.pop(one.name) for one in PERF_PROFILE})
        return command(*arguments, perf_profile=asked_profile(mine), **values)

    return with_options(*PERF_PROFILE)(with_profile)

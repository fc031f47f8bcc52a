"""Find the perf profile that options name."""

from collections.abc import Mapping
from typing import Any

from gputune.client.errors import ConfigError
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

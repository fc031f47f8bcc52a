"""Locate the folders for a user's files. Only this module uses platformdirs."""

from pathlib import Path

import platformdirs


def default_performance_cache_dir() -> Path:
    """Return the user's cache folder for performance caches."""
    return Path(platformdirs.user_cache_dir("gputune")) / "performance"


def default_farm_dir() -> Path:
    """Return where certificates and the journal of jobs are kept."""
    return Path(platformdirs.user_config_dir("gputune")) / "farm"


def default_secret_file() -> Path:
    """Return the path of the secret under which performance caches keep compiled programs."""
    return Path(platformdirs.user_data_dir("gputune")) / "cache-secret"

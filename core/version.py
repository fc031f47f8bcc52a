"""Return the version of gputune."""

from functools import cache


@cache  # the package's metadata takes milliseconds to read
def software_version() -> str:
    """Return what this program says about itself to others and in files, for example "gputune 0.1.0"."""
    from importlib.metadata import PackageNotFoundError, version  # which load much, and most commands need neither

    try:
        return f"gputune {version('gputune')}"
    except PackageNotFoundError:  # a bundle without package metadata
        return "gputune"

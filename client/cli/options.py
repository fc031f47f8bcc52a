"""Option types and options that several commands share."""

from pathlib import Path

import click
import platformdirs

from gputune.client.progress import LEVELS

log_level = click.option(
    "--log_level", type=click.Choice(LEVELS), default="info", show_default=True, help="How much is said."
)
summary_json = click.option(
    "--summary_json",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Write a summary for scripts to this file.",
)


def default_performance_cache_dir() -> Path:
    """The user's cache folder for performance caches."""
    return Path(platformdirs.user_cache_dir("gputune")) / "performance"


def parse_input_dimensions(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    """Callback of --input_dimensions NAME=1,3,224,224: shapes by input name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, separator, text = value.rpartition("=")
        try:
            shape = tuple(int(part) for part in text.split(","))
        except ValueError:
            shape = ()
        if not separator or not name or not shape or min(shape) < 1:
            raise click.BadParameter(f"{value!r} is not of the form NAME=1,3,224,224 with dimensions of at least 1")
        if name in shapes:
            raise click.BadParameter(f"input {name!r} is named twice")
        shapes[name] = shape
    return shapes

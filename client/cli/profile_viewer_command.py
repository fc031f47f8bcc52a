"""Define the command `gputune profile-viewer`, which profile_viewer.py runs."""

from typing import Any

import click

from gputune.client.options.command_line import Grouped, given_of, with_options
from gputune.client.options.option import options_of, over
from gputune.client.options.viewer import ViewerOptions


@click.command("profile-viewer", cls=Grouped)
@with_options(*options_of(ViewerOptions))
def command(**values: Any) -> None:
    """Show where the time of profiled inferences went: as a trace, a page, a table, or a summary on the terminal.

    --zoom_start and --zoom_end are in milliseconds after the beginning of the first log.

    \b
    gputune profile-viewer --input_log profilelogs/gputune-profiling-data.log \\
        --schematic out/m_schematic.bin --output chrometrace.json
    """
    from gputune.client.cli.profile_viewer import show_profiles  # which a wrong option does without

    show_profiles(over(ViewerOptions(), given_of(values)))

"""Define groups of commands whose help prints a whole sentence for each command; click's own help cuts it off."""

import click

from gputune.client.options.command_line import Grouped

_WHOLE = 1000
"""Characters of a command's first sentence at most."""


class CommandGroup(click.Group):
    """A group of commands, whose help has options by group."""

    command_class = Grouped

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(_WHOLE)) for name, one in self.commands.items()])

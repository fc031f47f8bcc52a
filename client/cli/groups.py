"""Define groups of commands whose help prints a whole sentence for each command; click's own help cuts it off."""

import click

_WHOLE = 1000
"""Characters of a command's first sentence at most."""


class CommandGroup(click.Group):
    """A group of commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(_WHOLE)) for name, one in self.commands.items()])

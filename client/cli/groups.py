"""Define commands whose help is easier to read than click's own.

The help of a group prints a whole sentence for each command; click's own help cuts it off. The help of a command with
many options prints them by theme.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import click

_WHOLE = 1000
"""Characters of a command's first sentence at most."""


class Group(click.Group):
    """A group of commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(_WHOLE)) for name, one in self.commands.items()])


class Themed(click.Command):
    """A command whose help has its options by theme. themes: by the heading of each, its options in order; all others
    are under a heading of their own, at the end."""

    def __init__(self, *arguments: Any, themes: Mapping[str, Sequence[str]], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.themes = themes

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options."""
        records = {
            option: record
            for parameter in self.get_params(ctx)
            if (record := parameter.get_help_record(ctx)) is not None
            for option in parameter.opts
        }
        themed = {option for options in self.themes.values() for option in options}
        others = [option for option in records if option not in themed]
        for theme, options in (*self.themes.items(), ("Other options", others)):
            with formatter.section(theme):
                formatter.write_dl(list(dict.fromkeys(records[option] for option in options)))

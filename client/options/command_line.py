"""Make click's options of options, and help that has them by group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from gputune.client.options.files import option_name
from gputune.client.options.option import GROUPS, OTHER, Option

Command = Callable[..., Any]
FEW = 10
"""Options and arguments that are read at a glance, without headings."""


class _Grouped(click.Option):
    """An option with the heading that it has in help."""

    def __init__(self, *names: Any, group: str = OTHER, **more: Any) -> None:
        super().__init__(*names, **more)
        self.group = group


class Grouped(click.Command):
    """A command whose help has its options by group, if there are many."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options."""
        if len(self.params) <= FEW:
            super().format_options(ctx, formatter)
            return
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        shown = [(getattr(one, "group", OTHER), one.get_help_record(ctx)) for one in options]
        for group in GROUPS:
            if records := [record for its, record in shown if its == group and record is not None]:
                with formatter.section(group):
                    formatter.write_dl(records)


def with_options(*options: Option) -> Callable[[Command], Command]:
    """Give a command these options, in this order. It gets each by the option's name."""

    def added(command: Command) -> Command:
        for option in reversed(options):
            command = click_option(option)(command)
        return command

    return added


def click_option(option: Option) -> Callable[[Command], Command]:
    """Return what gives a command an option."""

    def read(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        return value if value is None or value == () else option.kind.text(value, option_name(parameter))

    default = {} if option.shown is None else {"default": option.shown, "show_default": True}
    taken = {**option.kind.click, **option.click, **default}
    said = option.declared or ((option.words, option.parameter) if option.parameter else (option.words,))
    return click.option(*said, cls=_Grouped, group=option.group, help=option.help, callback=read, **taken)


def given_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a command line gives, without those of options that were left out."""
    return {name: value for name, value in values.items() if value is not None and value is not False and value != ()}

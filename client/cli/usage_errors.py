"""Print errors in a command's arguments in one line, like all other errors; click prints several lines."""

import re

import click

from gputune.client.options.files import option_name
from gputune.client.options.originals import refusal
from gputune.client.suggestions import near

_NO_NUMBER = re.compile(r"is not a valid (integer|float)( range)?$")
_OUTSIDE = re.compile(r"(\S+) is not in the range (?:(\S+?)<=)?x(>=|<=|>|<)(\S+)$")
_SIDES = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}


def line_of_usage(error: click.ClickException) -> str:
    """Return what is wrong with the call, where, and what to do, in one line."""
    if isinstance(error, click.NoSuchOption):
        return refusal(error) or _unknown("option", error.option_name, error.ctx)
    if isinstance(error, click.NoSuchCommand):
        return _unknown("command", error.command_name, error.ctx)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        extra = " ".join((error.param.type.get_missing_message(error.param, error.ctx) or "").split())
        choice = f"; {_lowered(extra)}" if extra else ""
        return f"{_place(error.ctx)}{option_name(error.param)} is missing{choice}{_help(error)}"
    message = " ".join(error.message.split()).removesuffix(".")
    if isinstance(error, click.BadParameter):
        where = error.param_hint or (option_name(error.param) if error.param else "")
        said = _plain(message, error.param)
        return f"{where}: {_lowered(said)}" if where else said
    if isinstance(error, click.UsageError):
        return _lowered(message) if error.ctx is None else f"{_place(error.ctx)}{_lowered(message)}{_help(error)}"
    return error.format_message()


def _plain(message: str, parameter: click.Parameter | None) -> str:
    """Return what is wrong with a value, without click's words for types, and with the legal value that is near."""
    if found := _OUTSIDE.search(message):
        value, least, sign, bound = found.groups()
        return f"{value} is not {f'from {least} to' if least else _SIDES[sign]} {bound}"
    if parameter is not None and isinstance(parameter.type, click.Choice) and message.startswith("'"):
        similar = near(message.split("'")[1], map(str, parameter.type.choices))
        return f"{message}; did you mean {similar!r}?" if similar else message
    return _NO_NUMBER.sub(lambda kind: f"is no {'whole ' * (kind[1] == 'integer')}number", message)


def _unknown(what: str, name: str, context: click.Context | None) -> str:
    """Say that there is no such option or command, and what the nearest one is."""
    similar = near(name, _known(what, context))
    more = f"did you mean {similar}?" if similar else f"`{_path(context)} --help` lists them"
    return f"{_place(context)}there is no {what} {name}; {more}"


def _known(what: str, context: click.Context | None) -> list[str]:
    if context is None:
        return []
    if what == "command":
        return context.command.list_commands(context) if isinstance(context.command, click.Group) else []
    return [name for one in context.command.get_params(context) for name in (*one.opts, *one.secondary_opts)]


def _place(context: click.Context | None) -> str:
    return f"{_path(context)}: "


def _path(context: click.Context | None) -> str:
    return "gputune" if context is None else context.command_path


def _help(error: click.UsageError) -> str:
    return f"; see `{_path(error.ctx)} --help`"


def _lowered(message: str) -> str:
    """Return a sentence as a part of one: names and quotes at its beginning stay as they are."""
    return message[:1].lower() + message[1:] if message[1:2].islower() else message

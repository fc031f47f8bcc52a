"""Define option types and options that several commands share.

A command knows its options before it loads what it needs to work, so that a wrong option costs little time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputune.client.cli.options.files import INPUT, OUTPUT, FileText
from gputune.client.errors import INPUT_VALUE, ConfigError
from gputune.client.lists import comma_separated
from gputune.client.tuning.measuring.quiet import MOST_MINUTES, OPTION
from gputune.core.logs import LEVELS

if TYPE_CHECKING:
    from gputune.client.model.importer import Value
    from gputune.client.target.connecting import AdbRequest
    from gputune.client.target.transport.credentials import Credentials

log_level = click.option(
    "--log_level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="Print messages of this level and above.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for tools.")
summary_json = click.option(
    "--summary_json",
    type=OUTPUT,
    metavar="F",
    help="Write a summary for scripts to this file, as JSON.",
)


@dataclass(frozen=True)
class ConnectionOptions:
    """What a command line says about its target; see gputune.client.target.connecting.choose_target. `credentials` are
    those of the options: GPUTUNE_TOKEN is read where a server is used that runs already."""

    target: str | None
    credentials: Credentials
    adb: AdbRequest | None


def connection_options(
    command: Callable[..., Any] | None = None,
    otherwise: str = "TARGET_SERVER_SOCKET, else a server on 127.0.0.1:22598, else an embedded server",
    over_adb: str = "Start a target server on a phone over adb, and use it",
    several: str = "",
) -> Callable[..., Any]:
    """Add the options that say which target a command talks to and how; it gets them as `connection`, a
    ConnectionOptions. `otherwise` says in the help what is used when no target is named, `over_adb` what --adb does,
    `several` what more than one target is for, where a command takes them."""
    if command is None:
        return functools.partial(connection_options, otherwise=otherwise, over_adb=over_adb, several=several)

    @functools.wraps(command)
    def with_connection(
        *arguments: Any,
        target: str | None,
        token_file: Path | None,
        tls_ca: Path | None,
        tls_cert: Path | None,
        tls_key: Path | None,
        adb: str | None,
        adb_python: str | None,
        adb_agent: Path | None,
        **options: Any,
    ) -> Any:
        from gputune.client.target.connecting import AdbRequest
        from gputune.client.target.transport.credentials import read_credentials

        credentials = read_credentials({}, token_file, tls_ca, tls_cert, tls_key)
        for option, value in (("--adb_python", adb_python), ("--adb_agent", adb_agent)):
            if adb is None and value is not None:
                raise ConfigError(f"{option} says what runs on a phone; give --adb, too")
        if adb_python is not None and adb_agent is not None:
            raise ConfigError("--adb_python and --adb_agent: either Python runs on the phone, or an agent; drop one")
        phone = None if adb is None else AdbRequest(adb or None, adb_python, adb_agent)
        return command(*arguments, connection=ConnectionOptions(target, credentials, phone), **options)

    options = (
        click.option(
            "--target",
            metavar="HOST:PORT[,...]" if several else "HOST:PORT",
            help="Address of the target server, unix:PATH for a local socket, or agent:HOST:PORT for a gputune-agent."
            + (f" {several}" if several else "")
            + f"  [default: {otherwise}]",
        ),
        *_HOW_TO_CONNECT,
        click.option(
            "--adb",
            is_flag=False,
            flag_value="",
            metavar="[SERIAL]",
            help=f"{over_adb}. SERIAL selects one of several phones.",
        ),
        click.option(
            "--adb_python",
            metavar="PATH",
            help="Use this Python on the phone, or termux if you start the server by hand in Termux.  [default: an "
            "agent if one was built for the phone, else a Python is searched for there]",
        ),
        click.option(
            "--adb_agent",
            type=INPUT,
            metavar="F",
            help="Use this gputune-agent on the phone.  [default: build/agents/TRIPLE of a checkout]",
        ),
    )
    for option in reversed(options):
        with_connection = option(with_connection)
    return with_connection


_HOW_TO_CONNECT = (
    click.option(
        "--token_file",
        type=INPUT,
        metavar="F",
        help="File with the target server's or the agent's token, which only you can read.  [default: GPUTUNE_TOKEN, "
        "before it GPUTUNE_AGENT_TOKEN for an agent]",
    ),
    click.option(
        "--tls_ca",
        type=INPUT,
        metavar="F",
        help="Connect over TLS, and check the server's certificate against this authority's certificate.",
    ),
    click.option(
        "--tls_cert", type=INPUT, metavar="F", help="Client certificate, for a server that asks for a certificate."
    ),
    click.option("--tls_key", type=INPUT, metavar="F", help="Key of --tls_cert."),
)


class _OpPackages(FileText):
    """Names of op packages with commas between them; those that are folders are told by a generation."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            found = tuple(part.strip() for part in comma_separated(value))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        if not all(found):
            raise click.BadParameter("a name is empty")
        return found


def _joined(context: click.Context, parameter: click.Parameter, values: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(name for names in values for name in names)


wait_for_quiet = click.option(
    OPTION,
    type=click.IntRange(1, MOST_MINUTES),
    metavar="MINUTES",
    help="If other programs keep the machine busy, wait up to this many minutes for quiet before measuring.",
)

op_packages = click.option(
    "--op_packages",
    metavar="P[,...]",
    type=_OpPackages(),
    multiple=True,
    callback=_joined,
    help="Use kernels and operators from these op packages: folders, or entry points of the group gputune.op_packages. "
    "Their code runs with your rights.",
)


def parse_input_dimensions(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Convert --input_dimensions NAME=1,3,224,224[;NAME=...]: names and shapes, for `model_files`."""
    return tuple(_shape_of(part.strip()) for text in values for part in text.split(";"))


def _shape_of(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the name and the shape of NAME=1,3,224,224."""
    name, separator, sizes = text.rpartition("=")
    try:
        shape = tuple(int(part) for part in sizes.split(","))
    except ValueError:
        shape = ()
    if not separator or not name or not shape or min(shape) < 0:
        raise click.BadParameter(f"{text!r} is not of the form NAME=1,3,224,224 with dimensions of at least 0")
    return name, shape


def parse_input_values(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Value]:
    """Convert --input_value NAME=V0[,V1,...]: values by the names of inputs."""
    from gputune.client.model.importer import value_of

    found: dict[str, Value] = {}
    for text in values:
        name, separator, numbers = text.rpartition("=")
        if not separator or not name:
            raise click.BadParameter(f"{text!r} is not of the form NAME=16000")
        if name in found:
            raise click.BadParameter(f"input {name!r} is given twice")
        parsed = [_number(part.strip()) for part in numbers.split(",")]
        found[name] = value_of(parsed if len(parsed) > 1 else parsed[0], INPUT_VALUE)
    return found


def _number(text: str) -> bool | int | float:
    """Return a number, true or false."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number, and neither true nor false") from None


def input_value_option(several: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option that makes inputs constants; the command gets it as `input_values`. several: what holds where a
    command takes several models."""
    return click.option(
        INPUT_VALUE,
        "input_values",
        metavar="NAME=V0[,V1,...]",
        multiple=True,
        callback=parse_input_values,
        help="Make an input a constant, such as sr=16000: a number, which fills the input's shape, numbers for all of "
        f"its elements, or true or false. Repeat it for each input.{several}",
    )

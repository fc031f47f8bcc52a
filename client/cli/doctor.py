"""Define the command `gputune doctor`."""

import dataclasses
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from gputune.client.cli.say import print_json, say
from gputune.client.options.command_line import Grouped, given_of, with_options
from gputune.client.options.shared import JSON, connection

if TYPE_CHECKING:
    from gputune.client.target.client import TargetClient

_MARKS = {"ok": "ok", "note": "note", "problem": "PROBLEM"}


@click.command("doctor", cls=Grouped)
@with_options(
    *connection(
        otherwise="TARGET_SERVER_SOCKET, else a server on 127.0.0.1:22598",
        over_adb="Check adb, and whether a phone can run an agent or a target server; nothing is started there",
    ),
    JSON,
)
def command(as_json: bool, **connection: Any) -> None:
    """Explain why a device, a target or a phone is not found, and what to do.

    It checks packages, variables, drivers and their libraries, and tests every device. With --target (or
    TARGET_SERVER_SOCKET), it checks the way to that server step by step. With --adb, it checks adb and the phone, and
    starts nothing there.

    \b
    Exit codes:
       0  nothing stops a generation
       2  the address of the target is not valid
       4  a problem of the target
       8  a problem of this machine
    """
    from gputune.client.doctor.diagnosis import Question, diagnose
    from gputune.client.doctor.findings import exit_code
    from gputune.client.target.connecting import asked_connection, check_adb_alone, choose_target

    asked = asked_connection(given_of(connection))
    own = click.get_current_context().with_resource(ExitStack())  # ends the server for an agent

    def connect(address: str) -> "TargetClient":
        target = choose_target(address, os.environ, credentials=asked.credentials)
        return own.enter_context(target).connect()

    adb = asked.adb
    if adb is not None:
        check_adb_alone(adb, {"--target": asked.target}, asked.credentials)
    question = Question(
        target=asked.target,
        adb=adb is not None,
        serial=None if adb is None else adb.serial,
        python=None if adb is None else adb.python,
        agent=None if adb is None else adb.agent,
        connect=connect,
    )
    findings = diagnose(question, os.environ)
    code = exit_code(findings)
    if as_json:
        listed = [dataclasses.asdict(finding) for finding in findings]
        print_json({"findings": listed, "exit_code": code})
    else:
        for finding in findings:
            say(f"{finding.area:<9} {_MARKS[finding.status]:<8} {finding.line}")
            if finding.advice:
                say(f"{'':<19}do: {finding.advice}")
        count = sum(finding.status == "problem" for finding in findings)
        say("no problem found" if not count else f"{count} problem{'' if count == 1 else 's'} found")
    raise click.exceptions.Exit(code)

"""Give commands the options that say which target they talk to and how."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gputune.client.options.command_line import given_of, with_options
from gputune.client.options.shared import connection


def connection_options(**said: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command these options; it gets them as `connection`, an AskedConnection. said: as `connection` takes
    it."""
    options = connection(**said)

    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_connection(*arguments: Any, **values: Any) -> Any:
            from gputune.client.target.connecting import asked_connection  # what a wrong option does without

            mine = given_of({one.name: values.pop(one.name) for one in options})
            return command(*arguments, connection=asked_connection(mine), **values)

        return with_options(*options)(with_connection)

    return added

"""Format values for the `gputune performance-cache` commands."""

import json
from typing import Any

from gputune.client.cli.say import say
from gputune.client.options.option import Kind, Option

TASK = Option(
    "task",
    Kind(lambda digest, _: digest.lower(), click={"metavar": "DIGEST"}),
    "Show only tasks whose digest begins with this.",
    parameter="prefix",
    click={"default": ""},
)


def words(values: Any) -> str:
    """Return a mapping in a few words; empty values say nothing and are left out."""
    return " ".join(f"{name}={_word(value)}" for name, value in values.items() if value not in ("", [], {}))


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def size_words(size_bytes: int) -> str:
    return f"{size_bytes / 1024:.0f} KiB" if size_bytes < 1 << 20 else f"{size_bytes / (1 << 20):.1f} MiB"


def warned(text: str) -> None:
    """Say what a cache warns of."""
    say(f"warning: {text}", err=True)

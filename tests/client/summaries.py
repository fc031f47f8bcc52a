"""Check summaries for scripts against their schemas in docs/."""

import functools
from typing import Any

from jsonschema import Draft202012Validator

from gputune.core.json_text import json_value
from tests.project.sources import ROOT

SCHEMAS = ROOT / "docs" / "schemas"


@functools.cache
def schema_of(command: str) -> Any:
    """Return the schema of what a command writes with --summary_json."""
    return json_value((SCHEMAS / f"{command}.schema.json").read_text(encoding="utf-8"))


def problems(command: str, summary: Any) -> list[str]:
    """Return a line for each place where a summary is not what the schema of its command says."""
    found = Draft202012Validator(schema_of(command)).iter_errors(summary)
    return [f"{one.json_path}: {one.message}" for one in found]

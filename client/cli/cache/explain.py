"""Define `gputune performance-cache explain`: say why a generation would measure, before it does."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from gputune.client.cli.cache.shared import TASK
from gputune.client.cli.say import print_json, say
from gputune.client.errors import ConfigError
from gputune.client.options.command_line import Grouped, given_of, with_options
from gputune.client.options.generator import EXPLAINED
from gputune.client.options.shared import JSON


@click.command("explain", cls=Grouped)
@with_options(*EXPLAINED, TASK, JSON)
def explain(prefix: str, as_json: bool, **values: Any) -> None:
    """Show what a generation with the same options would do for each task of a model, and why.

    \b
    hit      the known result is used; nothing is measured
    default  the default is used, unmeasured: the task is not to be tuned
    stale    the task was tuned here, but something has changed: what
    seeded   the task, or a similar task, was tuned elsewhere: measured first
    new      nothing is known about the task

    Tasks are measured unless they are hit or default. The last choice between whole contexts follows. This command
    measures nothing and writes nothing.
    """
    from gputune.client.generation.explaining import choices_of, fields_of, lines_of
    from gputune.client.generation.generator import explain as explain_generation
    from gputune.client.generation.request import requested
    from gputune.client.progress import reporting
    from gputune.client.tuning.search.task_search import task_key

    level = "warn" if as_json else "info"
    with reporting(sys.stderr, level):
        explained = explain_generation(requested(given_of(values), Path(), log_level=level), os.environ)
    verdicts = {
        task: verdict for task, verdict in explained.verdicts.items() if task_key(task).digest.startswith(prefix)
    }
    models = ",".join(map(str, values["model"]))
    if not verdicts:
        raise ConfigError(f"no task of {models} has a digest that starts with {prefix!r}")
    if as_json:
        fields = fields_of(verdicts, explained.nodes_of)
        choices = {graph: found.to_dict() for graph, found in explained.choices.items()}
        print_json({"file": str(explained.file), "model": models, **fields, "choices": choices})
        return
    for line in [*lines_of(verdicts, explained.nodes_of), *choices_of(explained.choices)]:
        say(line)

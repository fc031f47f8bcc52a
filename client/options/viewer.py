"""Define the options of profile-viewer, and the keys of its config file: what to write in addition to the times."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

import click

from gputune.client.options.files import INPUT, INPUTS
from gputune.client.options.kinds import file, text
from gputune.client.options.option import CHECKS, FILES, INFERENCES, MAIN, Kind, option, same
from gputune.client.options.shared import LOG_LEVEL, OUTPUT_FILE
from gputune.client.strict_json import a_flag, an_object, read_keys, read_object

BUILT_IN = "optrace"
"""The reader of gputune; others can be installed."""
FORMS = "*trace*.json (for Perfetto and chrome://tracing), *.html, *.csv, any other *.json (a summary)"
"""Describes each file that the viewer writes, by its name."""
SLOWER = 12
"""The exit code where something is slower than --fail_over allows."""


def _percentage(value: str, name: str) -> float:
    """Return a text such as 5% as a share."""
    if not (found := re.fullmatch(r"(\d{1,4}(?:\.\d{1,6})?) ?%", value.strip())):
        raise click.BadParameter(f"{value!r} is no percentage; give it as 5%")
    return float(found[1]) / 100


_ZOOM = Kind(click={"type": click.FloatRange(min=0), "metavar": "MS"})


@dataclass(frozen=True)
class ViewerOptions:
    """Hold what is asked of the viewer."""

    input_log: list[Path] = option(
        list,
        file(INPUTS, "FILE[,...]"),
        "Profile log, gputune-profiling-data.log, or several separated by commas. In a list, put a path with a comma "
        "in double quotes.",
        click={"required": True},
        group=MAIN,
    )
    schematic: Path | None = option(
        None,
        file(INPUT, "F"),
        "MODEL_schematic.bin, which context-binary-generator writes next to the context.",
        group=MAIN,
    )
    output: Path | None = same(
        OUTPUT_FILE,
        None,
        help=f"File to write; its name decides the format: {FORMS}.  [default: the terminal]",
        group=MAIN,
    )
    zoom_start: float | None = option(None, _ZOOM, "Leave out inferences that end before this time.", group=INFERENCES)
    zoom_end: float | None = option(None, _ZOOM, "Leave out inferences that begin after this time.", group=INFERENCES)
    config_file: Path | None = option(
        None,
        file(INPUT, "F"),
        'JSON file that turns features on or off, such as {"features": {"runtrace": false}}.',
        declared=("--config_file", "--config", "config_file"),
        group=FILES,
    )
    reader: str = option(
        BUILT_IN,
        text("NAME"),
        "Reader that writes the file; others can be installed.",
        shown=BUILT_IN,
        group=FILES,
    )
    compare: Path | None = option(
        None, file(INPUT, "F"), "An earlier log: show what is slower or faster than there.", group=CHECKS
    )
    fail_over: float | None = option(
        None,
        Kind(_percentage, click={"metavar": "N%"}),
        f"With --compare: end with exit code {SLOWER} if anything is slower by more than this, with certainty.",
        group=CHECKS,
    )
    log_level: str = same(LOG_LEVEL, "info")


@dataclass(frozen=True)
class Features:
    """Return which features are on, by their names in the file.

    enable_input_output_flow_events: arrows from an operation to those that read its output.
    enable_sequencer_flow_events: arrows from each launch to the next. htp_json: a file with the topology and each
    operation. runtrace: when the device executes and when it has gaps, preemptions, clocks and temperatures.
    memory_info: bytes in use and bytes/s. traceback: the ONNX nodes and the model of a launch. qhas_json: a summary;
    qhas_schema: its JSON schema."""

    enable_input_output_flow_events: bool = False
    enable_sequencer_flow_events: bool = False
    htp_json: bool = True
    runtrace: bool = True
    memory_info: bool = True
    traceback: bool = True
    qhas_schema: bool = False
    qhas_json: bool = False


NAMES = tuple(each.name for each in fields(Features))
_EXAMPLE = '{"runtrace": true}'


def read_features(path: Path) -> Features:
    """Return what a config file says; what it leaves out is as usual.

    The file is {"features": {NAME: true or false}}. Raises ConfigError for anything else in it."""
    content = read_object(path, f'{{"features": {_EXAMPLE}}}')
    found: Features = read_keys(content, {"features": _features}, f"config file {path}").get("features", Features())
    return found


def _features(value: object, where: str) -> Features:
    return Features(**read_keys(an_object(value, where, _EXAMPLE), dict.fromkeys(NAMES, a_flag), where))

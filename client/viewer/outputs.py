"""Write a profile as files: the file name decides the format, the features decide which further files follow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

from gputune.client.errors import ConfigError
from gputune.client.options.viewer import FORMS, Features
from gputune.client.outputs import write_json, write_text
from gputune.client.progress import Progress
from gputune.client.viewer.profile import Profile
from gputune.client.viewer.sections.document import page_of
from gputune.client.viewer.summary import SCHEMA, summary_of
from gputune.client.viewer.topology import topology_of
from gputune.client.viewer.traces.chrome_trace import write_chrome_trace
from gputune.client.viewer.traces.csv_table import write_csv
from gputune.client.viewer.traces.timeline import Timeline
from gputune.core.logs import printable

log = logging.getLogger(__name__)

CHROME_TRACE, PAGE, TABLE, SUMMARY = "chrometrace", "html", "csv", "json"
NAME_CHARACTERS = 100
SCHEMATIC_COMMAND = "gputune context-binary-generator ... --profiling_level qhas"


def kind_of(output: Path) -> str:
    """Return what a file of this name becomes. Raises ConfigError for a name that says nothing."""
    kind = output.suffix.lower().removeprefix(".")
    if kind == SUMMARY and "trace" in output.stem.lower():
        return CHROME_TRACE
    if kind not in (PAGE, TABLE, SUMMARY):
        raise ConfigError(f"--output {output}: its name does not say what to write; there are {FORMS}")
    return kind


def check_wish(profile: Profile, features: Features | None, output: Path) -> None:
    """Check that a file can be made of a profile. Raises ConfigError."""
    kind_of(output)
    if profile.schematic is not None:
        return
    if features is not None and features.htp_json:
        raise ConfigError(
            "the feature htp_json needs the schematic of the context: give --schematic MODEL_schematic.bin, which "
            f"`{SCHEMATIC_COMMAND}` writes next to the context binary; or switch it off in --config"
        )


def write_output(profile: Profile, features: Features | None, output: Path, progress: Progress) -> list[Path]:
    """Write a file and what features ask for beside it, and return the paths of all of them.

    features: as a config file says; without one a trace is written with those that are usual, and nothing beside other
    files. Raises ConfigError, OutputError, MalformedLog."""
    check_wish(profile, features, output)
    kind = kind_of(output)
    _WRITERS[kind](profile, features or Features(), output, progress)
    beside = _beside(profile, features, output)
    for path, content in beside.items():
        write_json(path, content())
    if profile.schematic is None and _usual(features, output).htp_json:
        log.info(
            f"{_name_of(profile)}_htp.json was left out: it needs the schematic, a file that says what each launch "
            f"stands for; `{SCHEMATIC_COMMAND}` writes it next to the context binary, then give --schematic"
        )
    return [output, *beside]


def files_beside(profile: Profile, features: Features | None, output: Path) -> list[Path]:
    """Return the files that are written beside an output."""
    return list(_beside(profile, features, output))


def _beside(profile: Profile, features: Features | None, output: Path) -> dict[Path, Callable[[], Mapping[str, Any]]]:
    """Return the files that features ask for, with what makes their contents."""
    wanted, name = _usual(features, output), _name_of(profile)
    found: dict[str, Callable[[], Mapping[str, Any]]] = {}
    if wanted.htp_json and profile.schematic is not None:
        found[f"{name}_htp.json"] = lambda: topology_of(profile)
    if wanted.qhas_schema:
        found["qhas_schema.json"] = lambda: SCHEMA
    if wanted.qhas_json:
        found[f"{name}_qnn_htp_analysis_summary.json"] = lambda: summary_of(profile)
    return {output.with_name(file): content for file, content in found.items()}


def _usual(features: Features | None, output: Path) -> Features:
    """Return the features, without a config file those that are usual for an output."""
    return features or Features(htp_json=kind_of(output) == CHROME_TRACE)


def _name_of(profile: Profile) -> str:
    """Of the model, else of the first context, fit for the name of a file."""
    names = [graph.graph.context for graph in profile.graphs]
    if profile.schematic is not None:
        names.insert(0, profile.schematic.model)
    stems = (PurePath(printable(name).replace("\\", "/")).stem[:NAME_CHARACTERS] for name in names)
    return next(filter(None, stems), "profile")


_WRITERS: Mapping[str, Callable[[Profile, Features, Path, Progress], None]] = {
    CHROME_TRACE: lambda profile, features, output, progress: write_chrome_trace(
        Timeline(profile, features), output, progress
    ),
    PAGE: lambda profile, features, output, progress: write_text(output, page_of(profile)),
    TABLE: lambda profile, features, output, progress: write_csv(profile, output, progress),
    SUMMARY: lambda profile, features, output, progress: write_json(output, summary_of(profile)),
}

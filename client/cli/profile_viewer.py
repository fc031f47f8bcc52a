"""Show profiles as `gputune profile-viewer` asks for it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from gputune.client.cli.say import say
from gputune.client.cli.tables import print_block
from gputune.client.errors import ConfigError
from gputune.client.options.files import files_of_command
from gputune.client.options.viewer import BUILT_IN, SLOWER, ViewerOptions, read_features
from gputune.client.outputs import check_output
from gputune.client.pages.blocks import Column, table
from gputune.client.progress import reporting
from gputune.client.viewer.analysis.compare import compare as compared
from gputune.client.viewer.analysis.texts import cut
from gputune.client.viewer.outputs import check_wish, files_beside, kind_of
from gputune.client.viewer.profile import GraphProfile, OperationTimes, Profile, open_profile, profile_of
from gputune.client.viewer.readers import reader_named
from gputune.client.viewer.schematic import OperationPlan
from gputune.core.errors import MalformedLog

MOST_ROWS = 10
MOST_PHASES = 50
_NAME_CHARACTERS = 40
_PLAIN = {"box": None, "pad_edge": False}
_PHASES = (
    Column("phase", lambda span: f"{'  ' * span.name.count('/')}{span.name.rpartition('/')[2]}"),
    Column("ms", lambda span: f"{(span.ended_ns - span.begun_ns) / 1e6:.1f}", number=True),
)
"""The phases of a generation, those within another one below it."""


def show_profiles(asked: ViewerOptions) -> None:
    """Show or write what options ask for. Raises GputuneError."""
    chosen, output, features = reader_named(asked.reader), asked.output, None
    if asked.fail_over is not None and asked.compare is None:
        raise ConfigError("--fail_over is for --compare: give the log that the new one must not be slower than")
    if output is not None:
        if asked.reader == BUILT_IN:
            kind_of(output)
        check_output(output)
    if asked.config_file is not None:
        features = read_features(asked.config_file)
    with log_errors(), reporting(sys.stderr, asked.log_level) as progress:
        profile = open_profile(asked.input_log, asked.schematic, (asked.zoom_start, asked.zoom_end))
        if output is not None:
            if asked.reader == BUILT_IN:
                check_wish(profile, features, output)
                for path in files_beside(profile, features, output):
                    files_of_command().write(path, "a file next to --output,")
            for path in chosen(profile, features, output, progress):
                say(f"{path}: {path.stat().st_size / 1e6:.3f} MB")
        elif asked.compare is None:
            _show(profile)
        if asked.compare is not None:
            _compare(profile, asked.compare, asked.fail_over)


@contextmanager
def log_errors() -> Iterator[None]:
    """Turn what is wrong with a log or a schematic into an error of the command line."""
    try:
        yield
    except MalformedLog as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        if error.filename is None:
            raise
        raise ConfigError(f"{error.filename} cannot be read: {error.strerror}") from error


def _compare(profile: Profile, path: Path, fail_over: float | None) -> None:
    found = compared(profile, _earlier(profile, path), fail_over)
    for line in found.lines:
        say(line)
    if found.failed:
        raise click.exceptions.Exit(SLOWER)


def _earlier(profile: Profile, path: Path) -> Profile:
    """Return another log, with the same schematic where it fits."""
    other, schematic = open_profile([path]), profile.schematic
    fits = schematic is not None and any(schematic.graph(graph.graph.digest) for graph in other.graphs)
    return profile_of(other.logs, schematic) if fits else other


def _show(profile: Profile) -> None:
    for log in profile.logs:
        if not log.complete:
            say(f"{log.path} was cut off; whole inferences: {len(log.inferences)}")
        if log.spans:
            spans = sorted(log.spans, key=lambda span: (span.begun_ns, -span.ended_ns))
            print_block(table(_PHASES, spans[:MOST_PHASES]), **_PLAIN)
    shown = [graph for graph in profile.graphs if graph.inferences]
    for graph in shown:
        _show_graph(graph)
    if not shown and not any(log.spans for log in profile.logs):
        say("no inference is in these logs")


def _show_graph(graph: GraphProfile) -> None:
    count, account = len(graph.inferences), graph.account
    name = graph.graph.name + (f" of {graph.graph.context}" if graph.graph.context else "")
    inferences = "1 inference" if count == 1 else f"{count} inferences"
    say(f"graph {name}: {inferences} of {account.elapsed_ns / count / 1e6:.3f} ms on average")
    parts = (
        Column("where the time goes", lambda row: row[0]),
        Column("ms", lambda row: f"{row[1] / count / 1e6:.3f}", number=True),
        Column("share", lambda row: f"{row[1] / max(account.elapsed_ns, 1):.1%}", number=True),
    )
    print_block(table(parts, [row for row in account.rows() if row[1] or row[0] == "rest"]), **_PLAIN)
    operations = (
        Column("slowest operations", lambda one: _title(one, graph.plans.get(one.name))),
        Column("launches", lambda one: str(len(one.launches)), number=True),
        Column("median µs", lambda one: f"{one.median_ns / 1e3:.1f}", number=True),
        Column("mean µs", lambda one: f"{one.mean_ns / 1e3:.1f}", number=True),
        Column("share", lambda one: f"{graph.share(one.total_ns):.1%}", number=True),
    )
    if graph.timed:
        print_block(table(operations, sorted(graph.operations, key=lambda one: -one.total_ns)[:MOST_ROWS]), **_PLAIN)


def _title(operation: OperationTimes, plan: OperationPlan | None) -> str:
    """Return an operation's name, with its op where it does not say so itself; the middle of a long one is left out."""
    name = operation.name
    return cut(name if plan is None or plan.op.lower() in name.lower() else f"{name} ({plan.op})", _NAME_CHARACTERS)

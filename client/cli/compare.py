"""Define the command `gputune compare`."""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.table import Table

from gputune.client.cli.say import say
from gputune.client.cli.tables import add_row, print_table
from gputune.client.compare.comparing import Comparison, compare
from gputune.client.compare.gains import chart as chart_of
from gputune.client.context.verifying.distance import allowed_for
from gputune.client.context.verifying.exactness import rounds_less
from gputune.client.context.verifying.origin import IN_WORDS, Origin, headers_of
from gputune.client.context.verifying.same_model import check_outputs
from gputune.client.device_errors import device_errors
from gputune.client.errors import ConfigError
from gputune.client.generation.generator import generate
from gputune.client.generation.request import requested, told_precision
from gputune.client.model.importer import read_static_inputs
from gputune.client.model.model_files import combined
from gputune.client.options.command_line import given_of
from gputune.client.options.config import HOST, REFUSE, Config
from gputune.client.options.files import files_of_command
from gputune.client.outputs import check_output, write_summary, write_text
from gputune.client.pages.scales import time_text
from gputune.client.progress import Progress, reporting
from gputune.client.tuning.measuring.sequential import SURE
from gputune.core.dtypes import stored_in
from gputune.core.precision import EXACT, IN_FLOATS
from gputune.runtime.loading.model import open_any

log = logging.getLogger(__name__)


def run_comparison(
    model: Path,
    context_binary: Path | None,
    tuning_effort: str | None,
    device: str | None,
    compare_seconds: float,
    wait_for_quiet: int | None,
    summary_json: Path | None,
    chart: Path | None,
    log_level: str,
    **inputs: Any,
) -> None:
    """Compare a model as `gputune compare` asks for it. inputs: their shapes and values. Raises GputuneError."""
    shapes = combined(inputs["input_dimensions"])
    if len(shapes) > 1:
        raise ConfigError("--input_dimensions: compare looks at one shape at a time; give one for each input")
    if context_binary is not None and tuning_effort is not None:
        raise ConfigError("--tuning_effort has no effect on the context of --retrieve_context; drop one of them")
    if chart is not None and chart.suffix.lower() != ".svg":
        raise ConfigError(f"--chart {chart}: charts are SVG; give a name that ends in .svg")
    for path in (summary_json, chart):
        if path is not None:
            check_output(path)
    unsupported = REFUSE
    if context_binary is not None:
        with device_errors(context_binary):
            unsupported = HOST if open_any(context_binary).in_parts else REFUSE
            keeping = any(graph.states for header in headers_of(context_binary) for graph in header.graphs)
        if keeping:
            raise ConfigError(
                f"{context_binary} keeps a state, and single inferences are compared here; --verify of the generator "
                "compares steps, and net-run times them"
            )
    made = given_of({"model": [model], "device": device, **inputs})
    found, constants = read_static_inputs(model, shapes[0], made.get("input_value", {}))
    wanted = {name: info.shape for name, info in found.items()}
    origin = None if context_binary is None else Origin.of(context_binary, model)
    with reporting(sys.stderr, log_level) as progress, TemporaryDirectory(prefix="gputune-compare-") as folder:
        if origin is None:
            tuned = given_of({**made, "tuning_effort": tuning_effort, "wait_for_quiet": wait_for_quiet})
            origin = Origin.of(_generated(tuned, Path(folder) / "tuned.bin", progress), model)
        else:
            log.log(logging.WARNING if origin.match == "other" else logging.INFO, origin.words)

        def untuned() -> Path:
            rules = IN_FLOATS if any(map(rounds_less, origin.headers)) else EXACT
            asked = told_precision(origin.headers[0].configuration) | {"quantised": rules}
            config = Config(unsupported=unsupported).having(asked)
            return _generated({**made, "tuning_effort": "none"}, Path(folder) / "untuned.bin", progress, config)

        comparison = compare(origin, untuned, device, compare_seconds, progress, wait_for_quiet, constants, wanted)
        _warn(comparison)
    _print(comparison)
    if summary_json is not None:
        write_summary(summary_json, comparison.to_dict())
        say(f"wrote {summary_json}")
    if chart is not None:
        write_text(chart, chart_of(comparison))
        say(f"wrote the chart {chart}")
    if comparison.outputs is not None:
        with reporting(sys.stderr, log_level):
            check_outputs(origin, comparison.outputs, _allowed(comparison))


def _generated(given: Mapping[str, Any], binary_file: Path, progress: Progress, config: Config | None = None) -> Path:
    """Make a context, or with unsupported nodes a model in parts, and return its file."""
    request = requested(given, binary_file, config, temporary=True)
    log.info(f"making {'an untuned' if request.effort.name == 'none' else 'a tuned'} context to compare")
    generate(request, os.environ, progress, files=files_of_command())
    return binary_file if request.ep_context is None else request.ep_context.path


def _allowed(comparison: Comparison) -> float:
    return allowed_for(stored_in(comparison.precision_mode))


def _warn(comparison: Comparison) -> None:
    for one in comparison.contenders:
        if one.deviation is not None and one.deviation > _allowed(comparison):
            log.warning(
                f"outputs of {one.name} differ from the {comparison.context.name} context's by {one.deviation:.2g} of "
                "its largest value, so they do not compute the same"
            )


def _print(comparison: Comparison) -> None:
    table = Table("contender", "inference", f"{comparison.context.name} is ({SURE:.1%} interval)", "rounds", box=None)
    for one in comparison.contenders:
        said = "" if one.gain is None else one.gain.words
        add_row(table, [one.name, time_text(one.time_ns), said, str(len(one.rounds_ns))])
    print_table(table)
    say(
        f"{comparison.model}: contexts on {comparison.device}, other engines on the CPU with "
        f"{comparison.threads} thread{'s' if comparison.threads > 1 else ''}, {comparison.seconds:.0f} s"
    )
    if comparison.outputs:
        error = max(one.error for one in comparison.outputs.values())
        say(f"outputs: off by at most {error:.1e} of their largest value from {comparison.reference}")
    if comparison.entries is not None:
        say(comparison.entries.line)
    say(_conclusion(comparison))


def _conclusion(comparison: Comparison) -> str:
    if comparison.untuned is None:
        return f"the context is {IN_WORDS[comparison.tuning]}: it is not compared with itself"
    gain = comparison.untuned.gain
    assert gain is not None
    told = f"tuned against untuned: {gain.words}"
    if gain.certain or gain.settled:
        return told
    return f"{told}; a quieter machine or a longer --compare_seconds gives a clearer answer"

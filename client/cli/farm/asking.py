"""Define the options that describe a job of `gputune farm tune`."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gputune.client.cli.farm.asked import Asked, absolute, found_models
from gputune.client.cli.options.caches import folder_option
from gputune.client.cli.options.common import op_packages
from gputune.client.cli.options.files import OUTPUT_FOLDER, FileText
from gputune.client.cli.options.generation import enable_intermediate_outputs, input_dimensions, input_values
from gputune.client.cli.options.power import perf_profile_options
from gputune.client.cli.options.tuning import TuningWishes, tuning_options
from gputune.client.lists import parts_outside_quotes
from gputune.client.memory_types import OPTION as MEMORY_TYPES
from gputune.client.model.chosen_outputs import OPTION as OUTPUTS
from gputune.client.tuning.search.effort import EFFORTS
from gputune.runtime.power.profiles.perf_profile import PerfProfile


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add these options; the command gets them as `asked`, an Asked, or None where no model is named."""

    @functools.wraps(command)
    def with_job(
        *arguments: Any,
        models: tuple[str, ...],
        tiers: str,
        output_dir: Path,
        performance_cache_dir: Path | None,
        config_files: tuple[str, ...],
        op_packages: tuple[str, ...],
        perf_profile: PerfProfile | None,
        wishes: TuningWishes,
        **options: Any,
    ) -> Any:
        rest = {name: options.pop(name) for name in _AS_THEY_ARE}
        outputs, types = options.pop(OUTPUTS), options.pop(MEMORY_TYPES)
        if not models:
            return command(*arguments, asked=None, **options)
        found = found_models(models)
        stems = [path.stem for path in found]
        asked = Asked(
            models=tuple(map(str, found)),
            tiers=tuple(part.strip() for part in tiers.split(",") if part.strip()),
            output_dir=str(output_dir.resolve()),
            performance_cache_dir=None if performance_cache_dir is None else str(performance_cache_dir.resolve()),
            config_files=tuple(absolute(file, stems) for file in config_files),
            set_output_tensors=() if outputs is None else tuple(parts_outside_quotes(outputs, ";")),
            memory_types=tuple(types.split(",")),
            op_packages=tuple(map(absolute, op_packages)),
            perf_profile=None if perf_profile is None else perf_profile.to_dict(),
            wishes=wishes.fields,
            given=wishes.given,
            **rest,
        )
        return command(*arguments, asked=asked, **options)

    with_options = perf_profile_options(tuning_options(folder_option(with_job), reporting=False))
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


_AS_THEY_ARE = ("count", "tuning_effort", "input_dimensions", "input_values", "enable_intermediate_outputs")
_OPTIONS = (
    click.option(
        "--models",
        "models",
        type=FileText(),
        metavar="DIR|FILE",
        multiple=True,
        help="ONNX models, or folders of models. Repeat it, or separate them with commas; put a path with a comma in "
        "double quotes.",
    ),
    click.option(
        "--tiers",
        default="*",
        show_default=True,
        metavar="GLOB[,...]",
        help="Device tiers to tune for, by the names in `gputune farm status`.",
    ),
    click.option("--count", type=click.IntRange(min=1), help="Most devices of each tier to use.  [default: all]"),
    click.option(
        "--tuning_effort",
        type=click.Choice(tuple(EFFORTS)),
        help="How much to measure: none (nothing), quick (about 8 variants of a kernel), normal (about 100) or full "
        "(all variants).  [default: normal, or none if the config file turns tuning off]",
    ),
    click.option(
        "--output_dir",
        type=OUTPUT_FOLDER,
        default=Path("output"),
        show_default=True,
        help="Folder for the packages, MODEL.gtpkg, and their context binaries, MODEL.TIER.bin.",
    ),
    input_dimensions,
    input_values,
    enable_intermediate_outputs,
    click.option(
        f"--{OUTPUTS}",
        OUTPUTS,
        metavar="T0,T1|MODEL:T0;MODEL:T1",
        help="Also return these tensors, of all models or of a model by its name; as in context-binary-generator.",
    ),
    click.option(
        f"--{MEMORY_TYPES}",
        MEMORY_TYPES,
        default="raw",
        show_default=True,
        metavar="TYPE",
        help="raw or memhandle, NAME=memhandle,..., or MODEL:NAME=memhandle; as in context-binary-generator.",
    ),
    op_packages,
    click.option(
        "--config_file",
        "config_files",
        type=FileText(),
        multiple=True,
        metavar="FILE|MODEL:FILE",
        help="Config file as in context-binary-generator: FILE for all models, or MODEL:FILE for one model. Repeat it "
        "for each model.",
    ),
)

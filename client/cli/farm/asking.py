"""Define the options that describe a job of `gputune farm tune`."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gputune.client.cli.farm.asked import Asked, absolute, found_models
from gputune.client.lists import parts_outside_quotes
from gputune.client.options.command_line import given_of, with_options
from gputune.client.options.files import FileText
from gputune.client.options.generator import CONFIG_FILE, EVERY_OUTPUT, MEMORY, OUTPUT_DIR, OUTPUTS
from gputune.client.options.kinds import repeated, text
from gputune.client.options.option import Kind, Option, options_of
from gputune.client.options.power import perf_profile_options
from gputune.client.options.shared import (
    DIMENSIONS_OF_MODELS,
    OP_PACKAGES,
    PERFORMANCE_CACHE_DIR,
    TUNING_EFFORT,
    VALUES_OF_MODELS,
)
from gputune.client.options.tuning import TuningOptions
from gputune.runtime.power.profiles.perf_profile import PerfProfile

WISHES = tuple(one for one in options_of(TuningOptions) if one.name != "report")
"""The options about tuning: a report is about one context."""


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add these options; the command gets them as `asked`, an Asked, or None where no model is named."""

    @functools.wraps(command)
    def with_job(*arguments: Any, perf_profile: PerfProfile | None, **values: Any) -> Any:
        given = given_of({one.name: values.pop(one.name) for one in _OPTIONS})
        wishes = {one.name: given[one.name] for one in WISHES if one.name in given}
        if "models" not in given:
            return command(*arguments, asked=None, **values)
        found = found_models(given["models"])
        stems = [path.stem for path in found]
        cache: Path | None = given.get("performance_cache_dir")
        asked = Asked(
            models=tuple(map(str, found)),
            tiers=tuple(part.strip() for part in given["tiers"].split(",") if part.strip()),
            count=given.get("count"),
            tuning_effort=given.get("tuning_effort"),
            output_dir=str(given["output_dir"].resolve()),
            performance_cache_dir=None if cache is None else str(cache.resolve()),
            config_files=tuple(absolute(file, stems) for file in given.get("config_file", ())),
            input_dimensions=given.get("input_dimensions", ()),
            input_values=given.get("input_value", {}),
            enable_intermediate_outputs=given.get("enable_intermediate_outputs", False),
            set_output_tensors=tuple(parts_outside_quotes(given[OUTPUTS.name], ";")) if OUTPUTS.name in given else (),
            memory_types=tuple(given[MEMORY.name].split(",")),
            op_packages=tuple(map(absolute, given.get("op_packages", ()))),
            perf_profile=None if perf_profile is None else perf_profile.to_dict(),
            wishes=wishes,
        )
        return command(*arguments, asked=asked, **values)

    return with_options(*_OPTIONS)(perf_profile_options(with_job))


_OPTIONS = (
    Option(
        "models",
        repeated(text("DIR|FILE", type=FileText()), lambda given, _: tuple(given)),
        "ONNX models, or folders of models. Repeat it, or separate them with commas; put a path with a comma in "
        "double quotes.",
    ),
    Option(
        "tiers",
        text("GLOB[,...]"),
        "Device tiers to tune for, by the names in `gputune farm status`.",
        click={"default": "*", "show_default": True},
    ),
    Option("count", Kind(click={"type": click.IntRange(min=1)}), "Most devices of each tier to use.  [default: all]"),
    TUNING_EFFORT,
    OUTPUT_DIR.having(help="Folder for the packages, MODEL.gtpkg, and their context binaries, MODEL.TIER.bin."),
    DIMENSIONS_OF_MODELS,
    VALUES_OF_MODELS,
    EVERY_OUTPUT,
    OUTPUTS.having(
        help="Also return these tensors, of all models or of a model by its name; as in context-binary-generator.",
        click={"metavar": "T0,T1|MODEL:T0;MODEL:T1"},
    ),
    MEMORY.having(
        help="raw or memhandle, NAME=memhandle,..., or MODEL:NAME=memhandle; as in context-binary-generator.",
    ),
    OP_PACKAGES,
    CONFIG_FILE.having(
        kind=repeated(text("FILE|MODEL:FILE", type=FileText()), lambda given, _: tuple(given)),
        help="Config file as in context-binary-generator: FILE for all models, or MODEL:FILE for one model. Repeat it "
        "for each model.",
    ),
    *WISHES,
    PERFORMANCE_CACHE_DIR,
)

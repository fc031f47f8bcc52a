"""Define the options that say what to generate, for which target, and how to tune it.

The context binary generator and `performance-cache explain` share them, so that both mean the same generation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputune.client.cli.options.caches import device_tier_option, folder_option
from gputune.client.cli.options.common import (
    ConnectionOptions,
    connection_options,
    input_value_option,
    op_packages,
    parse_input_dimensions,
)
from gputune.client.cli.options.completion import device_option
from gputune.client.cli.options.files import INPUT, INPUTS
from gputune.client.cli.options.tuning import TuningWishes, tuning_options
from gputune.client.errors import ConfigError
from gputune.client.folders import default_performance_cache_dir
from gputune.client.generation.config import SUPPORTED, UNSUPPORTED, Config, choose_effort, read_config
from gputune.client.generation.config.precision import DOUBLE, DOUBLES, IO_TYPE, KEEP, MODE, QUANTISED, told_io_types
from gputune.client.model.chosen_outputs import OPTION as OUTPUTS
from gputune.client.model.chosen_outputs import ChosenOutputs
from gputune.client.model.graph import EXACT, IN_FLOATS, PRECISION_MODES, RULES, STORED
from gputune.client.model.model_files import model_files
from gputune.client.tuning.search.effort import EFFORTS, Effort
from gputune.core.dtypes import FLOAT, FLOATS, HALF

if TYPE_CHECKING:
    from gputune.client.generation.request import GenerationRequest
    from gputune.client.model.importer import Value


@dataclass(frozen=True)
class GenerationOptions:
    """What a command line asks a generation for, with the config file that it names."""

    model: Sequence[Path]
    input_dimensions: tuple[tuple[str, tuple[int, ...]], ...]
    input_values: Mapping[str, Value]
    outputs: ChosenOutputs
    config: Config
    effort: Effort
    wishes: TuningWishes
    connection: ConnectionOptions
    device: str | None
    performance_cache_dir: Path | None
    device_tier: str | None
    op_packages: tuple[str, ...]

    def request(self, binary_file: Path, **rest: Any) -> GenerationRequest:
        """Return the generation that is asked for; options come before what the config file says. Raises ConfigError
        for options that contradict each other or the config file."""
        from gputune.client.generation.request import GenerationRequest  # needs what a wrong option does without

        given = (*self.wishes.given, *(["--performance_cache_dir"] if self.performance_cache_dir else []))
        if given and self.effort.name == "none":
            raise ConfigError(
                f"{' and '.join(given)}: tuning is off, so this has no effect; drop it, or choose another "
                "--tuning_effort"
            )
        folder = self.performance_cache_dir or self.config.performance_cache_dir or default_performance_cache_dir()
        return GenerationRequest(
            models=model_files(self.model, self.input_dimensions, {**self.config.input_values, **self.input_values}),
            outputs=self.outputs,
            binary_file=binary_file,
            config=self.config,
            effort=self.effort,
            performance_cache_dir=folder,
            target=self._target,
            device=self.device,
            device_tier=self.device_tier,
            credentials=self.connection.credentials,
            adb=self.connection.adb,
            tuning=self.wishes.over(self.config.tuning),
            op_packages=self.op_packages,
            **rest,
        )

    @property
    def _target(self) -> str | None:
        """What --target says, else the config file. Raises ConfigError where another option means another server."""
        config, connection = self.config, self.connection
        if connection.target is not None or config.target is None:
            return connection.target
        for option, value in (("--device", self.device), ("--adb", connection.adb)):
            if value is not None:
                raise ConfigError(
                    f"{option} contradicts the target {config.target} in the config file; drop one of them"
                )
        return config.target


input_dimensions = click.option(
    "--input_dimensions",
    metavar="NAME=D0,D1,...",
    multiple=True,
    callback=parse_input_dimensions,
    help="Shape of a dynamic input, such as x=1,3,224,224, or size of a named dimension, such as batch=1. Repeat it "
    "for each name. Several shapes, as in 'x=1,3,48,320;x=1,3,48,640', make a graph each. With several models, "
    "MODEL:NAME sets the input of one model, and NAME sets it in every model that has it.",
)
input_values = input_value_option(
    " With several models, MODEL:NAME is the input of one model, and NAME the input of every model that has it."
)
enable_intermediate_outputs = click.option(
    "--enable_intermediate_outputs",
    is_flag=True,
    help="Also return every tensor that a kernel writes. For a tensor that is fused away, use --set_output_tensors.",
)

embedded_device = device_option(
    "Device of the embedded server: the number, or part of the name, of a device in `gputune devices`; agent:HOST:PORT "
    "for a gputune-agent; null, waiting, or replay:FILE for a recording."
)
float64 = click.option(
    f"--{DOUBLE}",
    type=click.Choice(DOUBLES),
    help=f"refuse, the default: a model that computes in float64 is refused. {FLOAT}: it computes in {FLOAT} instead, "
    f"and inputs and outputs that are float64 are {FLOAT}, too.",
)
quantised = click.option(
    f"--{QUANTISED}",
    type=click.Choice(RULES),
    help=f"How a quantised model is computed. {EXACT}, the default: as it says, and alike on all devices. {IN_FLOATS}: "
    "activations are floats that are not rounded.",
)

_GIVEN = (
    "model",
    "input_dimensions",
    "input_values",
    "wishes",
    "connection",
    "device",
    "performance_cache_dir",
    "device_tier",
    "op_packages",
)
_OPTIONS = (
    click.option(
        "--model",
        type=INPUTS,
        metavar="FILE[,...]",
        required=True,
        help="ONNX model. Several models, separated by commas, become graphs of one context that are named after their "
        "files; they share tasks, programs and equal weights.",
    ),
    input_dimensions,
    input_values,
    enable_intermediate_outputs,
    click.option(
        f"--{OUTPUTS}",
        metavar="T0,T1|G0:T0,T1;G1:T0",
        help="Also return these tensors, of all graphs or of a graph by its name. A tensor that would be fused away is "
        "kept. Put a name with a comma or a semicolon in double quotes, as in '\"a,b\",c'.",
    ),
    op_packages,
    click.option(
        "--unsupported",
        type=click.Choice(UNSUPPORTED),
        help="refuse, the default: a model with nodes that have no kernels is refused. host: such nodes stay in "
        "onnxruntime, and an ONNX file is written that runs the whole model there, with an EPContext node for each "
        "part that runs on the device. This needs onnxruntime.",
    ),
    click.option(
        f"--{MODE}",
        type=click.Choice(PRECISION_MODES),
        help=f"How tensors and weights are stored. {FLOAT}: the default. {STORED}: in float16 on any device, and "
        f"kernels compute in {FLOAT}. {HALF}: on a device that can, kernels may multiply in float16, too. A model in "
        f"float16 has {HALF} by default if the device can, and {STORED} if not.",
    ),
    click.option(
        f"--{IO_TYPE}",
        multiple=True,
        metavar="TYPE|NAME=TYPE",
        help=f"Type of the inputs and outputs, or of the one with this name: {', '.join(FLOATS)}. Repeat it for "
        "several names.  [default: as in the model]",
    ),
    click.option(
        f"--{KEEP}",
        multiple=True,
        metavar="NODE,OPTYPE,...",
        help="Store the results of these nodes, and of these types of nodes, in float32 in every precision mode.",
    ),
    float64,
    quantised,
    click.option(
        "--config_file",
        type=INPUT,
        help=f"JSON file; options override its keys. Keys: {', '.join(SUPPORTED)}.",
    ),
    connection_options(several="Servers of equal devices, separated by commas, share the tuning."),
    embedded_device,
    folder_option,
    device_tier_option,
    click.option(
        "--tuning_effort",
        type=click.Choice(tuple(EFFORTS)),
        help="How much to measure: none (nothing), quick (about 8 variants of a kernel), normal (about 100) or full "
        "(all variants).  [default: normal, or none if the config file turns tuning off]",
    ),
)


def generation_options(command: Callable[..., Any] | None = None, *, deciding: bool = False) -> Callable[..., Any]:
    """Add these options; the command gets them as `asked`, a GenerationOptions. deciding: of the options about tuning
    those alone that decide what is measured."""
    if command is None:
        return functools.partial(generation_options, deciding=deciding)

    @functools.wraps(command)
    def with_generation(*arguments: Any, config_file: Path | None, tuning_effort: str | None, **options: Any) -> Any:
        config = read_config(config_file).having(
            unsupported=options.pop("unsupported"),
            precision_mode=options.pop(MODE),
            io_type=told_io_types(options.pop(IO_TYPE)),
            keep_float32=[name for names in options.pop(KEEP) for name in names.split(",")],
            float64=options.pop(DOUBLE),
            quantised=options.pop(QUANTISED),
        )
        mine = {name: options.pop(name) for name in _GIVEN}
        mine["outputs"] = ChosenOutputs.parse(options.pop("enable_intermediate_outputs"), options.pop(OUTPUTS))
        asked = GenerationOptions(config=config, effort=choose_effort(config, tuning_effort), **mine)
        return command(*arguments, asked=asked, **options)

    with_options = tuning_options(with_generation, deciding=deciding)
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options

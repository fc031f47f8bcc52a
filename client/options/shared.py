"""Define the options that several commands have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gputune.cache import cache_files
from gputune.cache.record import EFFORTS
from gputune.client.errors import INPUT_DIMENSIONS as DIMENSIONS
from gputune.client.errors import INPUT_VALUE as VALUE
from gputune.client.errors import STATE as STATE_OPTION
from gputune.client.errors import STATE_CAPACITY as STATE_CAPACITY_OPTION
from gputune.client.folders import default_performance_cache_dir
from gputune.client.lists import comma_separated
from gputune.client.options import tuning
from gputune.client.options.completion import devices, perf_profiles, tiers
from gputune.client.options.files import (
    CONTEXT,
    CONTEXT_BINARY,
    INPUT,
    OUTPUT,
    OUTPUT_FOLDER,
    DeviceName,
    FileText,
    SearchedFolder,
)
from gputune.client.options.inputs import CAPACITIES, SHAPES, STATES, VALUES
from gputune.client.options.kinds import FLAG, PEAK, choice, file, text
from gputune.client.options.option import CACHE, DEVICE, FILES, MAIN, MODEL, Kind, Option
from gputune.core.logs import LEVELS
from gputune.core.precision import EXACT, IN_FLOATS, PRECISION_MODES, RULES
from gputune.runtime.power.profiles.presets import PRESETS

FOLDER_DEFAULT = "[default: gputune/performance in the user's cache folder]"

LOG_LEVEL = Option(
    "log_level",
    choice(*LEVELS),
    "Print messages of this level and above.",
    shown="info",
)
JSON = Option("json", FLAG, "Print JSON for tools.", parameter="as_json")
SUMMARY_JSON = Option(
    "summary_json", file(OUTPUT, "F"), "Write a summary for scripts to this file, as JSON.", group=FILES
)
OUTPUT_FILE = Option("output", file(OUTPUT, "F"), group=FILES)
OUTPUT_DIR = Option(
    "output_dir",
    file(OUTPUT_FOLDER),
    "Folder for the context binary.",
    group=FILES,
    argument="output",
    shown=Path("output"),
)
CONTEXT_OPTION = Option(
    "context_binary",
    file(CONTEXT, "F"),
    "Context binary.",
    group=MAIN,
    declared=CONTEXT_BINARY,
    click={"required": True},
)
"""--output and --context_binary of one file; each command says what they are for."""
PEAKS = (
    Option("peak_gflops", PEAK, "Peak of the device, in 10^9 operations per second.", group=DEVICE),
    Option("peak_gbps", PEAK, "Peak memory bandwidth of the device, in 10^9 bytes per second.", group=DEVICE),
)

_EACH = "Repeat it for each name."
INPUT_DIMENSIONS = Option(
    DIMENSIONS.removeprefix("--"),
    SHAPES,
    f"Shape of a dynamic input, such as x=1,3,224,224, or size of a named dimension, such as batch=1. {_EACH}",
    group=MAIN,
    argument="shapes",
    python_help="By name, shapes of inputs with dynamic dimensions, or sizes of named dimensions. A list of them makes "
    'a graph for each: {"past": [0, 1, 2]}.',
)
INPUT_VALUE = Option(
    VALUE.removeprefix("--"),
    VALUES,
    "Make an input a constant, such as sr=16000: a number, which fills the input's shape, numbers for all of its "
    "elements, or true or false. Repeat it for each input.",
    group=MODEL,
    argument="input_values",
    python_help='By name, values of inputs that become constants, such as {"sr": 16000}: a number, which fills the '
    "shape of the input, a list of numbers, or an array of that shape.",
)
STATE = Option(
    STATE_OPTION.removeprefix("--"),
    STATES,
    "Have the context keep a state, so that outputs are inputs of the next inference. auto: each output that is an "
    "input with new rows behind it. 'IN=OUT;...': these pairs, where a * in both stands for the same text. NAME of a "
    "dimension: it grows, and the model is given everything each time. With several models, MODEL:... is for one.",
    group=MODEL,
    argument="state",
    python_help='Keep a state: "auto", pairs such as "past*=present*", or the dimension that grows.',
)
STATE_CAPACITY = Option(
    STATE_CAPACITY_OPTION.removeprefix("--"),
    CAPACITIES,
    "The rows that a growing --state has room for. Of several, as in 64,256, a step runs in the smallest that it fits, "
    "by a graph of its own.",
    group=MODEL,
    argument="state_capacity",
)
DIMENSIONS_OF_MODELS = INPUT_DIMENSIONS.having(
    help=f"{INPUT_DIMENSIONS.help} Several shapes, as in 'x=1,3,48,320;x=1,3,48,640', make a graph each. With several "
    "models, MODEL:NAME sets the input of one model, and NAME sets it in every model that has it.",
)
VALUES_OF_MODELS = INPUT_VALUE.having(
    help=f"{INPUT_VALUE.help} With several models, MODEL:NAME is the input of one model, and NAME the input of every "
    "model that has it.",
)
PRECISION_MODE = Option("precision_mode", choice(*PRECISION_MODES), group=MODEL, argument="precision_mode")
QUANTISED = Option(
    "quantised",
    choice(*RULES, value=f"`{EXACT}` (default) or `{IN_FLOATS}`"),
    f"How a quantised model is computed. {EXACT}, the default: as it says, and alike on all devices. {IN_FLOATS}: "
    "activations are floats that are not rounded.",
    group=MODEL,
    argument="quantised",
)
"""precision_mode and quantised of a model, for every command that makes a plan of it."""


class _OpPackages(FileText):
    """Names of op packages with commas between them; those that are folders are told by a generation."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            found = tuple(part.strip() for part in comma_separated(value))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        if not all(found):
            raise click.BadParameter("a name is empty")
        return found


OP_PACKAGES = Option(
    "op_packages",
    Kind(
        lambda values, _: tuple(name for names in values for name in names),
        python=lambda values, _: tuple(map(str, values)),
        click={"type": _OpPackages(), "metavar": "P[,...]", "multiple": True},
        hint="Sequence[AnyPath]",
        nothing=(),
    ),
    "Use kernels and operators from these op packages: folders, or entry points of the group gputune.op_packages. "
    "Their code runs with your rights.",
    group=MODEL,
    argument="op_packages",
    python_help="Packages with your operators and kernels. Their code runs with your rights.",
)
DEVICE_OPTION = Option(
    "device",
    text("D", type=DeviceName(), shell_complete=devices),
    "Device of the embedded server: the number, or part of the name, of a device in `gputune devices`; agent:HOST:PORT "
    "for a gputune-agent; null, waiting, or replay:FILE for a recording.",
    group=DEVICE,
    argument="device",
)
WAIT_FOR_QUIET = Option("wait_for_quiet", *tuning.WAIT_FOR_QUIET)
TUNING_EFFORT = Option(
    "tuning_effort",
    choice(*EFFORTS),
    "How much to measure: none (nothing), quick (about 8 variants of a kernel), normal (about 100) or full "
    "(all variants).  [default: normal, or none if the config file turns tuning off]",
    group=MAIN,
    argument="effort",
)


def _inner_folder(value: Path, name: str) -> Path:
    """Return the folder of caches, which is also found in the folder above, ~/.cache/gputune."""
    if not value.is_dir() or cache_files(value):
        return value
    below = value / default_performance_cache_dir().name
    return below if cache_files(below) else value


PERFORMANCE_CACHE_DIR = Option(
    "performance_cache_dir",
    file(SearchedFolder(), "D", "folder", text=_inner_folder),
    f"Folder of the performance caches.  {FOLDER_DEFAULT}",
    group=CACHE,
    argument="cache",
)
DEVICE_TIER = Option(
    "device_tier",
    text("NAME", shell_complete=tiers),
    "Use the performance cache of this tier instead of the device's own tier.",
    group=CACHE,
)

TARGET = Option("target", text("HOST:PORT"), group=MAIN, argument="target")
_ADDRESS = "Address of the target server, unix:PATH for a local socket, or agent:HOST:PORT for a gputune-agent."
_CREDENTIALS = (
    Option(
        "token_file",
        file(INPUT, "F"),
        "File with the target server's or the agent's token, which only you can read.  [default: GPUTUNE_TOKEN, "
        "before it GPUTUNE_AGENT_TOKEN for an agent]",
        group=DEVICE,
        argument="token_file",
    ),
    Option(
        "tls_ca",
        file(INPUT, "F"),
        "Connect over TLS, and check the server's certificate against this authority's certificate.",
        group=DEVICE,
    ),
    Option(
        "tls_cert",
        file(INPUT, "F"),
        "Client certificate, for a server that asks for a certificate.",
        group=DEVICE,
    ),
    Option("tls_key", file(INPUT, "F"), "Key of --tls_cert.", group=DEVICE),
)
_ADB = Option("adb", text("[SERIAL]", is_flag=False, flag_value=""), group=DEVICE)
_ON_PHONE = (
    Option(
        "adb_python",
        text("PATH"),
        "Use this Python on the phone, or termux if you start the server by hand in Termux.  [default: an "
        "agent if one was built for the phone, else a Python is searched for there]",
        group=DEVICE,
    ),
    Option(
        "adb_agent",
        file(INPUT, "F"),
        "Use this gputune-agent on the phone.  [default: build/agents/TRIPLE of a checkout]",
        group=DEVICE,
    ),
)


def connection(
    otherwise: str = "TARGET_SERVER_SOCKET, else a server on 127.0.0.1:22598, else an embedded server",
    over_adb: str = "Start a target server on a phone over adb, and use it",
    several: str = "",
) -> Sequence[Option]:
    """Return the options that say which target a command talks to and how. `otherwise` says in the help what is used
    when no target is named, `over_adb` what --adb does, `several` what more than one target is for."""
    said = f"{_ADDRESS} {several}" if several else _ADDRESS
    target = TARGET.having(
        help=f"{said}  [default: {otherwise}]", click={"metavar": f"HOST:PORT{'[,...]' if several else ''}"}
    )
    adb = _ADB.having(help=f"{over_adb}. SERIAL selects one of several phones.")
    return (target, *_CREDENTIALS, adb, *_ON_PHONE)


PERF_PROFILE = (
    Option(
        "perf_profile",
        text("NAME", shell_complete=perf_profiles),
        f"Clocks and power to request while the device works, and to release afterwards: {', '.join(PRESETS)}. "
        "`gputune power check --perf_profile NAME` shows what that writes.  [default: leave the device as it is]",
        group=DEVICE,
    ),
    Option(
        "perf_config_yaml",
        file(INPUT, "F"),
        "Perf profile from a YAML file in the original tools' format.",
        group=DEVICE,
    ),
)

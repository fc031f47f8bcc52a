"""Define the options of the context binary generator and of model-check: they decide what is made of a model."""

from __future__ import annotations

from gputune.client.memory_types import OPTION as MEMORY_TYPES
from gputune.client.options import shared
from gputune.client.options.config import CONFIGURED, KEYS, AskedPrecision
from gputune.client.options.files import INPUT, INPUTS, OUTPUT, FileText
from gputune.client.options.kinds import FLAG, choice, file, text
from gputune.client.options.option import (
    CHECKS,
    FILES,
    MAIN,
    MODEL,
    Option,
    options_of,
)
from gputune.client.options.originals import BACKEND
from gputune.runtime.profiling.levels import LEVELS, LOG_NAME, SYNONYMS

MODEL_OPTION = Option(
    "model",
    file(INPUTS, "FILE[,...]"),
    "ONNX model. Several models, separated by commas, become graphs of one context that are named after their "
    "files; they share tasks, programs and equal weights.",
    group=MAIN,
    argument="model",
    python_help="A file, or several for one context with a graph each.",
    click={"required": True},
)
BINARY_FILE = Option(
    "binary_file",
    text("NAME", type=FileText()),
    "Name of the context binary; .bin is appended. An absolute path overrides --output_dir.",
    group=FILES,
    argument="output",
    python_help="The context binary, by default MODEL.bin in the folder output.",
    click={"required": True},
)
CONFIG_FILE = Option(
    "config_file",
    file(INPUT),
    "JSON file; options override its keys. Keys: "
    f"{', '.join(one.key for one in KEYS.options if one.key and 'file' in one.sections)}.",
    group=FILES,
    argument="config_file",
    python_help="JSON file; arguments override its keys.",
)
EVERY_OUTPUT = Option(
    "enable_intermediate_outputs",
    FLAG,
    "Also return every tensor that a kernel writes. For a tensor that is fused away, use --set_output_tensors.",
    group=MODEL,
)
OUTPUTS = Option(
    "set_output_tensors",
    text("T0,T1|G0:T0,T1;G1:T0"),
    "Also return these tensors, of all graphs or of a graph by its name. A tensor that would be fused away is "
    "kept. Put a name with a comma or a semicolon in double quotes, as in '\"a,b\",c'.",
    group=MODEL,
)
MEMORY = Option(
    MEMORY_TYPES,
    text("TYPE"),
    "raw: inputs and outputs are arrays, which are copied. memhandle: they are memory handles, and loading "
    "allocates no memory for them. NAME=memhandle,... sets single tensors, GRAPH:NAME a tensor of one graph. The "
    "context runs with either kind in any case.",
    group=MODEL,
    shown="raw",
)
VERIFY = Option(
    "verify",
    FLAG,
    "Compare the context with onnxruntime. If they differ, name the first operation on the target that differs.",
    group=CHECKS,
    argument="verify",
)
_CONFIGURED = tuple(one for one in CONFIGURED if not one.only_key)
_MODEL = (MODEL_OPTION, shared.DIMENSIONS_OF_MODELS, shared.TUNING_EFFORT, OUTPUTS, EVERY_OUTPUT, shared.OP_PACKAGES)
_PLACE = (
    CONFIG_FILE,
    shared.DEVICE_OPTION,
    *shared.connection(several="Servers of equal devices, separated by commas, share the tuning."),
    shared.DEVICE_TIER,
)
EXPLAINED = (*_MODEL, *(one for one in _CONFIGURED if one.decides), *_PLACE)
"""What decides the tasks of a generation, and what is measured of them."""
GENERATOR = (
    BINARY_FILE,
    shared.OUTPUT_DIR,
    BACKEND,
    *_MODEL,
    *_CONFIGURED,
    *_PLACE,
    VERIFY,
    Option(
        "input_list",
        file(INPUT),
        "Inputs for --verify, in net-run's format.  [default: random inputs]",
        group=CHECKS,
    ),
    Option(
        "ep_context",
        file(OUTPUT, "FILE.onnx"),
        "Also write an ONNX file that contains or names the context binary, in ONNX Runtime's EPContext operator. "
        "[with --unsupported host: NAME_ctx.onnx next to the context binary]",
        group=FILES,
    ),
    Option(
        "ep_context_embed_mode",
        choice("0", "1"),
        "0, the default: the file of --ep_context names the context binary, which lies in the same folder or below. "
        "1: the file contains the context binary.",
        group=FILES,
    ),
    MEMORY,
    Option(
        "profiling_level",
        choice(*LEVELS, *SYNONYMS),
        "Write a schematic for reading profiles, NAME_schematic.bin next to the context binary, and the times of the "
        f"generation's phases to {LOG_NAME} in OUTPUT_DIR/profilelogs, or in ./profilelogs without --output_dir. "
        "basic: whole phases. All other levels: also the parts of each phase.",
        group=FILES,
    ),
    Option(
        "profiling_option",
        choice("optrace"),
        "optrace: write the schematic and the log as --profiling_level does, at level detailed or above.",
        group=FILES,
    ),
    *shared.PERF_PROFILE,
    shared.LOG_LEVEL,
    shared.SUMMARY_JSON,
)

MODEL_CHECK = (
    shared.INPUT_DIMENSIONS,
    shared.INPUT_VALUE,
    shared.STATE,
    shared.STATE_CAPACITY,
    shared.PRECISION_MODE.having(
        help="Count tasks and bytes for this mode of context-binary-generator.  [default: as the model has floats]"
    ),
    *(one for one in options_of(AskedPrecision) if one.name in ("float64", "quantised")),
    shared.JSON,
    *shared.PEAKS,
    shared.DEVICE_OPTION.having(
        help="Measure the peaks on this device: its number, or part of its name, in `gputune devices`."
    ),
    shared.OP_PACKAGES,
)
"""The options of `gputune model-check`."""

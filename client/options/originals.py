"""Handle options that users of the original tools know.

Some are accepted unchanged. The others are refused by name, each with what to use instead.
"""

from collections.abc import Mapping

import click

from gputune.client.options.option import ORIGINALS, Kind, Option

_BACKENDS = ("libQnnGpu.so", "QnnGpu.dll", "opencl")
"""What the original's backend for GPUs is called, and gputune's own."""
_ONE_FILE = "the context binary is the only file that is written; it holds programs and weights"
_PLATFORM = "there is one platform; --device says which device, --target or --adb on which machine"
_MODELS = "models are ONNX files; give them to --model"
_NO_LIBRARY = "no library is loaded; omit it"
_IN_TURN = "inferences of a context follow one another; throughput-net-run runs several at the same time"

REFUSED: Mapping[str, Mapping[str, str]] = {
    "context-binary-generator": {
        "--backend_binary": _ONE_FILE,
        "--data_format_config": "tensors have the shapes and types of the ONNX model; omit it",
        "--dlc_path": _MODELS,
        "--model_prefix": _MODELS,
        "--platform_options": _PLATFORM,
        "--system_library": _NO_LIBRARY,
    },
    "net-run": {
        "--batch_multiplier": "a context has the batch that it was made for; see --input_dimensions of the generator",
        "--debug": "give --enable_intermediate_outputs to context-binary-generator, and run the context that it makes",
        "--dlc_path": "make a context of the ONNX model with context-binary-generator, and give it to "
        "--retrieve_context",
        "--max_input_cache_size_mb": "inputs are read before an inference is timed; omit it",
        "--max_input_cache_tensor_sets": "inputs are read before an inference is timed; omit it",
        "--model": "make a context of it with context-binary-generator, and give that to --retrieve_context",
        "--native_input_tensor_names": "all raw files hold the tensor's own type; omit it",
        "--op_packages": "give them to context-binary-generator; a context holds their programs",
        "--output_data_type": "raw files hold the tensor's own type; --npy writes files that state the type",
        "--platform_options": _PLATFORM,
        "--set_output_tensors": "give it to context-binary-generator, and run the context that it makes",
        "--synchronous": _IN_TURN,
        "--system_library": _NO_LIBRARY,
        "--use_mmap": "a context is read from its file part by part; omit it",
    },
    "throughput-net-run": {
        "--backend": "there is one backend; --device says which device",
        "--iteration": "give --duration",
        "--output": "give --summary_json",
    },
    "context-binary-utility": {"--backend": "a context states what it was made for; omit it"},
    "profile-viewer": {
        "--extract_opaque_objects": "--output x.json shows everything that a log holds; omit it",
        "--standardized_json_output": "give --output, with a name that ends in .json",
    },
}
"""By the command and the option."""


def refusal(error: click.NoSuchOption) -> str | None:
    """Return what is said of an option of the original tools that a command does not have; None for any other."""
    command = None if error.ctx is None else error.ctx.info_name
    instead = REFUSED.get(command or "", {}).get(error.option_name)
    return None if instead is None else f"{error.option_name} of the original tool is refused: {instead}"


VERSION = click.version_option(package_name="gputune", prog_name="gputune", message="%(prog)s %(version)s")


def with_version(command: click.Command) -> click.Command:
    """Return the command, and each command of a group, with an option that says which gputune this is."""
    for one in command.commands.values() if isinstance(command, click.Group) else ():
        with_version(one)
    if not any("--version" in parameter.opts for parameter in command.params):
        VERSION(command)
    return command


def _checked_backend(value: str, name: str) -> str:
    if value.replace("\\", "/").rpartition("/")[2] not in _BACKENDS:
        raise click.BadParameter(
            f"{value!r} is not a backend of gputune, which runs on OpenCL devices only: omit it, or keep "
            f"{_BACKENDS[0]}, which means the same; --device says which device"
        )
    return value


BACKEND = Option(
    "backend",
    Kind(_checked_backend, click={"metavar": "FILE", "expose_value": False}),
    f"Accepted for users of other tools: {', '.join(_BACKENDS[:-1])} and {_BACKENDS[-1]} all mean OpenCL. No "
    "library is loaded.",
    group=ORIGINALS,
)
"""--backend, which can only say what is the case."""
NATIVE_FILES = tuple(
    Option(
        f"use_native_{what}_files",
        Kind(click={"is_flag": True, "expose_value": False}),
        f"{verb} raw {what} files in the tensor's own type. Accepted for users of other tools: this is always so.",
        group=ORIGINALS,
    )
    for what, verb in (("input", "Read"), ("output", "Write"))
)

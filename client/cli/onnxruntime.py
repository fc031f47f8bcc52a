"""Define `gputune onnxruntime`: build the library by which onnxruntime runs contexts."""

import os
import shutil
import sys
from pathlib import Path

import click

from gputune.client.cli.groups import CommandGroup
from gputune.client.cli.say import say
from gputune.client.errors import GputuneError
from gputune.client.options.command_line import with_options
from gputune.client.options.shared import OUTPUT_FILE
from gputune.client.outputs import check_output, whole


@click.group("onnxruntime", cls=CommandGroup)
def command() -> None:
    """Run contexts inside onnxruntime: as a plugin, gputune runs the EPContext nodes of an ONNX file.

    Your application keeps its session; two lines give it the OpenCL device:

    \b
    gputune.onnxruntime.register()
    options.add_provider_for_devices(gputune.onnxruntime.devices(), {})
    """


@command.command("build")
@with_options(OUTPUT_FILE.having(help="Also write the library to this file, for a machine without a C compiler."))
def build(output: Path | None) -> None:
    """Build the plugin's library with your C compiler, and print its path.

    You need this only to prepare a machine or an image, because `gputune.onnxruntime.register()` builds the library on
    first use. It takes some seconds, and the library is kept in your cache folder. GPUTUNE_CC names another compiler.

    \b
    # a library for another machine with the same kind of processor
    gputune onnxruntime build --output libgputune_onnxruntime.so
    # on that machine
    export GPUTUNE_ONNXRUNTIME_LIBRARY=/opt/libgputune_onnxruntime.so

    In Python, register the plugin and choose its devices:

    \b
    options = onnxruntime.SessionOptions()
    gputune.onnxruntime.register()
    options.add_provider_for_devices(gputune.onnxruntime.devices(), {})
    session = onnxruntime.InferenceSession("model.onnx", options)

    Applications in other languages give the printed path to onnxruntime's RegisterExecutionProviderLibrary.
    """
    from gputune.client.progress import reporting
    from gputune.runtime.native.building import NotBuilt, native_part
    from gputune.runtime.onnxruntime import LIBRARY

    if output is not None:
        check_output(output)
    with reporting(sys.stderr):
        try:
            library = native_part("onnxruntime")
        except NotBuilt as error:
            raise GputuneError(f"the library for onnxruntime cannot be built: {error}") from None
    if output is not None:
        with whole(output) as unfinished:
            shutil.copyfile(library, unfinished)
    say(str(library if output is None else output))
    if named := os.environ.get(LIBRARY):
        say(f"note: {LIBRARY} names the library that onnxruntime loads here: {named}", err=True)

"""Define the command `gputune export`."""

from pathlib import Path

import click

from gputune.client.cli.say import say
from gputune.client.options.command_line import Grouped, with_options
from gputune.client.options.option import MAIN
from gputune.client.options.shared import CONTEXT_OPTION, OUTPUT_DIR
from gputune.client.outputs import check_output


@click.command("export", cls=Grouped)
@with_options(
    CONTEXT_OPTION.having(help="Context binary, package, or ONNX file with EPContext nodes."),
    OUTPUT_DIR.having(help="Folder to write: new, or empty.", group=MAIN, shown=None, click={"required": True}),
)
def command(context_binary: Path, output_dir: Path) -> None:
    """Write a folder that builds on its own: the C runtime, a context, and a program that runs it on files.

    An application on the device then needs neither Python nor gputune, only libOpenCL.so. The README in the folder
    explains how to build it with make, with CMake and for Android, and how to put your own application in its place.

    \b
    gputune export --context_binary output/model.bin --output_dir app
    make -C app
    cd app
    build/gputune-run --context_binary model.bin --input_list input_list.txt
    """
    from gputune.client.device_errors import device_errors
    from gputune.client.doctor.drivers import loader_of_c
    from gputune.client.export.contents import read_contents
    from gputune.client.export.exporting import export

    check_output(output_dir, folder=True)
    with device_errors(context_binary):
        contents = read_contents(context_binary)
    export(contents, output_dir)
    say(f"{output_dir}: builds with `make -C {output_dir}`; README.md in it says more")
    for finding in loader_of_c():
        if finding.status != "ok":
            say(f"warning: {finding.line}", err=True)

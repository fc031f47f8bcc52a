"""Define the command `gputune context-binary-utility`, which context_binary_utility.py runs."""

from typing import Any

import click

from gputune.client.options.command_line import Grouped, with_options
from gputune.client.options.files import CONTEXTS, MODEL, OUTPUT
from gputune.client.options.kinds import FLAG, file
from gputune.client.options.option import Option
from gputune.client.options.shared import CONTEXT_OPTION, JSON


@click.command("context-binary-utility", cls=Grouped)
@with_options(
    CONTEXT_OPTION.having(
        kind=file(CONTEXTS, "FILE[,...]"),
        help="Context binary, or several separated by commas, to see what memory they need as a group. In a list, put "
        "a path with a comma in double quotes.",
    ),
    JSON.having(help="Print JSON for tools: all that the headers say."),
    Option("json_file", file(OUTPUT), "Also write that JSON to a file."),
    Option("compatibility", FLAG, "Also show how it fits each device of this machine."),
    Option(
        "check",
        file(MODEL, "MODEL"),
        "Check that the context is of this ONNX model; the other options are not needed. If it was made from another "
        "file, its inputs, outputs and results are compared on this machine.",
    ),
)
def command(**values: Any) -> None:
    """Show what a context binary contains.

    The output says what it was made from and for, and lists its graphs, their sizes, and what tuning gained. The last
    lines have max_spill_fill_size, the bytes of arenas: of each graph, and of all graphs in a group that shares them.

    Only the header is read; no device is needed. Of an ONNX file, the first main context is shown, and what its nodes
    say; of a model in parts also how many nodes run in onnxruntime. Of a package, each context is shown with its tier,
    and the memory is the most that any of them needs.

    With --check, the command ends with 0 if the context was made from the model file, or, with a warning, from another
    file that computes the same. Exit code 3 means other inputs or outputs, 10 other results.
    """
    from gputune.client.cli.context_binary_utility import show_contexts  # which a wrong option does without

    show_contexts(**values)

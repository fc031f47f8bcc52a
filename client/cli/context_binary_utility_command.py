"""Define the command `gputune context-binary-utility`, which context_binary_utility.py runs."""

from typing import Any

import click

from gputune.client.options.files import CONTEXT_BINARY, CONTEXTS, MODEL, OUTPUT


@click.command("context-binary-utility")
@click.option(
    *CONTEXT_BINARY,
    type=CONTEXTS,
    metavar="FILE[,...]",
    required=True,
    help="Context binary, or several separated by commas, to see what memory they need as a group. In a list, put a "
    "path with a comma in double quotes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for tools: all that the headers say.")
@click.option("--json_file", type=OUTPUT, help="Also write that JSON to a file.")
@click.option("--compatibility", is_flag=True, help="Also show how it fits each device of this machine.")
@click.option(
    "--check",
    type=MODEL,
    metavar="MODEL",
    help="Check that the context is of this ONNX model; the other options are not needed. If it was made from another "
    "file, its inputs, outputs and results are compared on this machine.",
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

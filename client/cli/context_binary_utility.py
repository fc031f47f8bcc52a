"""gputune context-binary-utility"""

from pathlib import Path

import click

from gputune.client.cli.device_errors import device_errors
from gputune.client.cli.say import print_json
from gputune.client.outputs import write_json
from gputune.runtime.context.format import read_header


@click.command("context-binary-utility")
@click.option("--context_binary", type=click.Path(path_type=Path), required=True, help="The context binary.")
@click.option("--json_file", type=click.Path(path_type=Path), help="Where to write; standard output otherwise.")
def command(context_binary: Path, json_file: Path | None) -> None:
    """Write what a context binary holds as JSON: graphs, tensors, device, versions, configuration, sizes.

    Only the header is read; no device is needed.
    """
    with device_errors(context_binary):
        header = read_header(context_binary)
    content = header.to_dict() | {"file_bytes": context_binary.stat().st_size}
    if json_file is None:
        print_json(content)
        return
    write_json(json_file, content)

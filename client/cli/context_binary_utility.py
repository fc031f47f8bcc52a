"""gputune context-binary-utility"""

from pathlib import Path

import click

from gputune.client.cli.device_errors import device_errors
from gputune.client.cli.say import print_json
from gputune.client.outputs import write_json
from gputune.core.statuses import ContextVerdict
from gputune.runtime.context.ep_context import EpContext, ep_contexts, is_ep_context
from gputune.runtime.context.format import read_header
from gputune.runtime.context.records import ContextHeader
from gputune.runtime.devices.discovery import discover
from gputune.runtime.execution.loading import verdict_on


@click.command("context-binary-utility")
@click.option("--context_binary", type=click.Path(path_type=Path), required=True, help="The context binary.")
@click.option("--json_file", type=click.Path(path_type=Path), help="Where to write; standard output otherwise.")
@click.option("--compatibility", is_flag=True, help="Say how it fits each device of this machine, too.")
def command(context_binary: Path, json_file: Path | None, compatibility: bool) -> None:
    """Write what a context binary holds as JSON: graphs, tensors, device, versions, configuration, sizes.

    Only the header is read; no device is needed. Of an ONNX file it is the first main context, and what its nodes say.
    """
    with device_errors(context_binary):
        nodes = ep_contexts(context_binary) if is_ep_context(context_binary) else []
        header = next(node for node in nodes if node.main).open().header if nodes else read_header(context_binary)
        content = header.to_dict() | {"file_bytes": context_binary.stat().st_size}
        if nodes:
            content["ep_contexts"] = list(map(_shown, nodes))
        if compatibility:
            content["compatibility"] = _verdicts(header)
    if json_file is None:
        print_json(content)
        return
    write_json(json_file, content)


def _shown(node: EpContext) -> dict[str, object]:
    """What a node of an ONNX file says; context is the file, or the number of bytes of one that it holds."""
    context = node.content.nbytes if isinstance(node.content, memoryview) else str(node.content)
    return {"name": node.name, "main": node.main, "max_size": node.max_size, "context": context}


def _verdicts(header: ContextHeader) -> list[dict[str, str]]:
    """How a context fits the devices here, in the order of `gputune devices`."""
    found = []
    for report in discover():
        if report.identity is not None:
            verdict, reason = verdict_on(header, header.graphs, report.identity, not report.simulated)
            if not report.usable:
                verdict, reason = ContextVerdict.UNSUPPORTED, report.reason
            found.append({"device": report.title, "verdict": verdict.value, "reason": reason})
    return found

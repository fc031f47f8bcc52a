"""Write an ONNX file that stands for a context binary, with an EPContext node for each graph, as ONNX Runtime's tools
exchange compiled models. runtime/context/ep_context.py reads it.

The first node is the main node: it holds the context or names its file. Its max_size is the bytes of arenas in which
each graph of the context can run, as ONNX Runtime means it. The other nodes refer to it, and their max_size is for
their own graph. If tensors of several graphs have the same name, as with one model in different shapes, all are called
GRAPH/NAME.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from gputune.client.errors import ConfigError, OutputError
from gputune.client.outputs import check_output, whole
from gputune.runtime.context.ep_context import (
    DOMAIN,
    LARGEST_FILE_BYTES,
    OPERATOR,
    SOURCE,
    is_ep_context,
    leaves_folder,
)
from gputune.runtime.context.format import read_header
from gputune.runtime.context.memory_need import MemoryNeed
from gputune.runtime.context.records import ContextHeader, TensorRecord

IR_VERSION, ONNX_OPSET, DOMAIN_OPSET = 8, 17, 1
"""Old enough for every ONNX Runtime that knows the operator."""
ROOM_BYTES = 64
"""More than the lengths take that an embedded context makes longer."""


@dataclass(frozen=True)
class EpContextFile:
    """The file that is asked for. embed: whether it holds the context, else it names the file of the context."""

    path: Path
    embed: bool

    def check(self, binary_file: Path) -> None:
        """Raises ConfigError for a file that could not be loaded, OutputError for one that cannot be written."""
        if not is_ep_context(self.path):
            raise ConfigError(f"--ep_context {self.path}: the name must end in .onnx, or loading does not recognise it")
        if not self.embed and (why := leaves_folder(self._relative(binary_file))):
            raise ConfigError(
                f"--ep_context {self.path}: the path to the context binary {binary_file} {why}; put both into one "
                "folder, or use --ep_context_embed_mode 1"
            )
        check_output(self.path)

    def write(self, binary_file: Path) -> int:
        """Writes the file for a context binary and returns its bytes; it appears complete or not at all. Raises
        OutputError, and ContextError for what is no context binary."""
        header = read_header(binary_file)
        size = binary_file.stat().st_size if self.embed else 0
        content = b"" if self.embed else self._relative(binary_file).encode()
        if size and (total := _model(header, self.embed, content).ByteSize() + size + ROOM_BYTES) > LARGEST_FILE_BYTES:
            raise OutputError(
                f"{self.path} cannot be written: with the context it would have {total} bytes, but an ONNX file "
                f"has {LARGEST_FILE_BYTES} at most; use --ep_context_embed_mode 0"
            )
        with whole(self.path) as unfinished:
            model = _model(header, self.embed, binary_file.read_bytes() if self.embed else content)
            return unfinished.write_bytes(model.SerializeToString())

    def _relative(self, binary_file: Path) -> str:
        """The path of the context binary from the folder of this file. Raises ConfigError for one that is no text."""
        found = os.path.relpath(binary_file.parent.resolve() / binary_file.name, self.path.parent.resolve())
        try:
            found.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"--ep_context: the name of {binary_file} is not UTF-8") from None
        return found


def _model(header: ContextHeader, embed: bool, content: bytes) -> onnx.ModelProto:
    """The nodes of all graphs. content: the context, or the path of its file."""
    names = [tensor.name for graph in header.graphs for tensor in (*graph.inputs, *graph.outputs)]
    clash = max(Counter(names).values(), default=0) > 1
    need = MemoryNeed.of(header.device, header.graphs)
    nodes, inputs, outputs = [], [], []
    for number, graph in enumerate(header.graphs):
        prefix = f"{graph.name}/" if clash else ""
        ins, outs = list(_values(graph.inputs, prefix)), list(_values(graph.outputs, prefix))
        node = helper.make_node(
            OPERATOR,
            [value.name for value in ins],
            [value.name for value in outs],
            name=graph.name,
            domain=DOMAIN,
            embed_mode=int(embed),
            ep_sdk_version=header.versions.get("gputune", ""),
            main_context=int(number == 0),
            max_size=sum(need.arena_bytes) if number == 0 else need.graphs[number].total_bytes,
            notes=f"made for {header.device.name} ({header.device.platform})",
            partition_name=graph.name,
            source=SOURCE,
        )
        if number == 0:  # behind what is short, which is read without it
            node.attribute.append(helper.make_attribute("ep_cache_context", content))
        nodes.append(node)
        inputs += ins
        outputs += outs
    return helper.make_model(
        helper.make_graph(nodes, header.graphs[0].name or SOURCE, inputs, outputs),
        producer_name=SOURCE,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", ONNX_OPSET), helper.make_opsetid(DOMAIN, DOMAIN_OPSET)],
    )


def _values(tensors: tuple[TensorRecord, ...], prefix: str) -> Iterator[onnx.ValueInfoProto]:
    for tensor in tensors:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
        yield helper.make_tensor_value_info(prefix + tensor.name, kind, tensor.shape)

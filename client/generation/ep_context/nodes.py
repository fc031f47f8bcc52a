"""Make EPContext nodes, each of which stands for a graph of a context binary.

The first node of a file is the main node: it holds the context or names its file. Its max_size is the bytes of arenas
in which each graph of the context can run, as ONNX Runtime means it. The other nodes refer to it, and their max_size is
for their own graph.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from onnx import ModelProto, NodeProto, OperatorSetIdProto, helper

from gputune.runtime.context.ep_context import (
    COMPATIBILITY_KEY,
    DOMAIN,
    OPERATOR,
    SOURCE,
    compatibility_info,
)
from gputune.runtime.context.format import read_header
from gputune.runtime.context.memory_need import MemoryNeed
from gputune.runtime.context.records import ContextHeader

DOMAIN_OPSET = 1


@dataclass(frozen=True)
class Nodes:
    """Makes the nodes of a file. content: the context if `embed`, else the path of its file."""

    binary_file: Path
    embed: bool
    content: bytes

    @cached_property
    def header(self) -> ContextHeader:
        """The context's. Raises ContextError."""
        return read_header(self.binary_file)

    def of(self, graph: str, inputs: Sequence[str], outputs: Sequence[str], main: bool) -> NodeProto:
        """Return the node of a graph by its name, with names for its inputs and outputs in their order. Raises
        ContextError."""
        header = self.header
        need = MemoryNeed.of(header.device, header.graphs)
        own = need.graphs[[one.name for one in header.graphs].index(graph)].total_bytes
        node = helper.make_node(
            OPERATOR,
            inputs,
            outputs,
            name=graph,
            domain=DOMAIN,
            embed_mode=int(self.embed),
            ep_sdk_version=header.versions.get("gputune", ""),
            main_context=int(main),
            max_size=sum(need.arena_bytes) if main else own,
            notes=f"made for {header.device.name} ({header.device.platform})",
            partition_name=graph,
            source=SOURCE,
        )
        if main:  # behind what is short, which is read without it
            node.attribute.append(helper.make_attribute("ep_cache_context", self.content))
        return node

    def marked(self, model: ModelProto) -> ModelProto:
        """Return a model with these nodes and, in its metadata, how it fits a device. Raises ContextError."""
        model.metadata_props.add(key=COMPATIBILITY_KEY, value=compatibility_info(self.header))
        return model


def operator_set() -> OperatorSetIdProto:
    """Return the operator set of the nodes."""
    return helper.make_opsetid(DOMAIN, DOMAIN_OPSET)

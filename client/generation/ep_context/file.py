"""Write an ONNX file that stands for a context binary, with an EPContext node for each graph, as ONNX Runtime's tools
exchange compiled models, or a model with a node for each of its parts. runtime/context/ep_context.py reads the former.

If tensors of several graphs have the same name, as with one model in different shapes, all are called GRAPH/NAME.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from gputune.client.errors import ConfigError, OutputError
from gputune.client.generation.ep_context.nodes import Nodes, operator_set
from gputune.client.model.parts import Cut, Part, rest_of
from gputune.client.outputs import check_output, whole
from gputune.runtime.context.ep_context import LARGEST_FILE_BYTES, OPERATOR, SOURCE, is_ep_context, leaves_folder
from gputune.runtime.context.records import TensorRecord

IR_VERSION, ONNX_OPSET = 8, 17
"""Old enough for every ONNX Runtime that knows the operator."""
ROOM_BYTES = 64
"""More than the lengths take that an embedded context makes longer."""


@dataclass(frozen=True)
class EpContextFile:
    """The file that is asked for. embed: whether it holds the context, else it names the file of the context. cuts: the
    models that it stands for, if nodes of them stay in onnxruntime; several have a file each."""

    path: Path
    embed: bool
    cuts: Sequence[Cut] = ()

    @property
    def paths(self) -> list[Path]:
        """Return the files that are written: of several cuts, each has its title in its name."""
        return [self._path_of(cut) for cut in self.cuts] or [self.path]

    def _path_of(self, cut: Cut) -> Path:
        return self.path.with_name(f"{self.path.stem}_{cut.title}{self.path.suffix}") if cut.title else self.path

    def check(self, binary_file: Path) -> None:
        """Raise ConfigError for a file that could not be loaded, OutputError for one that cannot be written."""
        if not is_ep_context(self.path):
            raise ConfigError(f"--ep_context {self.path}: the name must end in .onnx, or loading does not recognise it")
        if not self.embed and (why := leaves_folder(self._relative(binary_file))):
            raise ConfigError(
                f"--ep_context {self.path}: the path to the context binary {binary_file} {why}; put both into one "
                "folder, or use --ep_context_embed_mode 1"
            )
        check_output(self.path)

    def write(self, binary_file: Path) -> dict[Path, int]:
        """Write a node for each graph of a context binary, or the models in which nodes stand for their parts, and
        return the bytes of each file; a file appears complete or not at all. Raises OutputError, and ContextError for
        what is no context binary."""
        models: list[Callable[[Nodes], onnx.ModelProto]] = [partial(_rest_with_parts, cut) for cut in self.cuts] or [
            _nodes_of_graphs
        ]
        embedded = [self.embed and bool(cut.parts) for cut in self.cuts] or [self.embed]
        return {
            path: self._write(path, binary_file, embed, model)
            for path, model, embed in zip(self.paths, models, embedded, strict=True)
        }

    def _write(self, path: Path, binary_file: Path, embed: bool, model_of: Callable[[Nodes], onnx.ModelProto]) -> int:
        """Write the model that is made with the nodes."""
        nodes = Nodes(binary_file, embed, b"" if embed else self._relative(binary_file).encode())
        model = model_of(nodes)
        size = binary_file.stat().st_size if embed else 0
        if (total := model.ByteSize() + size + ROOM_BYTES) > LARGEST_FILE_BYTES:
            advice = "; use --ep_context_embed_mode 0" if embed else ""
            raise OutputError(
                f"{path} cannot be written: {'with the context ' if size else ''}it would have {total} bytes, but "
                f"an ONNX file has {LARGEST_FILE_BYTES} at most{advice}"
            )
        with whole(path) as unfinished:
            if embed:
                model = model_of(replace(nodes, content=binary_file.read_bytes()))
            return unfinished.write_bytes(model.SerializeToString())

    def _relative(self, binary_file: Path) -> str:
        """Return the path of the context binary from the folder of this file. Raises ConfigError for one that is no
        text."""
        found = os.path.relpath(binary_file.parent.resolve() / binary_file.name, self.path.parent.resolve())
        try:
            found.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"--ep_context: the name of {binary_file} is not UTF-8") from None
        return found


def _rest_with_parts(cut: Cut, nodes: Nodes) -> onnx.ModelProto:
    """Return a model with nodes in place of its parts, whose tensors have the model's names."""

    def stand_in(part: Part, first: bool) -> onnx.NodeProto:
        return nodes.of(part.graph.name, part.graph.inputs, part.graph.outputs, first)

    rest = rest_of(cut, stand_in)
    if all(node.op_type == OPERATOR for node in rest.graph.node):  # nothing of the model needs its versions
        rest.ir_version = IR_VERSION
        del rest.opset_import[:]
        rest.opset_import.extend(_operator_sets())
    return nodes.marked(rest) if cut.parts else rest


def default_file(binary_file: Path) -> Path:
    """Return the file for a context binary where none is named, as ONNX Runtime calls it."""
    return binary_file.with_name(f"{binary_file.stem}_ctx.onnx")


def _nodes_of_graphs(nodes: Nodes) -> onnx.ModelProto:
    """Return a model of the nodes of all graphs."""
    graphs = nodes.header.graphs
    names = [tensor.name for graph in graphs for tensor in (*graph.inputs, *graph.outputs)]
    clash = max(Counter(names).values(), default=0) > 1
    made, inputs, outputs = list[onnx.NodeProto](), list[onnx.ValueInfoProto](), list[onnx.ValueInfoProto]()
    for number, graph in enumerate(graphs):
        prefix = f"{graph.name}/" if clash else ""
        ins, outs = list(_values(graph.inputs, prefix)), list(_values(graph.outputs, prefix))
        made.append(nodes.of(graph.name, [one.name for one in ins], [one.name for one in outs], number == 0))
        inputs += ins
        outputs += outs
    model = helper.make_model(
        helper.make_graph(made, graphs[0].name or SOURCE, inputs, outputs),
        producer_name=SOURCE,
        ir_version=IR_VERSION,
        opset_imports=_operator_sets(),
    )
    return nodes.marked(model)


def _operator_sets() -> list[onnx.OperatorSetIdProto]:
    """Return the operator sets of a model that has only EPContext nodes."""
    return [helper.make_opsetid("", ONNX_OPSET), operator_set()]


def _values(tensors: tuple[TensorRecord, ...], prefix: str) -> Iterator[onnx.ValueInfoProto]:
    for tensor in tensors:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
        yield helper.make_tensor_value_info(prefix + tensor.name, kind, tensor.shape)

"""Sink reshapes below elementwise operators, so that these work on maps.

Exporters of lines write a convolution over maps, remove its axis of one element, and then add the bias. Once the
Reshape is sunk, bias and activation join the convolution, and maps keep their device layout.
"""

from dataclasses import replace

from gputune.client.model.graph import Graph, Node, TensorInfo
from gputune.client.model.passes.additions import Work
from gputune.client.model.passes.fuse_elementwise import ELEMENTWISE


def sink_reshapes(graph: Graph) -> Graph:
    """Return the same graph in which no Reshape that only makes lines of maps is read by elementwise nodes that could
    read the maps."""
    work = _Work(graph)
    for node in graph.nodes:
        work.add(node)
    return graph.rewritten(work.nodes, work.constants, work.tensors)


class _Work(Work):
    """The nodes so far; `maps` knows the map that each reshaped tensor was, `kept` the axes that it kept of it."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.maps: dict[str, str] = {}
        self.kept: dict[str, tuple[int, ...]] = {}

    def add(self, node: Node) -> None:
        if node.op == "Reshape":
            source = self.maps.get(node.inputs[0], node.inputs[0])
            node = replace(node, inputs=(source,))
            kept = _kept(self.info(source), self.info(node.output))
            if kept is not None:
                self.maps[node.output], self.kept[node.output] = source, kept
        elif node.op in ELEMENTWISE and self.graph.is_float(node) and self._sink(node):
            return
        self.nodes.append(node)

    def _sink(self, node: Node) -> bool:
        """Compute a node on maps and reshape its result then, where all that it reads was a map of one shape or is
        known."""
        computed = {name for name in node.reads if name not in self.graph.constants}
        shapes = {(self.kept.get(name), self.info(self.maps.get(name, name)).shape) for name in computed}
        kept, shape = next(iter(shapes)) if len(shapes) == 1 else (None, ())
        line = self.info(node.output)
        if kept is None or any(self.info(name).shape != line.shape for name in computed):
            return False
        whole = self.tensor(f"{node.output}/map", TensorInfo(shape))
        inputs = tuple(name and (self.maps.get(name) or self._over_maps(name, kept)) for name in node.inputs)
        self.nodes.append(replace(node, inputs=inputs, outputs=(whole,)))
        self.nodes.append(Node("Reshape", f"{node.name}/line", (whole,), node.outputs, origins=node.origins))
        self.maps[node.output], self.kept[node.output] = whole, kept
        return True

    def _over_maps(self, constant: str, kept: tuple[int, ...]) -> str:
        """Return a constant that is broadcast over lines, so that it is over their maps."""
        value = self.graph.constants[constant]
        if value.size == 1:
            return constant
        shape = [1] * 4
        for axis, size in zip(reversed(kept), reversed(value.shape), strict=False):
            shape[axis] = size
        return self.exact(f"{constant}/map", value.reshape(shape))


def _kept(before: TensorInfo, after: TensorInfo) -> tuple[int, ...] | None:
    """Return the axes of a map that are left when a Reshape makes it a line of the same, None where it does not."""
    if (len(before.shape), len(after.shape)) != (4, 3) or before.dtype != "float32":
        return None
    kept: list[int] = []
    for axis, size in enumerate(before.shape):
        if len(kept) < len(after.shape) and size == after.shape[len(kept)]:
            kept.append(axis)
        elif size != 1:
            return None
    return tuple(kept) if len(kept) == len(after.shape) else None

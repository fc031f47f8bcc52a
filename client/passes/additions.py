"""What passes add to a graph beside nodes."""

from gputune.client.graph import Array, Graph, TensorInfo, as_constant


class Additions:
    """New tensors and constants by name. Names are wished for; each is free when it is given."""

    def __init__(self, graph: Graph) -> None:
        self.tensors: dict[str, TensorInfo] = {}
        self.constants: dict[str, Array] = {}
        self._names = graph.names()

    def tensor(self, wanted: str, info: TensorInfo) -> str:
        """The name of a tensor that a new node computes."""
        name = self._names.free(wanted)
        self.tensors[name] = info
        return name

    def constant(self, wanted: str, value: Array | float) -> str:
        """The name of a new constant, which is float32."""
        return self.exact(wanted, as_constant(value))

    def exact(self, wanted: str, value: Array) -> str:
        """The name of a new constant of whatever type."""
        name = self._names.free(wanted)
        self.constants[name] = value
        return name

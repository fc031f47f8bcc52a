"""Collect what passes add to a graph besides nodes."""

from gputune.client.model.graph import Array, Graph, Node, Scaled, TensorInfo, as_constant


class Additions:
    """New tensors and constants by name. Names are wished for; each is free when it is given."""

    def __init__(self, graph: Graph) -> None:
        self.tensors: dict[str, TensorInfo] = {}
        self.constants: dict[str, Array] = {}
        self.scaled: dict[str, Scaled] = {}
        """What is known of those of the constants that are whole numbers, or were dequantised."""
        self._names = graph.names()

    def tensor(self, wanted: str, info: TensorInfo) -> str:
        """Return the name of a tensor that a new node computes."""
        name = self._names.free(wanted)
        self.tensors[name] = info
        return name

    def constant(self, wanted: str, value: Array | float, scaled: Scaled | None = None) -> str:
        """Return the name of a new constant, which is float32. scaled: what else is known of it."""
        name = self.exact(wanted, as_constant(value))
        if scaled is not None:
            self.scaled[name] = scaled
        return name

    def exact(self, wanted: str, value: Array) -> str:
        """Return the name of a new constant of whatever type."""
        name = self._names.free(wanted)
        self.constants[name] = value
        return name


class Work(Additions):
    """The graph being read, and what the new nodes need beside it."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.graph = graph
        self.uses = graph.uses()
        self.nodes: list[Node] = []
        """Those of the new graph so far, for passes that make one from the first node to the last."""

    def info(self, tensor: str) -> TensorInfo:
        """Return the shape and type of a tensor or constant, a new one or not."""
        if (value := self.constants.get(tensor)) is not None:
            return TensorInfo(value.shape, str(value.dtype))
        return self.tensors[tensor] if tensor in self.tensors else self.graph.tensors[tensor]

    def known(self, node: Node, index: int, what: str) -> Array | None:
        """Return the constant input number `index`, None when it is absent."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        return self.value(node, name, what) if name else None

    def value(self, node: Node, name: str, what: str) -> Array:
        """Return the constant input of this name. Raises ModelError for one that is computed."""
        if name not in self.graph.constants:
            raise self.graph.computed(node, what, name)
        return self.graph.constants[name]

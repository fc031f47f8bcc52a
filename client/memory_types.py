"""Define which memory an application gives for a model's inputs and outputs.

It gives arrays ("raw") or memory handles ("memhandle"). For memory handles, a context allocates nothing when it is
loaded. An inference accepts either kind. What a state keeps has its memory, so that counts as a handle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gputune.client.errors import ConfigError
from gputune.client.suggestions import near
from gputune.core.errors import shortened

if TYPE_CHECKING:
    from gputune.runtime.context.records import GraphRecord, MemoryType, TensorRecord

OPTION = "input_output_tensor_mem_type"


@dataclass(frozen=True)
class MemoryTypes:
    """every: of the tensors that `named` does not have, by NAME, or by GRAPH:NAME, which comes before it."""

    every: MemoryType = "raw"
    named: Mapping[str, MemoryType] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> MemoryTypes:
        """Read "raw", "memhandle", or NAME=TYPE with commas between; NAME is GRAPH:NAME for a tensor of one graph.
        Names may have an equals sign, and one word without may stand for all others. Raises ConfigError that quotes
        what is wrong."""
        from gputune.runtime.context.records import MEMORY_TYPES  # what help does without

        every: MemoryType | None = None
        named: dict[str, MemoryType] = {}
        for word in text.split(","):
            name, equals, told = word.strip().rpartition("=")
            kind: Any = told
            if kind not in MEMORY_TYPES:
                raise ConfigError(f"--{OPTION}: {word!r} is neither raw, memhandle, nor NAME=raw or NAME=memhandle")
            if name in named or (not name and every is not None):
                raise ConfigError(f"--{OPTION}: {word!r} repeats a tensor that has a type already")
            if equals and not name:
                raise ConfigError(f"--{OPTION}: {word!r} names no tensor")
            if name:
                named[name] = kind
            else:
                every = kind
        return cls(every or "raw", named)

    def check(self, tensors: Mapping[str, Collection[str]]) -> None:
        """Raise ConfigError for a name that is not among these inputs and outputs. tensors: by the graph's name."""
        every = list(dict.fromkeys(name for names in tensors.values() for name in names))
        known = {*every, *(f"{graph}:{name}" for graph, names in tensors.items() for name in names)}
        for name in self.named:
            if name not in known:
                similar = near(name, known)
                more = f"; did you mean {similar!r}?" if similar else ""
                raise ConfigError(
                    f"--{OPTION}: there is no input or output {name!r}; there are {shortened(every)}{more}"
                )

    def applied(self, graph: GraphRecord) -> GraphRecord:
        """Return the graph with its tensors of these types."""
        pairs = () if graph.states is None else graph.states.pairs

        def typed(tensors: tuple[TensorRecord, ...], kept: Collection[str]) -> tuple[TensorRecord, ...]:
            return tuple(
                replace(
                    one, memory_type=self._of(graph.name, one.name, "memhandle" if one.name in kept else self.every)
                )
                for one in tensors
            )

        inputs, outputs = {pair.input for pair in pairs}, {pair.output for pair in pairs}
        return replace(graph, inputs=typed(graph.inputs, inputs), outputs=typed(graph.outputs, outputs))

    def _of(self, graph: str, tensor: str, otherwise: MemoryType) -> MemoryType:
        return self.named.get(f"{graph}:{tensor}", self.named.get(tensor, otherwise))

    def __str__(self) -> str:
        return ",".join([self.every, *(f"{name}={kind}" for name, kind in self.named.items())])


RAW = MemoryTypes()
"""Arrays everywhere."""

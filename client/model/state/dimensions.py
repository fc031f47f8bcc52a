"""Give the inputs of a decoder their shapes at any length of its past."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from gputune.client.errors import ConfigError
from gputune.client.model.importer import Input, Interface

Shape = tuple[int, ...]
UNNAMED = ""
"""Stands for an open dimension without a name, which only pasts may have."""


@dataclass(frozen=True)
class Dimensions:
    """Knows the sizes of dimensions by their names, and which of them is the past. given: shapes of inputs that have
    dimensions without names."""

    interface: Interface
    sizes: Mapping[str, int]
    growing: str | None
    given: Mapping[str, Shape]

    @classmethod
    def of_all(cls, interface: Interface, given: Mapping[str, Shape]) -> "Dimensions":
        """Return what shapes of inputs and sizes of dimensions say, where none grows."""
        sizes = {name: shape[0] for name, shape in given.items() if name not in interface.inputs and len(shape) == 1}
        for name, one in interface.inputs.items():
            pairs = zip(one.dims or (), given.get(name, ()), strict=False)
            sizes |= {dim.symbol: size for dim, size in pairs if dim.symbol}
        return cls(interface, sizes, None, {name: shape for name, shape in given.items() if name in interface.inputs})

    @classmethod
    def of(cls, path: Path, interface: Interface, given: Mapping[str, Shape], pasts: Collection[str]) -> "Dimensions":
        """Return what shapes of inputs and sizes of dimensions say. pasts: the inputs of which one dimension grows, or
        the name of that dimension. Raises ConfigError where it is not known which one."""
        found = cls.of_all(interface, given)
        open_ones = dict.fromkeys(
            symbol for name in pasts if name in interface.inputs for symbol in found.open(interface.inputs[name])
        )
        named = [name for name in pasts if name not in interface.inputs]
        if len(open_ones) + len(named) != 1:
            which = f"{len(open_ones)} are open: {', '.join(each or 'one without a name' for each in open_ones)}"
            raise ConfigError(
                f"--state: one dimension of {', '.join(pasts)} of model {path} grows, and "
                f"{which if open_ones else 'none is open'}; give --input_dimensions for all others, and none for it"
            )
        return replace(found, growing=next(iter((*named, *open_ones))))

    def open(self, one: Input) -> list[str]:
        """Return the names of the dimensions of an input of which no size is known."""
        if one.name in self.given:
            return []
        return [dim.symbol for dim in one.dims or () if self._size(dim.symbol, dim.size, self.sizes) is None]

    def missing(self) -> dict[str, list[str]]:
        """Return the names of dimensions of which no size follows, by the inputs that have them."""
        known = replace(self, sizes={**self.sizes, self.growing or UNNAMED: 1})
        return {
            name: found for name, one in self.interface.inputs.items() if (found := [*filter(None, known.open(one))])
        }

    def sums(self, pairs: Mapping[str, str], values: Collection[str]) -> list[str]:
        """Return the names of dimensions of inputs of which no size follows, and that outputs have where pasts grow, or
        inputs with values. pairs: these outputs, by the names of the pasts."""
        inputs, outputs = self.interface.inputs, self.interface.outputs
        longer = {
            other.symbol
            for past, present in pairs.items()
            for one, other in zip(inputs[past].dims or (), outputs[present].dims or (), strict=False)
            if one.symbol == self.growing
        }
        return [
            symbol
            for symbol in dict.fromkeys(each for several in self.missing().values() for each in several)
            if symbol in longer or any(symbol in inputs[name].symbols for name in values)
        ]

    def at(self, past: int, more: Mapping[str, int] | None = None) -> dict[str, Shape]:
        """Return the shapes of all inputs of which they are known, at a length of the past. more: other sizes of
        dimensions than those that are known."""
        sizes = {**self.sizes, **(more or {})} | ({} if self.growing is None else {self.growing: past})
        found = {}
        for name, one in self.interface.inputs.items():
            given = self.given.get(name, (None,) * len(one.dims or ()))
            shape = [
                own if own is not None and not dim.symbol else self._size(dim.symbol, dim.size, sizes)
                for dim, own in zip(one.dims or (), given, strict=False)
            ]
            if None not in shape and one.dims is not None:
                found[name] = tuple(size for size in shape if size is not None)
        return found

    def grows(self, name: str) -> bool:
        """Return whether an input grows with the past."""
        return self.at(1).get(name) != self.at(2).get(name)

    @staticmethod
    def _size(symbol: str, size: int | None, sizes: Mapping[str, int]) -> int | None:
        """Return the size of a dimension: a number, a name, or a sum of such."""
        if size is not None or symbol in sizes:
            return sizes[symbol] if size is None else size
        parts = [part.strip() for part in symbol.split("+")]
        numbers = [int(part) if part.isdecimal() else sizes.get(part) for part in parts]
        known = [number for number in numbers if number is not None]
        return sum(known) if len(known) == len(numbers) else None

    def candidates(self, count: int) -> Sequence[str]:
        """Return the names of dimensions of a size."""
        return [name for name, size in self.sizes.items() if size == count and name != self.growing]


def rename(graph: onnx.GraphProto, symbols: Collection[str], name: str) -> None:
    """Have dimensions of inputs and outputs be called otherwise."""
    for item in (*graph.input, *graph.output):
        for dim in item.type.tensor_type.shape.dim:
            if dim.dim_param in symbols:
                dim.dim_param = name

"""Decide every dimension of a model's inputs.

A dimension is a number, a symbol that inputs may share, or open. Sizes are given for inputs or for symbols. A size that
an input gives to a symbol holds for all other inputs.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy.typing as npt
import onnx

from gputune.client.errors import INPUT_DIMENSIONS as OPTION
from gputune.client.errors import INPUT_VALUE as VALUE_OPTION
from gputune.client.errors import MODEL_INPUT, ModelError, Refusal
from gputune.client.model.graph import TensorInfo
from gputune.client.model.importer.opening.input_values import shape_by_value
from gputune.client.model.importer.opening.types import KNOWN_DTYPES, NO_TENSOR, dtype_of, instead_of, is_number
from gputune.client.suggestions import instead
from gputune.core.dtypes import ELEMENT_TYPES
from gputune.kernels.tiling.streaming import MOST_ELEMENTS

NO_SYMBOLS = frozenset(("", "?", "-1", "None"))
"""How exporters write that a dimension has no name."""

LINES_OF_A_PICTURE = 224
"""Height and width in an example; the maps of many networks vanish in smaller pictures."""
LENGTH = 128
"""Elements along another open axis, such as the tokens of a text."""
BATCH = ("batch", "bs", "n", "b")
"""How exporters call the axis of a batch, if it is not the first one."""
LENGTHS = ("seq", "len", "tok", "time", "step", "frame", "sample")
"""Parts of names of axes that are no batch, even if they come first."""


@dataclass(frozen=True)
class Dimension:
    """size: None where it is open; symbol: empty where it has none."""

    size: int | None
    symbol: str = ""

    def __str__(self) -> str:
        return self.symbol or ("?" if self.size is None else str(self.size))


@dataclass(frozen=True)
class Input:
    """An input or output of a model. dims: None where the model does not even say how many dimensions there are;
    refused: where no kernel knows its type."""

    name: str
    dtype: str
    dims: tuple[Dimension, ...] | None

    @property
    def refused(self) -> bool:
        return self.dtype not in ELEMENT_TYPES

    def __str__(self) -> str:
        return "of unknown rank" if self.dims is None else "x".join(map(str, self.dims)) or "a single number"

    @property
    def symbols(self) -> list[str]:
        return [dim.symbol for dim in self.dims or () if dim.symbol]

    def shape(self, known: Mapping[str, int]) -> tuple[int | None, ...]:
        """Return its sizes, None for each that is open, where these symbols are known."""
        return tuple(known.get(dim.symbol, dim.size) for dim in self.dims or ())

    def decided(self, known: Mapping[str, int]) -> tuple[int, ...]:
        """Return its sizes, where none is open."""
        return tuple(size for size in self.shape(known) if size is not None)

    def is_open(self, known: Mapping[str, int]) -> bool:
        return self.dims is None or None in self.shape(known)

    def example(self, known: Mapping[str, int]) -> tuple[int, ...]:
        """Return sizes that it may have, with plausible ones where they are open."""
        shape = self.shape(known)
        picture = len(shape) == 4 and 3 in (shape[1], shape[3])
        sides = () if not picture else (2, 3) if shape[1] == 3 else (1, 2)
        return tuple(
            size if size is not None else LINES_OF_A_PICTURE if axis in sides else _plausible(axis, dim.symbol)
            for axis, (size, dim) in enumerate(zip(shape, self.dims or (), strict=True))
        )

    def missing(self, known: Mapping[str, int]) -> list[str]:
        """Return its open dimensions as messages call them."""
        open_ones = [(axis, dim) for axis, dim in enumerate(self.dims or ()) if known.get(dim.symbol, dim.size) is None]
        return [dim.symbol or f"dimension {axis} of {self.name!r}" for axis, dim in open_ones]


class Sizes:
    """The sizes of symbols, with where each was said."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known: dict[str, int] = {}
        self._said: dict[str, str] = {}

    def say(self, symbol: str, size: int, where: str) -> None:
        """Take in a size. Raises ModelError where another one was said."""
        before = self.known.setdefault(symbol, size)
        self._said.setdefault(symbol, where)
        if before != size:
            raise ModelError(
                f"{OPTION}: dimension {symbol!r} of model {self._path} is {before} {self._said[symbol]}, but {size} "
                f"{where}; give both the same size"
            )


def static_inputs(
    path: Path,
    model: onnx.ModelProto,
    constants: Collection[str],
    wanted: Mapping[str, tuple[int, ...]],
    values: Mapping[str, npt.ArrayLike],
) -> dict[str, TensorInfo]:
    """Return the inputs with every dimension decided; initializers listed as inputs (IR 3) are not inputs unless they
    have a value. Of what `refused_inputs` has, texts and inputs without a shape are left out.

    `wanted` are shapes by the name of an input, or single sizes by a symbol, as --input_dimensions gives them; where an
    input and a symbol share a name, the input is meant. `values` are those of inputs that are constants. Raises
    ModelError for shapes and values that do not fit, or are missing.
    """
    real = {item.name: _read(item) for item in model.graph.input if item.name in values or item.name not in constants}
    wanted = _with_values(path, real, wanted, values)
    sizes = _said(path, real, wanted)
    taken = [one for name, one in real.items() if not one.refused or (name in values and is_number(one.dtype))]
    undecided = [one for one in taken if one.name not in wanted and one.is_open(sizes.known)]
    if undecided:
        first, *more = undecided
        others = f", and so has {' and '.join(repr(one.name) for one in more)}" if more else ""
        open_ones = dict.fromkeys(name for one in undecided for name in one.missing(sizes.known))
        still = f"still missing: {', '.join(open_ones)}; " if wanted and open_ones else ""
        raise ModelError(
            f"input {first.name!r} of model {path} has dynamic dimensions ({first}){others}; "
            f"{still}give them, e.g. {_example(undecided, sizes.known, real)}"
        )
    return {
        name: _countable(path, one, wanted[name] if name in wanted else one.decided(sizes.known))
        for name, one in real.items()
        if is_number(one.dtype) and (name in wanted or not one.is_open(sizes.known))
    }


def refused_inputs(model: onnx.ModelProto, constants: Collection[str]) -> list[Refusal]:
    """Return a refusal of each input of a type that no kernel knows."""
    real = [_read(item) for item in model.graph.input if item.name not in constants]
    return [
        Refusal(MODEL_INPUT, one.name, f"it is {one.dtype}; {KNOWN_DTYPES}", instead_of(one.dtype))
        for one in real
        if one.refused
    ]


@dataclass(frozen=True)
class Interface:
    """The inputs of a model that are no initializers, and its outputs, as the model declares them. inner: the names of
    all tensors that its nodes compute."""

    inputs: Mapping[str, Input]
    outputs: Mapping[str, Input]
    inner: frozenset[str]


def interface_of(graph: onnx.GraphProto) -> Interface:
    """Return what a model takes and gives."""
    constants = {item.name for item in graph.initializer}
    return Interface(
        {item.name: _read(item) for item in graph.input if item.name not in constants},
        {item.name: _read(item) for item in graph.output},
        frozenset(name for node in graph.node for name in node.output if name),
    )


def names_of(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Return what sizes can be given for: the inputs that are no initializers, and then their symbols."""
    constants = {item.name for item in graph.initializer}
    real = [item for item in graph.input if item.name not in constants]
    symbols = (symbol for item in real for symbol in Input(item.name, "", _dims(item)).symbols)
    return tuple(dict.fromkeys((*(item.name for item in real), *symbols)))


def _with_values(
    path: Path,
    real: Mapping[str, Input],
    wanted: Mapping[str, tuple[int, ...]],
    values: Mapping[str, npt.ArrayLike],
) -> dict[str, tuple[int, ...]]:
    """Return the shapes that are wanted, and those of values that have a shape."""
    found = dict(wanted)
    for name, value in values.items():
        if name not in real:
            raise ModelError(
                f"{VALUE_OPTION}: model {path} has no input {name!r}; {instead(name, real, 'its inputs are')}"
            )
        dims = None if real[name].dims is None else real[name].shape({})
        shape = shape_by_value(path, name, dims, value, wanted.get(name))
        found |= {} if shape is None else {name: shape}
    return found


def _said(path: Path, real: Mapping[str, Input], wanted: Mapping[str, tuple[int, ...]]) -> Sizes:
    """Sizes that are given for symbols, by their names and by inputs that have them."""
    sizes, symbols = Sizes(path), dict.fromkeys(symbol for one in real.values() for symbol in one.symbols)
    for name, shape in wanted.items():
        if name in real:
            _check_fits(path, real[name], shape)
            for axis, (dim, size) in enumerate(zip(real[name].dims or (), shape, strict=False)):
                if dim.symbol:
                    sizes.say(dim.symbol, size, f"in input {name!r} ({real[name]}), dimension {axis}")
        elif name in symbols:
            if len(shape) != 1:
                raise ModelError(f"{_option(name, shape)}: {name!r} is a dimension of model {path}; give one number")
            sizes.say(name, shape[0], f"by {_option(name, shape)}")
        else:
            others = instead(name, [*real, *symbols], "its inputs and their dimensions are")
            raise ModelError(f"model {path} has no input or dimension {name!r}; {others}")
    return sizes


def _example(undecided: list[Input], known: Mapping[str, int], inputs: Iterable[str]) -> str:
    """Return an example that decides these inputs: by symbols if these are fewer, or some of them are known, and none
    is called like an input; by shapes if not."""
    sizes, shapes = dict[str, int](), list[str]()
    for one in undecided:
        example = one.example({**known, **sizes})
        shapes.append(_option(one.name, example or (1,)))
        sizes |= {dim.symbol: size for dim, size in zip(one.dims or (), example, strict=False) if dim.symbol}
    missing = {symbol: size for symbol, size in sizes.items() if symbol not in known}
    named = all(not one.is_open({**known, **missing}) for one in undecided)
    begun = any(symbol in known for one in undecided for symbol in one.symbols)
    if named and (begun or len(missing) < len(undecided)) and missing.keys().isdisjoint(inputs):
        return " ".join(_option(symbol, (size,)) for symbol, size in missing.items())
    return " ".join(shapes)


def _plausible(axis: int, symbol: str) -> int:
    """Return how many elements an open axis may have in an example."""
    called = symbol.lower()
    if any(part in called for part in LENGTHS):
        return LENGTH
    return 1 if axis == 0 or called in BATCH or called.startswith("batch") else LENGTH


def _option(name: str, shape: Iterable[int]) -> str:
    return f"{OPTION} {name}={','.join(map(str, shape))}"


def _read(item: onnx.ValueInfoProto) -> Input:
    """Return an input as the model describes it."""
    tensor = item.type.HasField("tensor_type")
    return Input(item.name, dtype_of(item.type.tensor_type.elem_type) if tensor else NO_TENSOR, _dims(item))


def _dims(item: onnx.ValueInfoProto) -> tuple[Dimension, ...] | None:
    kind = item.type.tensor_type
    return tuple(map(_dimension, kind.shape.dim)) if kind.HasField("shape") else None


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> Dimension:
    """Return a dimension; negative numbers, which some exporters write, say nothing."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return Dimension(dim.dim_value)
    return Dimension(None, "" if dim.dim_param in NO_SYMBOLS else dim.dim_param)


def _check_fits(path: Path, one: Input, wanted: tuple[int, ...]) -> None:
    """Raise ModelError for sizes that an input cannot have."""
    option, where = _option(one.name, wanted), f"input {one.name!r} of model {path}"
    if any(size < 0 for size in wanted):
        raise ModelError(f"{option}: no dimension of {where} can be negative")
    if one.dims is not None and len(one.dims) != len(wanted):
        raise ModelError(f"{option} has {len(wanted)} dimensions, {where} has {len(one.dims)} ({one})")
    for axis, (dim, size) in enumerate(zip(one.dims or (), wanted, strict=False)):
        if dim.size not in (None, size):
            raise ModelError(f"{option}: dimension {axis} of {where} is fixed at {dim.size} ({one})")


def _countable(path: Path, one: Input, shape: tuple[int, ...]) -> TensorInfo:
    info = TensorInfo(shape, one.dtype)
    if info.size > MOST_ELEMENTS:
        raise ModelError(f"input {one.name!r} of model {path} has {info.size} elements; {MOST_ELEMENTS} are supported")
    return info

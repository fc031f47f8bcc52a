"""Read a model's weights, which are in the model or in files next to it."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gputune.client.errors import ModelError
from gputune.client.model.graph import Array
from gputune.core.files import first_bytes, mistaken


def data_files(path: Path) -> list[Path]:
    """Return the files in which a model keeps weights, those of subgraphs and functions included; none for what is no
    file and no model, which `read_model` refuses."""
    if not path.is_file():
        return []
    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except Exception:  # whatever onnx and protobuf raise
        return []
    places = (entry.value for tensor in tensors_of(model) for entry in tensor.external_data if entry.key == "location")
    return [path.parent / place for place in dict.fromkeys(places)]


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors that a model holds, those of subgraphs and functions included."""
    yield from _tensors_of_graph(model.graph)
    yield from _tensors_of_nodes(node for function in model.functions for node in function.node)


def _tensors_of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for graph in (attribute.g, *attribute.graphs):
            yield from _tensors_of_graph(graph)


def constant(path: Path, item: onnx.TensorProto) -> Array:
    """Return the value of an initializer. Raises ModelError where it has none, or one that cannot be read."""
    shape = "x".join(map(str, item.dims))
    try:
        if any(size < 0 for size in item.dims):
            raise ValueError("a dimension is negative")
        if item.data_location == TensorProto.EXTERNAL:
            return _mapped(path.parent, item)
        return numpy_helper.to_array(item)
    except KeyError as error:
        raise ModelError(f"weight {item.name!r} of model {path} has the unknown data type {item.data_type}") from error
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(f"weight {item.name!r} ({shape}) of model {path} is not valid: {error}") from error


def _mapped(folder: Path, item: onnx.TensorProto) -> Array:
    """Return a weight in a file of its own: mapped, not read, since there may be more of them than memory. Raises
    ValueError for what lies outside of the model's folder or of the file."""
    entries = {entry.key: entry.value for entry in item.external_data}
    root = folder.resolve()
    file = (root / entries.get("location", "")).resolve()
    if not file.is_relative_to(root) or not file.is_file():
        raise ValueError(f"its data file {entries.get('location', '')!r} is not in the folder of the model")
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(item.data_type))
    count, offset, length = math.prod(item.dims), _bytes(entries, "offset"), _bytes(entries, "length")
    nbytes = count * dtype.itemsize
    if length not in (0, nbytes):  # some writers leave a length of 0, which says nothing to onnxruntime either
        raise ValueError(f"its length is {length} bytes, and {count} {dtype} numbers have {nbytes}")
    if dtype.hasobject or offset + nbytes > file.stat().st_size:
        other = mistaken(first_bytes(file)) or "is cut short: copy, download or export it again"
        raise ValueError(f"{file.name} does not hold {count} {dtype} numbers from byte {offset} on; it {other}")
    if not count:
        return np.empty(tuple(item.dims), dtype)
    values: Array = np.memmap(file, dtype, "r", offset, tuple(item.dims) or (1,))
    return values.reshape(tuple(item.dims))


def _bytes(entries: Mapping[str, str], key: str) -> int:
    """Return a number of bytes that external data names; 0 where it names none. Raises ValueError."""
    text = entries.get(key, "0")
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"its {key} {text!r} is no number of bytes")
    return int(text)

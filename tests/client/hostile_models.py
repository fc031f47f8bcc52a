"""Make hostile or broken model files without end from a seed."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.strategies.graphs.comparing import mixed

from .models import MODELS, build

WHOLE = (0, 1, -1, 2, 3, -2, 7, 64, 1000, 2**20, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
"""Numbers that are odd for sizes, places, axes and counts."""
NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.3, 1e-45, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
NAMES = ("", "x", "y", "w", "t0", "/", "..", "a b", "x\n\x1b[31m", "é", "y/NHWC", "w/matrix", "a\0b", "n" * 5000)
TYPES = (0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 14, 16, 17, 22, 99, -1)
MOST_BYTES = 1 << 16
"""Of raw data that is made up."""


@dataclass(frozen=True)
class Hostile:
    """The bytes of a model file, and the kind of its malice."""

    kind: str
    content: bytes


def valid(chance: random.Random) -> onnx.ModelProto:
    """A small model that is as it should be."""
    if chance.random() < 0.3:
        return MODELS[chance.choice(sorted(MODELS))]()
    return mixed(chance.randrange(2**31)).model


# --- mutations of a valid model ---------------------------------------------------------------------


def tensor(chance: random.Random) -> TensorProto:
    """A tensor whose parts need not fit each other."""
    if chance.random() < 0.5:
        values = chance.choice((WHOLE, NUMBERS))
        count = chance.choice((0, 1, 1, 2, 4, 8))
        dtype = chance.choice((np.float32, np.int64)) if values is WHOLE else np.float32
        array = np.array([chance.choice(values) for _ in range(count)], np.float64).clip(-(2.0**62), 2.0**62)
        with np.errstate(all="ignore"):
            return numpy_helper.from_array(array.astype(dtype).reshape(chance.choice(((-1,), (1, -1)))), "w")
    made = TensorProto(name="w", data_type=chance.choice([kind for kind in TYPES if kind >= 0]))
    made.dims.extend(chance.choice(WHOLE) for _ in range(chance.randint(0, 3)))
    if chance.random() < 0.7:
        made.raw_data = chance.randbytes(chance.choice((0, 1, 8, 24, 64)))
    if chance.random() < 0.2:
        made.data_location = TensorProto.EXTERNAL
        entry = made.external_data.add()
        entry.key, entry.value = "location", chance.choice(("/etc/passwd", "../../w", "w.bin", "", "a\0", "."))
    return made


def attribute(chance: random.Random, name: str) -> AttributeProto:
    values: Any = chance.choice(
        (
            chance.choice(WHOLE),
            chance.choice(NUMBERS),
            [chance.choice(WHOLE) for _ in range(chance.randint(1, 6))],
            [chance.choice(NUMBERS) for _ in range(chance.randint(1, 3))],
            chance.choice(("SAME_UPPER", "VALID", "linear", "NHWC", "", "ij,jk->ik", "\x1b")),
            tensor(chance),
        )
    )
    return helper.make_attribute(name, values)


def change_attribute(model: onnx.ModelProto, chance: random.Random) -> None:
    nodes = [node for node in model.graph.node if node.attribute]
    if not nodes:
        return
    node = chance.choice(nodes)
    place = chance.randrange(len(node.attribute))
    if chance.random() < 0.2:
        del node.attribute[place]
    else:
        node.attribute[place].CopyFrom(attribute(chance, node.attribute[place].name))


def change_weight(model: onnx.ModelProto, chance: random.Random) -> None:
    if not model.graph.initializer:
        return
    item = chance.choice(model.graph.initializer)
    name = item.name
    match chance.randrange(4):
        case 0:
            item.CopyFrom(tensor(chance))
        case 1 if item.dims:
            item.dims[chance.randrange(len(item.dims))] = chance.choice(WHOLE)
        case 2:
            item.data_type = max(chance.choice(TYPES), 0)
        case _:
            value = numpy_helper.to_array(item)
            odd = WHOLE if value.dtype.kind == "i" else NUMBERS
            with np.errstate(all="ignore"):
                changed = np.array([chance.choice(odd) for _ in range(max(value.size, 1))]).astype(value.dtype)
            item.CopyFrom(numpy_helper.from_array(np.resize(changed, value.shape), name))
    item.name = name


def change_shape(model: onnx.ModelProto, chance: random.Random) -> None:
    item = chance.choice([*model.graph.input, *model.graph.output])
    kind = item.type.tensor_type
    match chance.randrange(5):
        case 0:
            kind.elem_type = chance.choice(TYPES)
        case 1:
            item.ClearField("type")
        case 2:
            kind.ClearField("shape")
        case 3:
            kind.shape.dim.add().dim_value = chance.choice(WHOLE)
        case _ if kind.shape.dim:
            chance.choice(kind.shape.dim).dim_value = chance.choice(WHOLE)


def change_names(model: onnx.ModelProto, chance: random.Random) -> None:
    node = chance.choice(model.graph.node)
    every = [*NAMES, *(name for each in model.graph.node for name in each.output)]
    match chance.randrange(5):
        case 0 if node.input:
            node.input[chance.randrange(len(node.input))] = chance.choice(every)
        case 1:
            node.output[chance.randrange(len(node.output))] = chance.choice(every)
        case 2:
            node.name = chance.choice(every)
        case 3:
            chance.choice([*model.graph.input, *model.graph.output]).name = chance.choice(every)
        case _:
            model.graph.name = chance.choice(every)


def change_nodes(model: onnx.ModelProto, chance: random.Random) -> None:
    nodes = model.graph.node
    node = chance.choice(nodes)
    match chance.randrange(6):
        case 0:
            node.op_type = chance.choice(sorted({schema.name for schema in onnx.defs.get_all_schemas()}))
        case 1:
            node.domain = chance.choice(("ai.onnx", "evil", "ai.onnx.ml", ""))
        case 2:
            nodes.add().CopyFrom(node)
        case 3:
            nodes.remove(node)
        case 4:
            chance.choice((node.input, node.output)).append(chance.choice(NAMES))
        case _:
            for place in range(chance.randint(0, len(node.input))):
                node.input[place] = ""


def change_whole(model: onnx.ModelProto, chance: random.Random) -> None:
    match chance.randrange(5):
        case 0 if model.opset_import:
            model.opset_import[0].version = chance.choice((0, 1, 6, 7, 8, 9, 12, 17, 23, 24, 99, 2**62))
        case 1:
            model.ir_version = chance.choice((0, 1, 2, 3, 99, 2**62))
        case 2:
            model.graph.output.add().CopyFrom(chance.choice([*model.graph.input, *model.graph.output]))
        case 3:
            del model.graph.output[:]
        case _:
            model.graph.input.add().CopyFrom(chance.choice([*model.graph.input, *model.graph.output]))


CHANGES = (change_attribute, change_weight, change_shape, change_names, change_nodes, change_whole)


def changed(chance: random.Random) -> onnx.ModelProto:
    """A model in which one or a few things are not as they should be."""
    model = valid(chance)
    for _ in range(chance.choice((1, 1, 2, 4))):
        if model.graph.node:
            chance.choice(CHANGES)(model, chance)
    return model


# --- small models that ask for much -----------------------------------------------------------------

BY_NUMBERS = (
    "Reshape(d, n)", "Expand(d, n)", "Tile(d, n)", "Pad(d, n)", "ConstantOfShape(n)", "Range(n, m, k)",
    "Slice(d, n, m)", "Split<axis=0>(d, n)", "OneHot(i, n, d)", "TopK(d, n)", "EyeLike<k=%d>(d)", "Resize(d, , r)",
    'Resize<mode="cubic", antialias=1>(d, , r)', "Trilu(d, n)", "CumSum(d, n)", "Gather(d, n)", "Unsqueeze(d, n)",
    "Squeeze(d, n)", "ReduceSum(d, n)", "CenterCropPad(d, n)", "HannWindow(n)", "MelWeightMatrix(n, m, k, r, r)",
    "Col2Im(d, n, m)", "AffineGrid(d, n)", "DFT(d, n)", "STFT(d, n, , m)",
    "MaxPool<kernel_shape=[%d,%d], strides=[%d,%d]>(d)", "AveragePool<kernel_shape=[%d,%d], pads=[%d,%d,%d,%d]>(d)",
    "ConvTranspose<strides=[%d,%d]>(d, d)", "Conv<dilations=[%d,%d], pads=[%d,%d,%d,%d], group=%d>(d, d)",
    "SpaceToDepth<blocksize=%d>(d)", "DepthToSpace<blocksize=%d>(d)", "LRN<size=%d>(d)", "ReverseSequence(d, n)",
    "MaxUnpool(d, i, n)",
)  # fmt: skip


def asking(chance: random.Random) -> onnx.ModelProto:
    """An operator that is told sizes, of data that is computed or known."""
    text = chance.choice(BY_NUMBERS)
    while "%d" in text:
        text = text.replace("%d", str(chance.choice((1, 1, 2, 3, *WHOLE))), 1)
    count = chance.choice((1, 1, 2, 4, 4, 8))
    known: dict[str, Any] = {
        name: np.array([chance.choice((1, 1, 2, 4, *WHOLE)) for _ in range(count)], np.int64) for name in "nmk"
    }
    if chance.random() < 0.4:
        known = {name: value[0] for name, value in known.items()}
    known["r"] = np.array([1, 1, *(chance.choice((1.0, 2.0, *NUMBERS, 2.0**20)) for _ in "hw")], np.float32)
    known["i"] = np.zeros((1, 1, 4, 4), np.int64)
    read = "d"
    if chance.random() < 0.5:
        known["c"] = np.ones((1, 1, 4, 4), np.float32)
        read = "c"
    body = text.replace("(d", f"({read}").replace(", d", f", {read}")
    return build(
        "(float[1,1,4,4] d) => (float y)",
        f"a = {body} b = Cast<to=1>(a) s = ReduceSum<keepdims=0>(b) e = ReduceSum<keepdims=0>(d) y = Add(s, e)",
        known,
        opset=chance.choice((11, 13, 17, 20)),
    )


def nested(chance: random.Random) -> onnx.ModelProto:
    """Functions, branches or constants of which each is made of several of the one before."""
    depth = chance.choice((1, 3, 10, 17, 24, 40, 90, 200))
    kind = chance.choice(("functions", "branches", "constants", "bodies"))
    signature = "(float[2] x) => (float[2] y)"
    if kind == "functions":
        imports, times = 'opset_import: ["" : 17, "local" : 1]', chance.choice((1, 2, 3))
        calls = [
            "".join(f"c{k} = local.f{n - 1}({f'c{k - 1}' if k else 'a'}) " for k in range(times))
            for n in range(1, depth + 1)
        ]
        bodies = ["c0 = Relu(a) ", *calls]
        functions = "".join(
            f'<domain: "local", {imports}> f{n} (a) => (b) {{ {body} b = Identity(c{times - 1 if n else 0}) }}\n'
            for n, body in enumerate(bodies)
        )
        return onnx.parser.parse_model(
            f"<ir_version: 8, {imports}> g {signature} {{ y = local.f{depth}(x) }}\n{functions}"
        )
    if kind == "branches":
        inner = helper.make_node("Relu", ["x"], ["r"])
        for n in range(min(depth, 60)):
            graphs = [helper.make_graph([inner], "b", [], [_info(inner.output[0])]) for _ in "te"]
            inner = helper.make_node("If", ["yes"], [f"r{n}"], then_branch=graphs[0], else_branch=graphs[1])
            if inner.ByteSize() > MOST_BYTES:
                break
        last = helper.make_node("Identity", [inner.output[0]], ["y"])
        yes = numpy_helper.from_array(np.array(True), "yes")
        graph = helper.make_graph([inner, last], "g", [_info("x")], [_info("y")], [yes])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    step = {"constants": "t%d = Concat<axis=0>(%s, %s)", "bodies": "t%d = Mul(%s, %s)"}[kind]
    names = ["w", *(f"t{n}" for n in range(min(depth, 90)))]
    lines = [step % (n, names[n], names[n]) for n in range(len(names) - 1)]
    shrunk = f"s = ReduceSum<keepdims=0>({names[-1]}) y = Add(x, s)"
    return build(signature, " ".join([*lines, shrunk]), {"w": np.ones(4, np.float32)}, opset=17)


def _info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])


# --- bytes ------------------------------------------------------------------------------------------


def damaged(chance: random.Random) -> bytes:
    """A file with some other bytes, cut short, or nothing like a model."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.choice((0, 1, 100, 5000)))
    content = bytearray(valid(chance).SerializeToString())
    if chance.random() < 0.3:
        return bytes(content[: chance.randrange(len(content))])
    for _ in range(chance.choice((1, 3, 10, 40))):
        content[chance.randrange(len(content))] = chance.randrange(256)
    return bytes(content)


KINDS: Sequence[Callable[[random.Random], onnx.ModelProto | bytes]] = (
    changed,
    changed,
    asking,
    asking,
    nested,
    damaged,
)


def hostile_models(seed: int) -> Iterator[Hostile]:
    """Hostile models without end, the same for the same seed."""
    chance = random.Random(seed)
    while True:
        make = chance.choice(KINDS)
        try:
            made = make(chance)
            content = made if isinstance(made, bytes) else made.SerializeToString()
        except (ValueError, TypeError, OverflowError, KeyError):  # what cannot even be written down
            continue
        yield Hostile(make.__name__, content)

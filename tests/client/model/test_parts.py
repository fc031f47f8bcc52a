"""Test the cutting of models into parts that run on the device and a rest that stays in onnxruntime."""

import random
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from gputune.client.context.verifying.verification import ground_truth_of_parts
from gputune.client.errors import ConfigError, ModelError, Refusal
from gputune.client.model.importer import import_nodes, read_by
from gputune.client.model.lowering import lower
from gputune.client.model.parts import Cut, Part, alone, cut_model, cutting, described, rest_of, told
from gputune.client.model.reference import evaluate
from tests.client.models import Array, build, integers, numbers, save
from tests.strategies.graphs.comparing import differing, mixed


def cut_of(model: onnx.ModelProto, folder: Path, **sizes: tuple[int, ...]) -> Cut:
    for index, node in enumerate(model.graph.node):
        node.name = node.name or f"n{index}"
    return cut_model(save(model, folder), sizes)


def stand_in(part: Part, first: bool) -> onnx.NodeProto:
    """A node of an operator that nothing runs."""
    return helper.make_node("Part", part.graph.inputs, part.graph.outputs, part.graph.name, domain="test")


def ops(cut: Cut) -> list[list[str]]:
    """The operators of each part, as the model has them."""
    return [sorted(part.ops.elements()) for part in cut.parts]


def in_onnxruntime(model: onnx.ModelProto, names: list[str], inputs: Mapping[str, Array]) -> dict[str, Array]:
    if not names:
        return {}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    del asked.graph.output[:]
    asked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(asked.SerializeToString(), options, ["CPUExecutionProvider"])
    taken = {item.name for item in session.get_inputs()}
    given = {name: value for name, value in inputs.items() if name in taken}
    return dict(zip(names, session.run(names, given), strict=True))


def check_parts(cut: Cut, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The parts compute what onnxruntime does from the same inputs; returns all tensors."""
    whole = cut.imported.model
    computed = [name for node in whole.graph.node for name in node.output if name]
    right = {**inputs, **in_onnxruntime(whole, computed, inputs)}
    for part in cut.own:
        got = evaluate(lower(part.graph), {name: right[name] for name in part.graph.inputs})
        want = {name: right[name] for name in part.graph.outputs}
        assert got.keys() >= want.keys() and differing(got, want) == ""
        if (model := alone(cut, part)) is not None:
            got = in_onnxruntime(model, list(part.graph.outputs), {name: right[name] for name in part.graph.inputs})
            assert differing(got, want) == ""
    return right


def check(cut: Cut, inputs: Mapping[str, Array]) -> None:
    """The parts compute what onnxruntime does, the rest is in order, and computes the outputs of the model and what
    parts read from what they compute."""
    whole, right = cut.imported.model, check_parts(cut, inputs)
    nodes = [stand_in(part, True) for part in cut.own]
    rest = rest_of(cut, stand_in)
    known = {item.name for item in (*rest.graph.input, *rest.graph.initializer)}
    for node in rest.graph.node:
        assert known.issuperset(read_by(node)), f"{node.name} comes too early"
        known.update(node.output)
    from_parts = [name for node in nodes for name in node.output]
    kept = [node for node in rest.graph.node if node.domain != "test"]
    del rest.graph.node[:]
    rest.graph.node.extend(kept)
    for name in from_parts:
        kind = helper.np_dtype_to_tensor_dtype(right[name].dtype)
        rest.graph.input.append(helper.make_tensor_value_info(name, kind, right[name].shape))
    shown = [item.name for item in whole.graph.output]
    wanted = dict.fromkeys(shown + [name for node in nodes for name in node.input])
    asked = [name for name in wanted if name not in from_parts and name not in inputs]
    for name, value in in_onnxruntime(rest, asked, right).items():
        assert np.array_equal(value, right[name], equal_nan=value.dtype.kind == "f"), name


def compute_weights(model: onnx.ModelProto) -> None:
    """Has nodes compute all weights in float32 from one constant: what reads two of them follows from one node."""
    graph = model.graph
    weights = {item.name: numpy_helper.to_array(item) for item in graph.initializer if item.data_type == 1}
    others = [item for item in graph.initializer if item.name not in weights]
    if len(weights) < 2:
        return
    sizes, old = [each.size for each in weights.values()], model.opset_import[0].version < 13
    constants = {"all/sizes": sizes} | {f"{name}/shape": each.shape for name, each in weights.items()}
    flat = np.concatenate([each.reshape(-1) for each in weights.values()])
    arrays = {"all": flat} | {name: np.array(value, np.int64) for name, value in constants.items()}
    flats = [f"{name}/flat" for name in weights]
    split = helper.make_node("Split", ["all"], flats, split=sizes)
    pieces = [split if old else helper.make_node("Split", ["all", "all/sizes"], flats)]
    pieces += [helper.make_node("Reshape", [f"{name}/flat", f"{name}/shape"], [name]) for name in weights]
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend([*others, *(numpy_helper.from_array(each, name) for name, each in arrays.items())])
    graph.node.extend([*pieces, *nodes])


def drawn(cut: Cut) -> dict[str, Array]:
    """Inputs of the model, or of the branch."""
    graph, numbers = cut.imported.graph, np.random.default_rng(0)
    infos = {name: graph.tensors[name] for name in graph.inputs}
    given = {name: numbers.standard_normal(info.shape).astype(info.dtype) for name, info in infos.items()}
    return {**given, **graph.constant_inputs}


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_parts_and_rest_compute_what_the_whole_model_does(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever nodes are refused, however small parts are, and also if weights are computed."""
    for seed in range(start, start + 10):
        made, chance = mixed(seed), random.Random(seed)
        if seed % 2:
            compute_weights(made.model)
        monkeypatch.setattr(cutting, "LEAST_SHARE", chance.choice((0.0, 0.2)))
        monkeypatch.setattr(cutting, "LEAST_PER_BYTE", chance.choice((0.0, 1.0)))
        for index, node in enumerate(made.model.graph.node):
            node.name = f"n{index}"
        imported = import_nodes(made.model, Path("made up"), {})
        names = sorted(imported.places)
        refused = [Refusal("Op", name, "test") for name in chance.sample(names, min(len(names), chance.randrange(4)))]
        scope = cutting._Scope(replace(imported, refusals=tuple(refused)))
        cut = scope.cut(cutting.Work([scope])).named("m", "")
        stays = {imported.places[one.node] for one in refused}
        assert not any(imported.places[name] in stays for part in cut.parts for name in part.graph.node_ops)
        assert sum(part.share for part in cut.parts) <= 1 + 1e-9
        check(cut, made.inputs)
        some = [part.graph.name for part in cut.parts if alone(cut, part) is not None and chance.random() < 0.5]
        check(cut.without(some, "test"), made.inputs)


WEIGHTS: dict[str, tuple[int, ...] | Array] = {
    "w": (8, 3, 3, 3),
    "v": (8, 8, 3, 3),
    "s": numbers(0.02),
    "z": np.array(3, np.uint8),
    "half": np.array(0.5),
}


def double_inside() -> onnx.ModelProto:
    """Two convolutions around a float64 tensor, and outputs whose shape depends on the data."""
    return build(
        "(float[n,3,16,16] x) => (float y, int64 count, int64 shape)",
        """a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) q = Cast<to=11>(b) r = Mul(q, half) d = Cast<to=1>(r)
           c = Conv<pads=[1,1,1,1]>(d, v) e = Add(c, b) y = GlobalAveragePool(e)
           found = NonZero(e) count = Size(found) shape = Shape(e)""",
        WEIGHTS,
        opset=17,
    )


def test_a_node_on_the_host_ends_a_part(tmp_path: Path) -> None:
    cut = cut_of(double_inside(), tmp_path, n=(1,))
    assert ops(cut) == [["Conv", "Relu"], ["Add", "Conv", "GlobalAveragePool"]]
    assert [part.graph.name for part in cut.parts] == ["small_part1", "small_part2"]
    assert cut.host_ops == {"Cast": 2, "Mul": 1, "NonZero": 1, "Size": 1}
    assert [part.share for part in cut.parts] == pytest.approx([3 / 11, 8 / 11])
    check(cut, {"x": np.random.default_rng(0).standard_normal((1, 3, 16, 16), dtype=np.float32)})
    assert "2 parts run on the device with 100.0% of the multiply-adds; 5 nodes stay in onnxruntime (" in told(cut)
    first, second = cut.parts
    assert (first.graph.inputs, first.graph.outputs) == (("x",), ("b",))
    assert (second.graph.inputs, second.graph.outputs) == (("b", "d"), ("e", "y"))
    maps = 8 * 16 * 16 * 4
    assert described(cut)["crossing_bytes"] == 3 * 16 * 16 * 4 + maps + 2 * maps + maps + 8 * 4


def test_what_follows_from_a_shape_is_a_value_in_the_rest(tmp_path: Path) -> None:
    """So no tensor leaves a part only to be asked for its shape; what follows from weights stays as it was."""
    model = build(
        "(float[n,3,16,16] x) => (float y)",
        """a = Conv(x, w) b = Shape(a) r = Range(zero, one, one) t = Gather(b, r) k = Squeeze(t)
           q = Cast<to=11>(a) d = Cast<to=1>(q) h = DequantizeLinear(z, s) e = Mul(d, h) y = Expand(e, four)""",
        {**WEIGHTS, "zero": np.array(0), "one": np.array(1), "four": integers(1, 1, 1, 1)},
        opset=17,
    )
    cut = cut_of(model, tmp_path, n=(2,))
    rest = rest_of(cut, stand_in)
    assert [node.op_type for node in rest.graph.node].count("Shape") == 0
    assert [node.op_type for node in rest.graph.node].count("DequantizeLinear") == 1
    assert {item.name for item in rest.graph.initializer} >= {"s", "z"} and not any(
        item.name == "w" for item in rest.graph.initializer
    )
    (x,) = rest.graph.input
    assert [dim.dim_value for dim in x.type.tensor_type.shape.dim] == [2, 3, 16, 16]
    check(cut, {"x": np.random.default_rng(0).standard_normal((2, 3, 16, 16), dtype=np.float32)})


def test_a_small_part_stays_on_the_host(tmp_path: Path) -> None:
    model = build(
        "(float[1,3,16,16] x) => (float y)",
        """a = Conv<pads=[1,1,1,1]>(x, w) b = Conv<pads=[1,1,1,1]>(a, v) q = Cast<to=11>(b)
           d = Cast<to=1>(q) p = GlobalAveragePool(d) f = Flatten(p) y = MatMul(f, m)""",
        {**WEIGHTS, "m": (8, 10)},
    )
    cut = cut_of(model, tmp_path)
    assert ops(cut) == [["Conv", "Conv"]] and cut.parts[0].graph.name == "small"
    assert cut.host_ops["MatMul"] == 1
    check(cut, {"x": np.random.default_rng(0).standard_normal((1, 3, 16, 16), dtype=np.float32)})


def test_a_model_that_runs_wholly_is_one_part(tmp_path: Path) -> None:
    cut = cut_of(build("(float[1,4] x, float[3] unread) => (float[1,4] y)", "y = Relu(x)"), tmp_path)
    assert cut.is_whole and cut.share == 1
    assert cut.parts[0].graph.inputs == ("x", "unread")
    assert told(cut).endswith("all of it runs on the device")


def test_without_a_part_the_rest_is_the_model(tmp_path: Path) -> None:
    model = build(
        "(float[1,8] x) => (float y)",
        "d = Cast<to=11>(x) p = MatMul(d, w) f = Neg(p) y = Cast<to=1>(f)",
        {"w": np.arange(32, dtype=np.float64).reshape(8, 4)},
    )
    cut = cut_of(model, tmp_path)
    assert not cut.parts and len(cut.host) == 4 and "no part runs on the device" in told(cut)
    check(cut, {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)})


def test_branches_keep_what_they_take_from_around_them(tmp_path: Path) -> None:
    """A tensor that only a branch reads is an output of the part that computes it."""
    model = build(
        "(float[1,3,16,16] x, bool go) => (float y)",
        """a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = Conv<pads=[1,1,1,1]>(b, v)
           y = If (go) <then_branch = g1 () => (float t) { t = Det(b) },
                        else_branch = g2 () => (float t) { t = Add(c, s) }>""",
        WEIGHTS,
    )
    cut = cut_of(model, tmp_path)
    assert cut.host_ops == {"If": 1, "Det": 1, "Add": 1} and cut.parts[0].graph.outputs == ("b", "c")
    x = np.random.default_rng(0).standard_normal((1, 3, 16, 16), dtype=np.float32)
    for go in (False, True):
        check(cut, {"x": x, "go": np.array(go)})


def test_branches_have_parts_of_their_own(tmp_path: Path) -> None:
    """What a branch takes from around it is an input of the part, or a weight that lies around it."""
    model = build(
        "(float[1,3,16,16] x, bool go) => (float y)",
        """b = Relu(x)
           y = If (go) <then_branch = g1 () => (float[1,8,14,14] t) { u = Conv(b, w) f = NonZero(u) c = Size(f)
                                                        d = Cast<to=1>(c) e = Mul(d, s) t = Add(u, e) },
                        else_branch = g2 () => (float[1,8,14,14] t) { u2 = Conv(x, w) v2 = Neg(u2) t = Mul(v2, s) }>""",
        WEIGHTS,
    )
    cut = cut_of(model, tmp_path)
    assert ops(cut) == [["Conv"], ["Conv", "Mul", "Neg"]] and not cut.own
    assert cut.share == pytest.approx(1) and cut.host_ops["NonZero"] == cut.host_ops["If"] == 1
    assert [part.graph.name for part in cut.parts] == ["small_part1", "small_part2"]
    rest = rest_of(cut, stand_in)
    (branching,) = (node for node in rest.graph.node if node.op_type == "If")
    first, second = (item.g for item in branching.attribute)
    assert [node.op_type for node in first.node] == ["Part", "NonZero", "Size", "Cast", "Mul", "Add"]
    assert [list(node.input) for node in (first.node[0], *second.node)] == [["b"], ["x"]]
    assert not first.input and not first.initializer and [item.name for item in rest.graph.initializer] == ["w", "s"]
    for branch in cut.inner[cut.host[-1]].values():
        check_parts(branch, drawn(branch))


def test_a_constant_output_of_a_branch_is_computed_once(tmp_path: Path) -> None:
    """By the part if all of the branch runs on the device."""
    model = build(
        "(float[1,16] x, bool go) => (float y, int64 k)",
        """y, k = If (go) <then_branch = g1 () => (float[1,16] t, int64 s) { t = MatMul(x, m) s = Size(t) },
                          else_branch = g2 () => (float[1,16] t, int64 s) { t = Neg(x) f = NonZero(t) s = Size(f) }>""",
        {"m": (16, 16)},
        opset=17,
    )
    rest = rest_of(cut_of(model, tmp_path), stand_in)
    (branching,) = (node for node in rest.graph.node if node.op_type == "If")
    whole, mixed = (item.g for item in branching.attribute)
    assert [list(node.output) for node in whole.node] == [["t", "s"]]
    assert [node.op_type for node in mixed.node] == ["Neg", "NonZero", "Size"]


def test_outputs_get_the_shapes_that_the_model_omits(tmp_path: Path) -> None:
    rest = rest_of(cut_of(double_inside(), tmp_path, n=(2,)), stand_in)
    y = rest.graph.output[0].type.tensor_type
    assert [dim.dim_value for dim in y.shape.dim] == [2, 8, 1, 1]


def test_a_branch_that_does_not_fit_the_shapes_stays_and_onnxruntime_opens_the_rest(tmp_path: Path) -> None:
    """With the sizes of the inputs in the file, onnxruntime would infer that the branch is wrong, and refuse it all."""
    model = build(
        "(float[n,k] x, bool go) => (float y)",
        """y = If (go) <then_branch = g1 () => (float[a,b] t) { t = MatMul(x, m) },
                       else_branch = g2 () => (float[a,b] t) { u = Neg(x) t = MatMul(u, wide) }>""",
        {"m": (16, 16), "wide": (8, 8)},
        opset=17,
    )
    cut = cut_of(model, tmp_path, n=(4,), k=(16,))
    assert ops(cut) == [["MatMul"]] and cut.misfit
    rest = rest_of(cut, stand_in)
    assert rest.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    (branching,) = (node for node in rest.graph.node if node.op_type == "If")
    assert [[node.op_type for node in item.g.node] for item in branching.attribute] == [["Part"], ["Neg", "MatMul"]]


def test_shapes_behind_onnxruntimes_own_operators_are_known(tmp_path: Path) -> None:
    """onnx does not know the shape of Inverse, and without it nothing after it could run on the device."""
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> small (float[1,n,16] x) => (float y) {
                a = com.microsoft.Inverse(x) y = MatMul(a, v) }"""
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(0)
    model.graph.initializer.append(numpy_helper.from_array(generator.standard_normal((16, 16), dtype=np.float32), "v"))
    cut = cut_of(model, tmp_path, n=(16,))
    assert ops(cut) == [["MatMul"]] and cut.host_ops == {"com.microsoft.Inverse": 1}
    check(cut, {"x": generator.random((1, 16, 16), dtype=np.float32) + 16 * np.eye(16, dtype=np.float32)})


def test_types_without_kernels_stay_on_the_host(tmp_path: Path) -> None:
    """A float64 input, and nodes that compute in float64."""
    model = build(
        "(double[1,16] x) => (double y)",
        "a = Cast<to=1>(x) b = MatMul(a, w) c = Cast<to=11>(b) y = Relu(c)",
        {"w": (16, 16)},
        opset=17,
    )
    cut = cut_of(model, tmp_path)
    assert ops(cut) == [["MatMul"]] and cut.host_ops == {"Cast": 2, "Relu": 1}
    check(cut, {"x": np.linspace(-1, 1, 16).reshape(1, 16)})


def test_an_output_that_is_a_constant_is_an_output_of_the_rest(tmp_path: Path) -> None:
    model = build(
        "(float[1,16] x) => (float y, int64 size, float w2, float q)",
        "y = MatMul(x, w) size = Size(y) w2 = Identity(w) z1 = NonZero(y) q = Cast<to=1>(z1)",
        {"w": (16, 16)},
        opset=17,
    )
    check(cut_of(model, tmp_path), {"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 16)})


def test_a_node_of_the_host_computes_its_known_outputs_too(tmp_path: Path) -> None:
    """They are no weights then, and no values for outputs: each name has one origin."""
    model = build(
        "(float[1,16] x) => (float y, float known)",
        """a = MatMul(x, w)
           known, found = If (yes) <then_branch = g1 () => (float k, int64 f) { k = Neg(half) f = NonZero(a) },
                                    else_branch = g2 () => (float k, int64 f) { k = Identity(half) f = NonZero(x) }>
           c = Cast<to=1>(found) y = Mul(c, known)""",
        {"w": (16, 16), "yes": np.array(True), "half": numbers(0.5)},
        opset=17,
    )
    cut = cut_of(model, tmp_path)
    assert ops(cut) == [["MatMul"]] and cut.host_ops["If"] == 1
    check(cut, {"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 16)})


@pytest.mark.parametrize("declared", ["float", "int32"])
def test_an_output_of_the_host_of_another_type_than_declared_is_refused(tmp_path: Path, declared: str) -> None:
    """Though its shape is not known."""
    body = "m = MatMul(x, w) y = NonZero(m)"
    path = save(build(f"(float[3,4] x) => ({declared}[2,n] y)", body, {"w": (4, 5)}), tmp_path)
    with pytest.raises(ModelError, match=r"output 'y' of model .* is declared as \w+32, .* it gives int64;"):
        cut_model(path, {})


def test_without_onnxruntime_the_error_says_what_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "mine" : 1]> small (float[1,16] x) => (float y) {
                a = mine.Magic(x) y = Relu(a) }"""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r"--unsupported host needs onnxruntime, .*: pip install onnxruntime"):
        cut_of(onnx.parser.parse_model(text), tmp_path)


def test_an_input_with_a_value_is_a_constant_of_the_rest(tmp_path: Path) -> None:
    """Another value than a weight of the same name has, too."""
    body = "a = MatMul(x, w) q = Cast<to=11>(a) b = Mul(q, t) t = Cast<to=11>(s) c = Cast<to=1>(b) y = Mul(c, k)"
    model = build("(float[2,4] x, float s, float k) => (float[2,4] y)", body, {"w": (4, 4)})
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, np.float32), "s"))
    listed = tmp_path / "list.txt"
    listed.write_text("x:=x.npy k:=k.npy\n", encoding="utf-8")
    cut = cut_model(save(model, tmp_path), {}, {"s": 0.25, "k": 8})
    rest = rest_of(cut, stand_in)
    assert [item.name for item in rest.graph.input] == ["x"]
    values = {item.name: float(numpy_helper.to_array(item)) for item in rest.graph.initializer}
    assert values == {"s": 0.25, "k": 8}
    with pytest.raises(ConfigError, match=r"list\.txt:1: input 'k' was fixed by --input_value; leave it out"):
        ground_truth_of_parts([cut], listed)
    truth = ground_truth_of_parts([cut], None)
    for part in cut.own:
        (inputs,) = truth.inputs[part.graph.name]
        got, want = evaluate(lower(part.graph), inputs), truth.oracles[part.graph.name].run(inputs)
        assert differing(got, want) == ""

"""Test that functions of a model compute what onnxruntime computes, with attributes that calls give or leave out."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from gputune.client.model.importer import import_nodes, load, read_model
from gputune.client.model.importer.inlining import with_functions_in_place
from gputune.client.model.lowering import lower
from gputune.client.model.parts import cut_model
from gputune.client.model.reference import evaluate
from gputune.client.run.onnx_backend import GputuneBackend, Unsupported
from tests.client.model.test_import_limits import nest
from tests.client.model.test_parts import in_onnxruntime
from tests.client.models import Array, save

OPSETS = 'opset_import: ["" : 18, "own" : 1]'
INPUTS: dict[str, Array] = {"x": np.linspace(-3, 2, 12, dtype=np.float32).reshape(3, 4)}


def with_functions(functions: str, body: str = "y = own.f(x)") -> onnx.ModelProto:
    """A model of x and y; each function is written without its domain and operator sets."""
    written = "".join(f'<{OPSETS}, domain: "own"> {each.strip()}\n' for each in functions.split(";"))
    return onnx.parser.parse_model(f"<ir_version: 9, {OPSETS}> g (float[3,4] x) => (float[] y) {{ {body} }} {written}")


def branches(then: str) -> str:
    """An If of which the first branch is taken, which is known only when the model runs."""
    return (
        "s = ReduceMax<keepdims=0>(x) n = Constant<value_float=0.0>() c = Greater(s, n) "
        f"y = If(c) <then_branch = t () => (z) {{ {then} }}, else_branch = e () => (w) {{ w = Relu(x) }}>"
    )


TAKEN = "s = Constant<value_int=1>() c = Cast<to=9>(s)"
G = "g<a: float = 0.3>(x) => (y) { y = LeakyRelu<alpha: float = @a>(x) }"
MODELS = {
    "a float": with_functions("f<slope: float = 0.3>(x) => (y) { y = LeakyRelu<alpha: float = @slope>(x) }"),
    "an int": with_functions("f<axis: int = 0>(x) => (y) { y = Softmax<axis: int = @axis>(x) }"),
    "a text": with_functions(
        'f<how: string = "edge">(x) => (y) { p = Constant<value_ints=[0, 1, 0, 2]>() '
        "y = Pad<mode: string = @how>(x, p) }"
    ),
    "ints": with_functions("f<p: ints = [0, 1]>(x) => (y) { y = Transpose<perm: ints = @p>(x) }"),
    "floats of a constant": with_functions(
        "f<k: floats = [1.0, 2.0, 3.0, 4.0]>(x) => (y) { c = Constant<value_floats: floats = @k>() y = Mul(x, c) }"
    ),
    "a tensor of a constant": with_functions(
        "f<k: tensor = float[4] {4, 3, 2, 1}>(x) => (y) { c = Constant<value: tensor = @k>() y = Mul(x, c) }"
    ),
    "given in one call of two": with_functions(G, "a = own.g(x) b = own.g<a = 0.5>(x) y = Add(a, b)"),
    "handed on": with_functions(f"f<q: float = 0.7>(x) => (y) {{ y = own.g<a: float = @q>(x) }}; {G}"),
    "handed on by a call that omits it": with_functions(f"f<q>(x) => (y) {{ y = own.g<a: float = @q>(x) }}; {G}"),
    "at three depths": with_functions(
        "f<p: float = 0.7>(x) => (y) { a = own.h<q: float = @p>(x) b = own.h(a) y = Sub(a, b) };"
        "h<q: float = 0.6, r: float = 1.5>(x) => (y) { a = own.g<a: float = @q>(x) "
        f"b = own.g(x) c = Constant<value_float: float = @r>() d = Mul(a, c) y = Add(d, b) }}; {G}"
    ),
    "in a branch of the function": with_functions(
        f"f<q: float = 0.7>(x) => (y) {{ {TAKEN} y = If(c) <then_branch = t () => (z) "
        "{ u = LeakyRelu<alpha: float = @q>(x) z = own.g(u) }, else_branch = e () => (w) { w = Relu(x) }> };"
        f"{G}"
    ),
    "in a branch of the model": with_functions(
        G,
        f"{TAKEN} y = If(c) <then_branch = t () => (z) {{ z = own.g(x) }}, "
        "else_branch = e () => (w) { w = Relu(x) }>",
    ),
}  # fmt: skip
ON_HOST = {
    "in a branch of the function": with_functions(
        f"f<q: float = 0.7>(x) => (y) {{ {branches('u = LeakyRelu<alpha: float = @q>(x) z = own.g(u)')} }}; {G}"
    ),
    "in a branch of the model": with_functions(G, branches("z = own.g(x)")),
    "in the body of a loop": with_functions(
        "f<q: float = 0.7>(x) => (y) { n = Constant<value_int=3>() y = Loop(n, , x) <body = b (int64 i, bool go, "
        "float[3,4] v) => (bool stay, float[3,4] w) { stay = Identity(go) u = LeakyRelu<alpha: float = @q>(v) "
        f"w = own.g(u) }}> }}; {G}"
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_attribute_that_a_call_omits_has_its_default(tmp_path: Path, name: str) -> None:
    graph = read_model(save(MODELS[name], tmp_path))
    want = in_onnxruntime(MODELS[name], ["y"], INPUTS)["y"]
    np.testing.assert_allclose(evaluate(lower(graph), INPUTS)["y"], want, rtol=1e-6)


@pytest.mark.parametrize("name", ON_HOST)
def test_a_model_that_is_cut_has_the_defaults_too(tmp_path: Path, name: str) -> None:
    cut = cut_model(save(ON_HOST[name], tmp_path), {})
    want = in_onnxruntime(ON_HOST[name], ["y"], INPUTS)["y"]
    np.testing.assert_array_equal(in_onnxruntime(cut.imported.model, ["y"], INPUTS)["y"], want)


def test_models_of_the_backend_interface_have_the_defaults_too() -> None:
    prepared = GputuneBackend.prepare(MODELS["ints"], "null")
    assert prepared.run([INPUTS["x"]])[0].shape == (3, 4)
    with pytest.raises(Unsupported, match="nodes once its functions are expanded"):
        GputuneBackend.prepare(nest(24), "null")


def test_a_function_in_another_operator_set_is_refused_and_the_others_are_in_place(tmp_path: Path) -> None:
    model = with_functions(f"f(x) => (y) {{ y = Neg(x) }}; {G}", "a = own.g(x) y = own.f(a)")
    model.functions[0].opset_import[0].version = 17
    imported = import_nodes(load(save(model, tmp_path)), tmp_path, {})
    assert [one.op for one in imported.refusals] == ["own.f"]
    assert [node.op for node in imported.graph.nodes] == ["LeakyRelu", "own.f"]


def test_functions_that_call_each_other_are_refused() -> None:
    calls = "f<a: float = 1.0>(x) => (y) { y = own.h(x) }; h(x) => (y) { y = own.f(x) }"
    model = with_functions(calls, "y = Relu(x)")
    with pytest.raises(ValueError, match="call each other in a circle"):
        with_functions_in_place(model)

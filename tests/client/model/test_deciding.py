"""Test the advice to make constants of inputs that decide how a model computes."""

from pathlib import Path

import onnx.parser
import pytest

import gputune
from gputune.client.errors import UnsupportedNodes
from gputune.client.model.importer import read_model
from gputune.client.model.importer.deciding import MOST_TENSORS
from gputune.client.model.lowering import lower
from gputune.client.model.nearest import line_with_advice, nearest_form
from tests.client.commands import Gputune
from tests.client.models import build, integers, save

BRANCHES = """y = If(c) <then_branch = a () => (float[1,4] p) { p = Neg(x) },
                        else_branch = b () => (float[1,4] q) { q = Exp(x) }>"""


def choosing(signature: str, condition: str, given: str = "") -> onnx.ModelProto:
    """A model with an If on a condition."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x{signature}) => (float[1,4] y) {given}'
    return onnx.parser.parse_model(f"{text} {{ {condition} {BRANCHES} }}")


def refused(model: onnx.ModelProto, folder: Path) -> UnsupportedNodes:
    with pytest.raises(UnsupportedNodes) as caught:
        lower(read_model(save(model, folder)))
    return caught.value


def advice(model: onnx.ModelProto, folder: Path) -> str:
    (one,) = refused(model, folder).refusals
    return nearest_form(one)


RATE = choosing(", int64 sr", "c = Equal(sr, high)", "<int64 high = {16000}>")


@pytest.mark.parametrize(
    ("model", "option"),
    [
        (RATE, "make 'sr' a constant, e.g. --input_value sr=16000"),
        (choosing(", bool c", ""), "make 'c' a constant, e.g. --input_value c=true"),
        (
            choosing(", int32[2] n", "g = Gather(n, i) l = Cast<to=7>(g) c = Less(l, i)", "<int64 i = {1}>"),
            "make 'n' a constant, e.g. --input_value n=1,1",
        ),
        (
            choosing(", float t", "s = Identity(t) c = Greater(s, h)", "<float h = {0.5}>"),
            "make 't' a constant, e.g. --input_value t=0.5",
        ),
        (
            choosing(", int64 n", "m = Mul(n, h) c = Greater(m, h)", "<int64 h = {8}>"),
            "make 'n' a constant, e.g. --input_value n=1",
        ),
        (
            choosing(", int64 n, bool t", "m = Cast<to=9>(n) c = And(m, t)"),
            "make 't' and 'n' constants, e.g. --input_value t=true --input_value n=1",
        ),
    ],
)
def test_an_if_on_inputs_names_the_option(tmp_path: Path, model: onnx.ModelProto, option: str) -> None:
    """The value is one that the model compares the input with."""
    error = refused(model, tmp_path)
    assert [(one.op, one.why) for one in error.refusals] == [("If", "'c' must be known before it runs")]
    assert f"; instead: {option};" in line_with_advice(error)


@pytest.mark.parametrize(
    "model",
    [
        choosing("", "s = ReduceMax<keepdims=0>(x) c = Greater(s, h)", "<float h = {0.5}>"),
        choosing(", int64 n", "s = ReduceMax<keepdims=0>(x) l = Cast<to=7>(s) c = Greater(l, n)"),
        choosing(", float[2] w", "s = ReduceMax<keepdims=0>(w) c = Cast<to=9>(s)"),
        choosing(", int64[9] n", "s = ReduceMax<keepdims=0>(n) c = Cast<to=9>(s)"),
        choosing(", int64[1] n", "s = Expand(n, h) t = ReduceMax<keepdims=0>(s) c = Cast<to=9>(t)", "<int64 h = {9}>"),
        choosing(", int64 n", "r = RandomUniformLike<dtype=1>(n) c = Greater(r, h)", "<float h = {0.5}>"),
        choosing(", float[1,1] w", "s = MatMul(w, x) t = ReduceMax<keepdims=0>(s) c = Cast<to=9>(t)"),
    ],
)
def test_an_if_on_data_does_not(tmp_path: Path, model: onnx.ModelProto) -> None:
    """On what follows from activations, from long lists, or through what is not folded."""
    ops = {one.op: nearest_form(one) for one in refused(model, tmp_path).refusals}
    assert "for one branch" in ops["If"] and not any("--input_value" in one for one in ops.values())


@pytest.mark.parametrize(
    ("signature", "body", "instead"),
    [
        ("(float[4,8] x, int64[1] k) => (float y, int64 i)", "y, i = TopK(x, k)", "k=1"),
        ("(float[4] x, int64[2] n) => (float[a,b] y)", "m = Neg(n) y = Reshape(x, m)", "n=1,1"),
        ("(float[4] x, int64 n) => (int64[N] y, float[4] z)", "y = Range(a, n, b) z = Neg(x)", "n=1"),
        ("(float[2,3] x, int64 a) => (float[2,3] y)", "y = CumSum(x, a)", "a=1"),
        ("(float[4] x, int64[1] a) => (float[N] y)", "y = Slice(x, a, b)", "a=1"),
    ],
)
def test_so_does_whatever_must_be_known(tmp_path: Path, signature: str, body: str, instead: str) -> None:
    weights = {"a": integers(0), "b": integers(1)} if "Range" in body else {"b": integers(1).reshape(1)}
    model = build(signature, body, weights if "b)" in body else {}, opset=17)
    assert f"a constant, e.g. --input_value {instead}" in advice(model, tmp_path)


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("(int64[2] n) => (float[a,b] y)", "y = ConstantOfShape(n)"),  # no input would be left
        ("(float[1,1,4,4] x, float[1,1,3,3] w) => (float[1,1,2,2] y)", "y = Conv(x, w)"),
        ("(float[2,3] x) => (float[2,3] y)", "m = ReduceMax<keepdims=0>(x) a = Cast<to=7>(m) y = CumSum(x, a)"),
    ],
)
def test_nothing_is_proposed_for_data(tmp_path: Path, signature: str, body: str) -> None:
    assert "--input_value" not in advice(build(signature, body), tmp_path)


@pytest.mark.parametrize(("nodes", "found"), [(MOST_TENSORS - 2, True), (MOST_TENSORS, False)])
def test_long_chains_are_not_followed_to_their_ends(tmp_path: Path, nodes: int, found: bool) -> None:
    """In a large model, nodes at the ends of long chains would take very long together."""
    chain = " ".join(f"b{place + 1} = Not(b{place})" for place in range(nodes))
    model = choosing(", bool b0", f"{chain} c = Identity(b{nodes})")
    assert ("--input_value b0=true" in advice(model, tmp_path)) == found


def test_the_advice_works(gputune: Gputune, tmp_path: Path) -> None:
    path = save(RATE, tmp_path)
    ran = gputune("model-check", path)
    *_, option = next(line for line in ran.out.splitlines() if "instead" in line).partition("e.g. ")
    assert (ran.code, option) == (9, "--input_value sr=16000")
    assert gputune("model-check", path, *option.split()).code == 0


def test_python_gets_it_in_its_words(tmp_path: Path) -> None:
    path = save(RATE, tmp_path)
    (one,) = gputune.check(path).unsupported
    assert one.instead == "make 'sr' a constant, e.g. input_values={'sr': 16000}"
    assert gputune.check(path, input_values={"sr": 16000}).runs
    several = save(
        choosing(", int64[2] n, bool t", "m = ReduceMax<keepdims=0>(n) b = Cast<to=9>(m) c = And(b, t)"), tmp_path
    )
    (one,) = gputune.check(several).unsupported
    assert one.instead.endswith("e.g. input_values={'t': True, 'n': [1, 1]}")

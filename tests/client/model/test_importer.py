"""Test reading ONNX files: the result, and one clear line for everything that cannot be tuned."""

import re
from pathlib import Path

import numpy as np
import onnx
import onnx.external_data_helper
import pytest
from onnx import TensorProto, helper, numpy_helper

from gputune.client.errors import ModelError
from gputune.client.model.importer import operators, read_model
from gputune.client.model.parts import cut_model
from tests.client import models
from tests.client.models import build, integers, numbers, save


def refusal(path: Path, dimensions: dict[str, tuple[int, ...]] | None = None) -> str:
    """The message of the error, which is one line that names the file."""
    with pytest.raises(ModelError) as caught:
        read_model(path, dimensions)
    message = caught.value.message
    assert "\n" not in message
    assert caught.value.exit_code != 0
    return message


def test_nodes_shapes_and_weights_arrive_without_onnx_types(tmp_path: Path) -> None:
    graph = read_model(save(models.conv_relu_gemm(), tmp_path))
    assert [node.op for node in graph.nodes] == ["Conv", "Relu", "Flatten", "Gemm"]
    assert (graph.inputs, graph.outputs, graph.opset) == (("x",), ("y",), 13)
    assert graph.nodes[0].attributes["pads"] == (1, 0, 1, 2)
    assert graph.shape("c") == (1, 4, 5, 7)
    assert graph.shape("f") == (1, 140)
    assert graph.constants["w"].shape == (4, 3, 3, 3)
    assert all(type(value).__module__ == "numpy" for value in graph.constants.values())


def test_shape_arithmetic_and_constants_fold_away(tmp_path: Path) -> None:
    graph = read_model(save(models.MODELS["shape_arithmetic"](), tmp_path))
    assert [node.op for node in graph.nodes] == ["Relu", "Reshape"]
    assert graph.shape("y") == (2, 48)
    assert graph.constants["c"].tolist() == [2, -1]


def test_constants_of_old_operator_sets_may_be_integers(tmp_path: Path) -> None:
    """Operator sets before 9 allow floats only, but exporters have written sizes so."""
    size = helper.make_node("Constant", [], ["size"], value=numpy_helper.from_array(np.array([3, 2], np.int64)))
    info = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [6]), ("y", [3, 2]))
    ]
    graph = helper.make_graph([size, helper.make_node("Reshape", ["x", "size"], ["y"])], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 7)], ir_version=8)
    assert read_model(save(model, tmp_path)).shape("y") == (3, 2)


def test_weights_computed_from_constants_fold_by_the_models_own_operator_set(tmp_path: Path) -> None:
    """Operator set 10 squeezes by attribute; the newest one would read an input."""
    body = "s = Squeeze<axes=[0]>(w) t = Transpose<perm=[1,0]>(s) y = MatMul(x, t)"
    graph = read_model(save(build("(float[2,3] x) => (float[2,4] y)", body, {"w": (1, 4, 3)}, opset=10), tmp_path))
    assert [node.op for node in graph.nodes] == ["MatMul"]
    assert graph.constants["t"].shape == (3, 4)


def test_initializers_listed_as_inputs_are_not_inputs(tmp_path: Path) -> None:
    model = build("(float[1,3] x, float[3,2] w) => (float[1,2] y)", "y = MatMul(x, w)", {"w": (3, 2)}, 8, 3)
    assert read_model(save(model, tmp_path)).inputs == ("x",)


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    opset = [helper.make_opsetid("", 13), helper.make_opsetid("mine", 1)]
    function = helper.make_function(
        "mine", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], opset[:1]
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Twice", ["x"], ["y"], domain="mine")], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=opset, functions=[function], ir_version=8)
    assert [node.op for node in read_model(save(model, tmp_path)).nodes] == ["Add"]


def test_a_second_output_that_nobody_reads_may_be_anything(tmp_path: Path) -> None:
    """Shape inference knows nothing about the mask of the Dropout of operator set 9."""
    model = build("(float[2] x) => (float[2] y)", "d, mask = Dropout(x) y = Relu(d)", opset=9)
    assert [node.op for node in read_model(save(model, tmp_path)).nodes] == ["Dropout", "Relu"]


def test_a_known_number_cast_like_another_folds(tmp_path: Path) -> None:
    model = build("(float[2] x) => (float[2] y)", "c = CastLike(n, x) y = Mul(x, c)", {"n": integers(3)}, opset=21)
    graph = read_model(save(model, tmp_path))
    assert [node.op for node in graph.nodes] == ["Mul"]
    assert graph.constants["c"].dtype == np.float32


DECLARED_OTHERWISE = {
    "a cast": ("float16", "y = Cast<to=1>(x)", "float32"),
    "a whole number": ("int64", "y = Cast<to=6>(x)", "int32"),
    "a float": ("int32", "y = Relu(x)", "float32"),
    "places": ("float", "y = ArgMax<axis=0, keepdims=1>(x)", "int64"),
    "a condition": ("uint8", "y = Greater(x, x)", "bool"),
    "a constant": ("int64", "y = Constant<value_float=1.0>()", "float32"),
    "a body": ("double", "y = LessOrEqual(x, x)", "bool"),
}


@pytest.mark.parametrize("name", DECLARED_OTHERWISE)
def test_an_output_of_another_type_than_declared_is_refused(tmp_path: Path, name: str) -> None:
    declared, body, computed = DECLARED_OTHERWISE[name]
    path = save(build(f"(float[3] x) => ({declared}[1] y)", body), tmp_path)
    said = refusal(path)
    numpys = {"float": "float32", "double": "float64"}.get(declared, declared)
    assert f"output 'y' of model {path} is declared as {numpys}, but what computes it gives {computed};" in said
    with pytest.raises(ModelError) as caught:
        cut_model(path, {})
    assert caught.value.message == said


class TestFiles:
    """What is wrong with the file itself."""

    def test_missing(self, tmp_path: Path) -> None:
        assert "does not exist" in refusal(tmp_path / "none.onnx")

    def test_a_folder(self, tmp_path: Path) -> None:
        assert "is not a file" in refusal(tmp_path)

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "is empty (0 bytes)"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12345\n", "`git lfs pull`"),
            (b"\n <!DOCTYPE html>\n<html></html>", "is a web page"),
            (b"\xef\xbb\xbf<?xml version='1.0'?><Error/>", "is a web page"),
            (b"PK\x03\x04" + bytes(60), "is an archive: unpack it"),
            (b"\x1f\x8b\x08" + bytes(60), "is an archive: unpack it"),
            (b"GPUTUNE\0" + bytes(60), "is a gputune context and no model"),
            (b"\x08\x08", "is not an ONNX file: it has no graph"),
        ],
    )
    def test_another_file_under_the_name(self, tmp_path: Path, content: bytes, said: str) -> None:
        (tmp_path / "m.onnx").write_bytes(content)
        assert said in refusal(tmp_path / "m.onnx")

    def test_a_data_file(self, tmp_path: Path) -> None:
        """One that is missing, or that Git has not brought."""
        model = build("(float[2,2] x) => (float[2,2] y)", "y = MatMul(x, w)", {"w": (2, 2)})
        path = tmp_path / "m.onnx"
        onnx.save(model, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
        (tmp_path / "m.data").unlink()
        said = refusal(path)
        assert "keeps weights in m.data, which is missing; it belongs in the folder of the model" in said
        assert f"as {tmp_path / 'm.data'}" in said
        (tmp_path / "m.data").write_bytes(b"version https://git-lfs.github.com/spec/v1\n"[:15])
        assert "it is cut short: copy, download" in refusal(path)
        (tmp_path / "m.data").write_bytes(b"<html>")
        assert "it is a web page" in refusal(path)

    @pytest.mark.parametrize(
        ("nodes", "said"),
        [
            ("y = Relu(nope)", "no node, input or weight makes 'nope', which Relu node 'y' reads"),
            ("y = Mul(x, a) a = Neg(b)", "makes 'b', which Neg node 'a' reads"),
            (
                "c = ReduceSum<keepdims=0>(x) d = Cast<to=9>(c) y = If(d) <then_branch = a () => (float[2] p) "
                "{ p = Exp(nope) }, else_branch = b () => (float[2] q) { q = Exp(x) }>",
                "makes 'nope', which Exp node 'p' reads",
            ),
        ],
    )
    def test_names_that_nothing_makes(self, tmp_path: Path, nodes: str, said: str) -> None:
        text = f'<ir_version: 8, opset_import: ["" : 17]> small (float[2] x) => (float[2] y) {{ {nodes} }}'
        assert said in refusal(save(onnx.parser.parse_model(text), tmp_path))

    def test_cut_short(self, tmp_path: Path) -> None:
        path = save(models.conv_relu_gemm(), tmp_path)
        whole = path.read_bytes()
        for nbytes in (2, 3, 10, 50, len(whole) // 2, len(whole) - 100, len(whole) - 1):
            path.write_bytes(whole[:nbytes])
            assert f"{path} is cut short: copy" in refusal(path) or nbytes == 2

    @pytest.mark.parametrize("content", [b"", b"not a model", bytes(1000)])
    def test_something_else(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "model.onnx"
        path.write_bytes(content)
        assert str(path) in refusal(path)

    def test_what_the_checker_refuses(self, tmp_path: Path) -> None:
        model = models.conv_relu_gemm()
        model.graph.node[1].input[0] = "nowhere"
        assert "nowhere" in refusal(save(model, tmp_path))

    def test_shapes_that_contradict_each_other_name_the_node(self, tmp_path: Path) -> None:
        model = build("(float[2,3] x) => (float[2,5] y)", "y = MatMul(x, w)", {"w": (4, 5)})
        model.graph.node[0].name = "first product"
        assert "first product" in refusal(save(model, tmp_path))

    def test_an_operator_set_too_new(self, tmp_path: Path) -> None:
        model = build("(float[2] x) => (float[2] y)", "y = Relu(x)", opset=99)
        assert "operator set 99" in refusal(save(model, tmp_path))

    def test_an_old_operator_set_that_cannot_be_converted(self, tmp_path: Path) -> None:
        model = build("(float[a,b] x, float[a] z) => (float[a,b] y)", "y = Add<axis=0, broadcast=1>(x, z)", opset=6)
        message = refusal(save(model, tmp_path), {"x": (2, 3), "z": (2,)})
        assert "operator set 6; 7 is the oldest supported, and onnx cannot convert it" in message

    def test_old_operator_sets_are_converted(self, tmp_path: Path) -> None:
        """Before operator set 7 a slope that is a vector belonged to channels, whatever the last axis is."""
        body = "r = PRelu(x, s) y = Add<broadcast=1>(r, w)"
        model = build("(float[2,3,5,3] x) => (float[2,3,5,3] y)", body, {"w": (5, 3), "s": (3,)}, opset=6)
        graph = read_model(save(model, tmp_path))
        assert graph.opset == 7
        assert [(node.op, graph.shape(node.inputs[1])) for node in graph.nodes] == [
            ("PRelu", (3, 1, 1)),
            ("Add", (5, 3)),
        ]


class TestUnsupported:
    """Valid models that are not for us."""

    def test_all_operators_at_once_with_their_nodes(self, tmp_path: Path) -> None:
        body = "r = Relu(x) l = Det(r) u = Bernoulli(l) e = Relu(u) y = GlobalLpPool(e)"
        model = build("(float[1,3,4,4] x) => (float[1,3] y)", body, opset=22)
        for index, node in enumerate(model.graph.node):
            node.name = f"node{index}"
        message = refusal(save(model, tmp_path))
        assert "Det node 'node1' is not supported: there are no kernels for Det; " in message
        assert "Bernoulli node 'node2' is not supported: there are no kernels for RandomUniformLike, part" in message
        assert "Relu" not in message

    def test_shape_arithmetic_behind_an_unknown_operator_is_not_blamed(self, tmp_path: Path) -> None:
        text = """<ir_version: 8, opset_import: ["" : 13, "mine" : 1]> g (float[2,3] x) => (float[N] y)
                  <int64[1] rest = {-1}> {
                    m = mine.Magic(x) s = Shape(m) c = Concat<axis=0>(s, rest) r = Reshape(x, c) y = Relu(r) }"""
        message = refusal(save(onnx.parser.parse_model(text), tmp_path))
        assert "mine.Magic" in message
        assert "Concat" not in message

    def test_operators_that_are_defined_for_a_shape_are_not_blamed_where_it_is_unknown(self, tmp_path: Path) -> None:
        text = """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]> g (float[2,3] x) => (float[N] y) {
                    i = NonZero(x) c = Cast<to = 1>(i) g = com.microsoft.QuickGelu(c) y = Shrink(g) }"""
        message = refusal(save(onnx.parser.parse_model(text), tmp_path))
        assert "NonZero" in message
        assert "QuickGelu" not in message

    def test_int8_weights_that_fold_are_no_quantisation(self, tmp_path: Path) -> None:
        body = "f = DequantizeLinear(w, s) y = Mul(x, f)"
        weights = {"w": np.array([1, -2], dtype=np.int8), "s": numbers(0.5)}
        graph = read_model(save(build("(float[2] x) => (float[2] y)", body, weights), tmp_path))
        assert graph.constants["f"].tolist() == [0.5, -1.0]


def with_raw(dims: list[int], content: bytes, data_type: int = TensorProto.FLOAT) -> onnx.ModelProto:
    model = build("(float[2,3] x) => (float[2,3] y)", "y = Mul(x, w)")
    model.graph.initializer.append(TensorProto(name="w", data_type=data_type, dims=dims, raw_data=content))
    return model


@pytest.mark.parametrize(
    ("dims", "content", "data_type", "complaint"),
    [
        ([3], bytes(4), TensorProto.FLOAT, "weight 'w' (3) of model"),
        ([3], bytes(5), TensorProto.FLOAT, "buffer size must be a multiple of element size"),
        ([-1], bytes(12), TensorProto.FLOAT, "weight 'w' (-1) of model"),
        ([1 << 40], bytes(12), TensorProto.FLOAT, "cannot reshape"),
        ([3], bytes(12), 99, "unknown data type 99"),
    ],
)
def test_weights_that_are_not_what_they_say(
    tmp_path: Path, dims: list[int], content: bytes, data_type: int, complaint: str
) -> None:
    """Some versions of onnx find it before we do; the weight is named either way."""
    message = refusal(save(with_raw(dims, content, data_type), tmp_path))
    assert complaint in message or re.search(r"model \S+ is not valid: .*\(tensor name: w\)", message)


class TestInlining:
    """What takes the place of a node: the body of its operator, or a branch."""

    @pytest.fixture(autouse=True)
    def _no_kernel(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operators, "SUPPORTED_OPS", operators.SUPPORTED_OPS - {"MeanVarianceNormalization"})

    def test_a_known_branch_takes_the_place_of_its_if(self, tmp_path: Path) -> None:
        text = """<ir_version: 8, opset_import: ["" : 13]> g (float[2] x) => (float[2] y, float[2] z) <bool yes = {0}> {
                    y, z = If(yes) <then_branch = a () => (float[2] p, float[2] p2) { p = Relu(x) p2 = Relu(p) },
                                    else_branch = b () => (float[2] q, float[2] q) { r = Neg(x) q = Exp(r) }> }"""
        graph = read_model(save(onnx.parser.parse_model(text), tmp_path))
        assert [(node.op, node.inputs[0], node.output) for node in graph.nodes] == [
            ("Neg", "x", "y/r"),
            ("Exp", "y/r", "y"),
            ("Identity", "y", "z"),
        ]

    def test_an_operator_becomes_the_body_that_onnx_gives_it(self, tmp_path: Path) -> None:
        model = build("(float[2,3,5,7] x) => (float[2,3,5,7] y)", "y = MeanVarianceNormalization<axes=[0,2]>(x)")
        graph = read_model(save(model, tmp_path))
        assert {"ReduceMean", "Sub", "Div"} <= {node.op for node in graph.nodes}
        assert {node.attributes["axes"] for node in graph.nodes if node.op == "ReduceMean"} == {(0, 2)}
        assert {node.stands_for for node in graph.nodes} == {("MeanVarianceNormalization_0",)}

    def test_a_body_never_takes_the_names_of_others(self, tmp_path: Path) -> None:
        body = 's = Neg(x) "m/X_RM" = Relu(s) m = MeanVarianceNormalization("m/X_RM") y = Add(m, s)'
        model = build("(float[2,3,5,7] x) => (float[2,3,5,7] y)", body)
        graph = read_model(save(model, tmp_path))
        outputs = [output for node in graph.nodes for output in node.outputs]
        assert len(set(outputs)) == len(outputs)


class TestNothing:
    """Tensors without elements."""

    def test_what_has_no_elements_is_a_constant(self, tmp_path: Path) -> None:
        body = "none = Slice(x, from, to, axis) y = Concat<axis=1>(none, x)"
        weights = {"from": integers(2), "to": integers(2), "axis": integers(1)}
        graph = read_model(save(build("(float[2,3] x) => (float[2,3] y)", body, weights), tmp_path))
        assert [node.op for node in graph.nodes] == ["Concat"]
        assert graph.constants["none"].shape == (2, 0)


@pytest.mark.parametrize("opset", range(12, 17))
@pytest.mark.parametrize("op", ["GreaterOrEqual", "LessOrEqual"])
def test_comparisons_that_were_functions_have_shapes(tmp_path: Path, op: str, opset: int) -> None:
    node = helper.make_node(op, ["x", "w"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))
    y = helper.make_tensor_value_info("y", TensorProto.BOOL, (2, 3))
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(np.zeros(3, np.float32), "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    assert read_model(save(model, tmp_path)).shape("y") == (2, 3)


def test_a_range_takes_numbers_in_tensors_of_one_element(tmp_path: Path) -> None:
    """As in the function by which ONNX defines AffineGrid."""
    limits = [
        numpy_helper.from_array(np.array([value], np.int64), name) for name, value in (("a", 0), ("b", 6), ("c", 2))
    ]
    nodes = [
        helper.make_node("Range", list("abc"), ["r"]),
        helper.make_node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    model = helper.make_model(
        helper.make_graph(nodes, "range", [x], [y], limits), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, tmp_path / "range.onnx")
    graph = read_model(tmp_path / "range.onnx", {})
    assert [node.op for node in graph.nodes] == ["Add"]
    assert [list(value) for value in graph.constants.values()] == [[0, 2, 4]]

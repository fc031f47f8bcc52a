"""Test op packages: what they add, how far it reaches, and what is not a package."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.client.errors import ConfigError, ModelError
from gputune.client.model import op_packages
from gputune.client.model.guarded_families import guarded_family
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.op_packages import in_use, load_packages
from gputune.client.model.reference import evaluate
from gputune.client.tuning.search.task_search import task_key
from gputune.kernels.catalogue import families, family_of
from gputune.kernels.family import DeviceLimits, Instance, KernelFamily
from gputune.kernels.ops.softmax import SoftmaxProblem
from tests.client import models
from tests.client.commands import Gputune

EXAMPLE = str(Path(__file__).parents[2] / "op_package_example")


def wave_model(shift: tuple[int, ...] = (5,)) -> onnx.ModelProto:
    """Two waves over a convolution's map, and the softmax that the example replaces."""
    text = """<ir_version: 8, opset_import: ["" : 13, "com.example" : 1]>
        small (float[2,3,4,5] x) => (float[2,3,4,5] y, float[2,3,4,5] z) {
            c = Conv(x, w)
            a = com.example.Wave <amplitude = 0.5> (c, shift)
            r = Relu(a)
            y = Softmax <axis = 1> (r)
            z = com.example.Wave (r, shift)
        }"""
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(4)
    for name, size in (("w", (3, 3, 1, 1)), ("shift", shift)):
        value = generator.standard_normal(size).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return model


def wave_reference(model: onnx.ModelProto, x: Any) -> tuple[Any, Any]:
    w, shift = (onnx.numpy_helper.to_array(item).astype(np.float64) for item in model.graph.initializer)
    r = np.maximum(0.5 * np.sin(np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0])) + shift, 0)
    e = np.exp(r - r.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True), np.sin(r) + shift


def test_an_operator_of_another_domain_is_lowered(tmp_path: Path) -> None:
    model = wave_model()
    path = models.save(model, tmp_path)
    with in_use(load_packages([EXAMPLE])):
        plan = lower(read_model(path))
        x = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)
        got = evaluate(plan, {"x": x})
        waves = [each for each in plan.operations if each.task.op == "Wave"]
        assert [each.nodes for each in waves] == [("Wave_1",), ("Wave_4",)]
    for value, want in zip(got.values(), wave_reference(model, x), strict=True):
        np.testing.assert_allclose(value, want, atol=1e-5)
    with pytest.raises(ModelError, match=r"com\.example\.Wave"):
        read_model(path)


def test_a_better_variant_has_measurements_of_its_own(tmp_path: Path) -> None:
    plan = lower(read_model(models.save(models.MODELS["softmaxes_13"](), tmp_path)))
    task = next(task for task in plan.tasks if task.op == "Softmax")
    stock, before = family_of("Softmax"), task_key(task)
    assert before.op == "Softmax"
    with in_use(load_packages([EXAMPLE])):
        assert family_of("Softmax") is families()["Softmax"] is not stock
        key = task_key(task)
        assert key.op == "Softmax@op_package_example 1.0"
        assert key.digest != before.digest
        assert task_key(next(t for t in plan.tasks if t.op != "Softmax")).op.isalpha()
    assert family_of("Softmax") is stock
    assert task_key(task) == before


def test_the_shape_function_refuses(tmp_path: Path) -> None:
    path = models.save(wave_model(shift=(4,)), tmp_path)
    with in_use(load_packages([EXAMPLE])), pytest.raises(ModelError, match=r"Wave takes float32 .* and \(4,\)"):
        read_model(path)


def package(folder: Path, name: str, text: str) -> str:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(text, encoding="utf-8")
    return str(folder / name)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("__version__ = '1'", "no module with a FAMILY and no LOWERINGS"),
        ("LOWERINGS = {}", "has no __version__"),
        ("__version__ = '1'; LOWERINGS = {'a.B': print}", "lowers a.B and has no function in SHAPES"),
        ("__version__ = '1'; LOWERINGS = {'Foo': 3}", "must map names of operators to functions"),
        ("__version__ = '1'; LOWERINGS = {'HardSwish': print}", "which another op replaces first"),
        ("__version__ = '1'; LOWERINGS = {'Foo': print}; SHAPES = {'Foo': print}", "not for Foo"),
        ("import nowhere_to_be_found", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_is_no_package(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        load_packages([package(tmp_path, "one", text)])
    assert "\n" not in str(caught.value)


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere is neither a folder nor an entry point of gputune.op_packages"):
        load_packages(["nowhere"])
    with pytest.raises(ConfigError, match=r"has no __init__.py"):
        load_packages([str(tmp_path)])


def test_two_packages_with_the_same(tmp_path: Path) -> None:
    text = "__version__ = '2'; LOWERINGS = {'Foo': print}"
    both = [package(tmp_path, "one", text), package(tmp_path, "two", text)]
    assert len(load_packages([both[0], both[0]])) == 1
    with pytest.raises(ConfigError, match=r"op packages one 2 and two 2 both have the lowering Foo"):
        load_packages(both)


def test_an_entry_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a distribution has it: found by the name it gives, with the distribution's version."""
    package(tmp_path, "installed_ops", "LOWERINGS = {'Foo': print}")
    metadata = tmp_path / "installed_ops-3.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-ops\nVersion: 3.1\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(f"[{op_packages.GROUP}]\nours = installed_ops\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = load_packages(["ours"])
    assert (found.title, list(found.lowerings)) == ("ours 3.1", ["Foo"])


def test_model_check_knows_packages(gputune: Gputune, tmp_path: Path) -> None:
    path = models.save(wave_model(), tmp_path)
    ran = gputune("model-check", path)
    assert ran.code == 9 and "an op package that lowers com.example.Wave" in ran.out
    ran = gputune("model-check", path, "--op_packages", EXAMPLE)
    assert ran.code == 0 and "Wave 24×5 → 24×5" in ran.out


LEGAL = DeviceLimits(256, (256, 256, 256), 1 << 16, 1 << 30, 2, "CPU", 8)
"""Of some device."""


def failing(**answers: Any) -> KernelFamily:
    """The example's Softmax with a method or two that do something else."""
    (given,) = load_packages([EXAMPLE])
    stock = given.families["Softmax"]
    made = type("Failing", (type(stock),), {name: staticmethod(answer) for name, answer in answers.items()})()
    assert isinstance(made, KernelFamily)
    return guarded_family(made, "mine 1")


def raising(*arguments: Any) -> Any:
    raise KeyError("boo")


def launch_with(**fields: Any) -> Callable[..., Instance]:
    """A render whose launch has other fields."""
    stock = load_packages([EXAMPLE])[0].families["Softmax"]

    def render(problem: Any, configuration: Any) -> Instance:
        return Instance(dataclasses.replace(stock.render(problem, configuration).main, **fields))

    return render


@pytest.mark.parametrize(
    ("asked", "answers", "complaint"),
    [
        ("space", {"space": raising}, "space of Softmax raised KeyError: 'boo'"),
        ("space", {"space": lambda *a: None}, "space of Softmax: it returned None instead of a TuningSpace"),
        ("default", {"default": raising}, "default of Softmax raised KeyError"),
        ("default", {"default": lambda *a: {"DIMX": 3}}, "default of Softmax: it returned .* is not legal: DIMX"),
        ("default", {"default": lambda *a: {"FOO": 1}}, "is not legal: unknown parameter FOO"),
        ("default", {"default": lambda *a: 7}, "it returned 7 instead of a configuration"),
        ("starters", {"guesses": raising}, "starters of Softmax raised KeyError"),
        ("starters", {"starters": lambda *a: [{"DIMX": 3}]}, "starters of Softmax: .* is not legal"),
        ("inputs", {"inputs": lambda *a: ["x"]}, "instead of a tuple of TensorSpec"),
        ("output", {"output": lambda *a: "x"}, "it returned 'x' instead of a TensorSpec"),
        ("render", {"render": raising}, "render of Softmax raised KeyError"),
        ("render", {"render": lambda *a: None}, "it returned None instead of an Instance"),
        ("render", {"render": launch_with(global_size=(0,))}, "local ones are at least 1 and divide global ones"),
        ("render", {"render": launch_with(global_size=(7,), local_size=(2,))}, "divide global ones"),
        ("render", {"render": launch_with(local_size=(1.5,))}, "one to three whole numbers each"),
        ("render", {"render": launch_with(arguments=("input", "b"))}, "wants a buffer 'b'; there are input, output"),
        ("reference", {"reference": lambda *a: np.zeros(3)}, r"it returned the shape \(3,\), and the output has"),
    ],
)
def test_what_a_family_of_a_package_does_wrong_is_named(asked: str, answers: Any, complaint: str) -> None:
    problem = SoftmaxProblem(4, 100, 1)
    family = failing(**answers)
    arguments = {
        "render": ({"DIMX": 1},), "reference": ({},), "inputs": (), "output": (),
    }.get(asked, (LEGAL,))  # fmt: skip
    with pytest.raises(ConfigError, match=f"^op package mine 1: .*{complaint}") as caught:
        getattr(family, asked)(problem, *arguments)
    assert "\n" not in str(caught.value)


def test_a_guarded_family_is_the_family() -> None:
    problem, stock = SoftmaxProblem(4, 100, 1), load_packages([EXAMPLE])[0].families["Softmax"]
    family = failing()
    assert (family.op, family.heavy, family.survives) == (stock.op, stock.heavy, stock.survives)
    default = family.default(problem, LEGAL)
    assert default == stock.default(problem, LEGAL)
    assert family.starters(problem, LEGAL) == stock.starters(problem, LEGAL) != []
    assert family.render(problem, default) == stock.render(problem, default)
    with pytest.raises(ValueError, match="no room"):
        failing(default=nothing_fits).default(problem, LEGAL)


def nothing_fits(*arguments: Any) -> Any:
    raise ValueError("no room")


def test_functions_of_a_package_that_raise_are_named(tmp_path: Path) -> None:
    path = models.save(wave_model(), tmp_path)
    text = """__version__ = "1"
def lower(*a): raise KeyError("boo")
def shape(*a): return {}["nothing"]
LOWERINGS = {"com.example.Wave": lower, "Softmax": lower}
SHAPES = {"com.example.Wave": shape}
"""
    with in_use(load_packages([package(tmp_path, "bad", text)])), pytest.raises(ConfigError) as caught:
        lower(read_model(path))
    assert "op package bad 1: shapes of com.example.Wave raised KeyError: 'nothing'" in str(caught.value)


def test_a_package_that_ends_the_process_does_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be imported: SystemExit: 3"):
        load_packages([package(tmp_path, "ends", "import sys; sys.exit(3)")])

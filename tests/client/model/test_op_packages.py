"""Op packages: what they bring, where it reaches, and what is no package."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.client.errors import ConfigError, ModelError
from gputune.client.model import op_packages
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.op_packages import in_use, load_packages
from gputune.client.model.reference import evaluate
from gputune.client.tuning.search.task_search import task_key
from gputune.kernels.catalogue import families, family_of
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
    plan = lower(read_model(models.save(models.softmaxes(13), tmp_path)))
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
        ("__version__ = '1'; LOWERINGS = {'Foo': 3}", "maps no names of operators to functions"),
        ("__version__ = '1'; LOWERINGS = {'HardSwish': print}", "becomes another op before"),
        ("__version__ = '1'; LOWERINGS = {'Foo': print}; SHAPES = {'Foo': print}", "and Foo is none"),
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
    with pytest.raises(ConfigError, match=r"op packages one 2 and two 2 both bring the lowering Foo"):
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

"""Test gputune.tune and gputune.check: the command line's answers as records, on the null device."""

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

import gputune
from gputune.cache import CacheError
from gputune.client.api.shapes import pairs_of
from gputune.client.cli.context_binary_generator import command as generator
from gputune.client.errors import ConfigError, GputuneError, Overwrites
from gputune.client.options.inputs import parse_input_dimensions
from gputune.client.options.python import ARGUMENTS, as_arguments
from tests.client import models

SHAPES = {"x": [(1, 3, 9, 7), (2, 3, 9, 7)]}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = models.save(models.conv_relu_gemm(), tmp_path)
    content = onnx.load(path)
    content.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(content, path)
    return path


def tune(model: Path, null_target: tuple[object, ...], **more: Any) -> gputune.Tuned:
    _, target, _, token_file = map(str, null_target)
    folder = model.parent
    return gputune.tune(
        model, target=target, token_file=token_file, output=folder / "m.bin", cache=folder / "cache", **more
    )


@pytest.mark.slow
def test_tuning_tells_of_its_steps_and_its_result(model: Path, null_target: tuple[object, ...]) -> None:
    steps: list[gputune.TuningProgress] = []
    first = tune(model, null_target, shapes=SHAPES, effort="quick", on_progress=steps.append)
    assert first.path.exists() and [graph.gain for graph in first.graphs] == [None, None]
    assert first.cache_hits == 0 and all(task.tuned_ns and task.trials["ok"] for task in first.tasks)
    assert all(0 <= step.done <= step.total for step in steps)
    assert {step.label for step in steps} >= {"tuning"} and max(step.done for step in steps) > 1
    again = tune(model, null_target, shapes=SHAPES, effort="quick")
    assert again.cache_hits == len(again.tasks) == len(first.tasks)
    assert json.loads(json.dumps(again.to_dict()))["path"] == str(again.path)
    with gputune.load(again.path, "null") as context:
        assert [inputs.shape for inputs in context.inputs] == [(1, 3, 9, 7)]


def test_what_on_progress_raises_ends_the_tuning(model: Path, null_target: tuple[object, ...]) -> None:
    def stop(step: gputune.TuningProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(model, null_target, shapes={"x": (1, 3, 9, 7)}, effort="quick", on_progress=stop)
    assert not (model.parent / "m.bin").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"budget": "soon"}, "budget: 'soon' is not a time"),
        ({"budget": -1.0}, "is too short; give a time above 0"),
        ({"wait_for_quiet": 0}, "^wait_for_quiet: 0 is not a number of minutes from 1 to 10080"),
        ({"fail_under": 0}, "^fail_under: 0 is no gain; give it as 1.05"),
        ({"effort": "none", "fail_under": 1.05}, "^fail_under and cache: tuning is off"),
        ({"effort": "none", "wait_for_quiet": 5}, "^wait_for_quiet and cache: tuning is off"),
        ({"effort": "none", "budget": 5}, "^budget and cache: tuning is off"),
        ({"shapes": {"x": (1, -1)}}, "shapes: the shape of 'x'"),
        ({"shapes": {"x": [(1, 3), 4]}}, "shapes: the shape of 'x'"),
        ({"shapes": {"x": "1,3"}}, "shapes: the shape of 'x' is '1,3'"),
        ({"shapes": {"x": -4}}, "shapes: the shape of 'x' is"),
    ],
)
def test_wrong_wishes_are_refused_before_anything_is_done(model: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        gputune.tune(model, output=model.parent / "m.bin", cache=model.parent / "cache", **more)


def test_errors_are_in_the_words_of_python(model: Path, tmp_path: Path, null_target: tuple[object, ...]) -> None:
    """The functions' arguments, not the command line's options, in what is said of a model, a target and a folder."""
    sizes = {"x": (1, 3, 9, 7)}
    said: list[str] = []

    def fails(function: Callable[..., object], *arguments: object, **more: object) -> None:
        with pytest.raises((GputuneError, CacheError)) as raised:
            function(*arguments, **more)
        said.append(str(raised.value))

    fails(gputune.check, model)
    assert said[-1].endswith("give them, e.g. shapes={'x': (1, 3, 9, 7)}")
    fails(gputune.check, model, {"x": (1, 3, 9)})
    assert "shapes={'x': (1, 3, 9)} has 3 dimensions" in said[-1]
    fails(gputune.tune, model, shapes=sizes, target="board")
    assert said[-1].startswith("target: 'board' is not HOST:PORT")
    fails(gputune.tune, model, shapes=sizes, target="board:1", device="null")
    assert "drop device or target" in said[-1]
    fails(gputune.tune, model, shapes=sizes, token_file=tmp_path / "none")
    assert said[-1].startswith("token_file: ")
    fails(gputune.tune, model, shapes=sizes, cache=model / "folder")
    assert said[-1].endswith("name another folder with cache")
    fails(gputune.tune, [model, model], shapes=sizes)
    assert said[-1].startswith("model: ")
    _, target, _, token_file = map(str, null_target)
    more: dict[str, Any] = {"shapes": sizes, "target": target, "token_file": token_file, "effort": "none"}
    fails(gputune.tune, model, **more, output=tmp_path / "m.bin", verify=True)
    assert said[-1].startswith("verify: ")
    odd = models.save(models.build("(float[4] x) => (float[4] y)", "y = Det(x)"), tmp_path)
    fails(gputune.tune, odd)
    assert "; instead: " in said[-1]
    assert not [line for line in said if "--" in line]


def external(folder: Path, data: str) -> Path:
    """net.onnx with its weights in a file beside it."""
    folder.mkdir(exist_ok=True)
    model = models.conv_relu_gemm()
    onnx.save(model, folder / "net.onnx", save_as_external_data=True, location=data, size_threshold=0)
    return folder / "net.onnx"


@pytest.mark.parametrize(
    ("read", "more"),
    [
        ("output/net.bin", {}),  # what the context is called if nothing else is said
        ("output/net.onnx", {"output": "link.bin"}),
        ("config.json", {"output": "config.json", "config_file": "config.json"}),
    ],
)
def test_no_output_replaces_what_is_read(
    read: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of the command line, where test_outputs_over_inputs.py has all files."""
    monkeypatch.chdir(tmp_path)
    model = external(Path("output"), "net.bin")
    Path("link.bin").symlink_to(model)
    Path("config.json").write_text("{}")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(Overwrites, match=f"^output .* would overwrite .*{read}; give it another name$"):
        gputune.tune(model, effort="none", device="null", **more)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_every_option_in_errors_is_one_of_the_generator_and_of_tune() -> None:
    options = {name for each in generator.params for name in each.opts}
    assert set(ARGUMENTS) <= options
    assert set(ARGUMENTS.values()) <= set(inspect.signature(gputune.tune).parameters)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--input_dimensions a b=1,4 --input_dimensions c=2; or --cold", "shapes={'a b': (1, 4), 'c': 2}; or --cold"),
        ("--float64 float32, which", "float64='float32', which"),
        ("--fail_under 1.05: no gain", "fail_under 1.05: no gain"),
        ("--keep_float32: there is no node", "keep_float32: there is no node"),
        ("--state: 'c' is no pair", "state: 'c' is no pair"),
    ],
)
def test_errors_name_arguments_and_their_values(line: str, said: str) -> None:
    assert as_arguments(line) == said


@pytest.mark.parametrize(
    ("shapes", "option"),
    [
        ({"x": (1, 2), "y": [[3], [4]]}, "x=1,2;y=3;y=4"),
        ({"past": [0, 1, 2]}, "past=0;past=1;past=2"),
        ({"past": (0, 1), "batch": 4}, "past=0;past=1;batch=4"),
        ({"past": [[0], [1]]}, "past=0;past=1"),
        ({"past": range(3)}, "past=0;past=1;past=2"),
        ({"past": [2]}, "past=2"),
        ({"both": [1, 3]}, "both=1,3"),  # an input and a dimension of that name: the input
        ({"both": [[1, 3], [2, 3]], "past": [5, 6]}, "both=1,3;both=2,3;past=5;past=6"),
        ({"model:past": [0, 1]}, "model:past=0;model:past=1"),
        ({"model:x": [0, 1]}, "model:x=0,1"),
        ({"unknown": [0, 1]}, "unknown=0,1"),
    ],
)
def test_shapes_are_what_the_command_takes(shapes: Mapping[str, Any], option: str, tmp_path: Path) -> None:
    text = "(float[batch,past] x, float[past] y, float[m,both] both) => (float[a,b] z)"
    path = models.save(models.build(text, "z = Relu(x)"), tmp_path)
    assert pairs_of(shapes, [path]) == list(parse_input_dimensions((option,), "--input_dimensions"))


@pytest.mark.parametrize("shape", [[], [-1, 2], [1, (2,)], "12", [[1], 2], [1.5], [[]], None])
def test_what_is_no_shape_is_refused(shape: Any, model: Path) -> None:
    with pytest.raises(ConfigError, match=r"^shapes: the shape of 'n' is .*; expected dimensions of at least 0"):
        pairs_of({"n": shape}, [model])


def test_sizes_of_a_dimension_make_a_graph_each(model: Path, null_target: tuple[object, ...]) -> None:
    _, target, _, token_file = map(str, null_target)
    more: dict[str, Any] = {"effort": "none", "target": target, "token_file": token_file}
    tuned = gputune.tune(model, shapes={"n": [1, 2]}, output=model.parent / "m.bin", **more)
    assert [graph.name for graph in tuned.graphs] == ["small_1", "small_2"]
    with pytest.raises(
        ConfigError, match=r"^shapes: a model is checked for one shape and one capacity of a state at a"
    ):
        gputune.check(model, shapes={"n": [1, 2]})
    assert gputune.check(model, shapes={"n": 2}).runs


def test_check_says_what_model_check_says(model: Path, tmp_path: Path) -> None:
    checked = gputune.check(model, {"x": (1, 3, 9, 7)})
    assert checked.runs and checked.unsupported == ()
    assert checked.flops == sum(task.weight * task.flops for task in checked.tasks) > 0
    assert checked.tuning["quick"].trials < checked.tuning["normal"].trials
    odd = models.save(models.build("(float[4] x) => (float[4] y)", "y = Det(x)"), tmp_path)
    refused = gputune.check(odd)
    assert not refused.runs and refused.unsupported[0].op == "Det" and refused.unsupported[0].instead


def test_a_devices_part_alone_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of the host's part say so, as where its folder is not there."""
    for name in [name for name in sys.modules if name.startswith("gputune.client")]:
        monkeypatch.setitem(sys.modules, name, None)
    assert gputune.__getattr__("load") and gputune.__getattr__("devices")
    with pytest.raises(ImportError, match=r"gputune\.tune needs all of gputune, .*pip install \."):
        gputune.__getattr__("tune")

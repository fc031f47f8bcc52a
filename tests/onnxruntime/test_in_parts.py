"""Test that gputune's own tools run models in parts by onnxruntime, on the fake device."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gputune.client.compare.turns import Contender, Process
from gputune.client.errors import DeviceOrContextError
from tests.client.commands import Ran, read_json
from tests.client.contexts import small_context
from tests.client.summaries import problems
from tests.native.fake import DEVICE, doubling_context
from tests.onnxruntime.commands import Commands
from tests.onnxruntime.models import node, save_graph, save_in_parts
from tests.onnxruntime.sessions import Array, Onnxruntime, plugin
from tests.strategies.files.contexts import damaged

pytestmark = pytest.mark.slow  # each test starts processes that open sessions

APPLICATION = Path(__file__).with_name("in_parts.py")
X = np.linspace(-4, 4, 64, dtype=np.float32)
RIGHT: Mapping[str, Array] = {
    "y": -64 * X,
    "whole": (8 * X).astype(np.int64),
    "found": np.stack(np.nonzero((8 * X).astype(np.int64))),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_in_parts(tmp_path / "model.onnx", doubling_context(tmp_path / "parts.bin", ("one", "two")))


def tensor(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [64])


def environment(ort: Onnxruntime) -> dict[str, str]:
    return {**ort.environment, "GPUTUNE_ONNXRUNTIME_LIBRARY": str(plugin())}


@pytest.fixture(scope="session")
def commands(newest: Onnxruntime) -> Iterator[Commands]:
    with Commands(environment(newest)) as process:
        yield process


def net_run(commands: Commands, model: Path, *options: object, more: str = "") -> Ran:
    """Two inferences. more: behind the file of x in the input list."""
    (model.parent / "x.raw").write_bytes(X.tobytes())
    (model.parent / "inputs.txt").write_text(f"x:={model.parent / 'x.raw'}{more}\n" * 2, encoding="utf-8")
    lists = ("--input_list", model.parent / "inputs.txt", "--output_dir", model.parent / "results")
    return commands("net-run", "--retrieve_context", model, *lists, *options)


def assert_right(found: Mapping[str, Array]) -> None:
    assert {name: (array.dtype, array.tolist()) for name, array in found.items()} == {
        name: (array.dtype, array.tolist()) for name, array in RIGHT.items()
    }


def test_an_application_loads_it_as_it_loads_a_context(ort: Onnxruntime, model: Path) -> None:
    command = [sys.executable, str(APPLICATION), str(model), str(model.parent)]
    done = subprocess.run(command, env=environment(ort), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert_right({name: np.load(model.with_name(f"{name}.npy")) for name in RIGHT})
    described = "x float32[64] -> y float32[64], whole int64[64], found int64[1, -1], 2 parts run on Fake GPU, and the"
    assert f"<gputune.Context '{model}' on Fake GPU\n  model: {described} rest in onnxruntime" in done.stdout
    if not ort.is_oldest:  # which does not say it
        assert "(Neg 1, Cast 1, NonZero 1)" in done.stdout


def test_net_run_writes_outputs_and_says_which_nodes_ran_on_which_device(ort: Onnxruntime, model: Path) -> None:
    summary = model.with_name("summary.json")
    with Commands(environment(ort)) as commands:
        options = ("--num_inferences", 5, "--npy", "--summary_json", summary, "--perf_profile", "burst")
        done = net_run(commands, model, *options)
    assert done.code == 0, done.err
    for number in range(2):
        folder = model.parent / "results" / f"Result_{number}"
        assert_right({name: np.load(folder / f"{name}.npy") for name in RIGHT})
        assert (folder / "whole.raw").read_bytes() == RIGHT["whole"].tobytes()
    found = read_json(summary)
    assert problems("net-run", found) == []
    assert len(found["inference_ns"]) == 5 and found["device"] == "Fake GPU"
    assert found["parts"] == ["one", "two"] and found["warnings"] == []
    cpu = {} if ort.is_oldest else {"CPUExecutionProvider": {"Neg": 1, "Cast": 1, "NonZero": 1}}
    assert found["nodes"] == {"GputuneExecutionProvider": {"EPContext": 2}, **cpu}
    assert "2 parts run on Fake GPU" in done.err and "not assigned" not in done.err


def test_branches_have_parts_of_their_own(commands: Commands, model: Path) -> None:
    """A profile has the parts that ran. onnxruntime 1.23 refuses such models."""
    bodies = [
        helper.make_graph([node(["h"], [f"{graph} y"], "parts.bin", graph=graph)], graph, [], [tensor(f"{graph} y")])
        for graph in ("two", "three")
    ]
    nodes = [
        node(["x"], ["h"], "parts.bin", graph="one"),
        helper.make_node("If", ["which"], ["y"], then_branch=bodies[0], else_branch=bodies[1]),
    ]
    doubling_context(model.with_name("parts.bin"), ("one", "two", "three"))
    which = helper.make_tensor_value_info("which", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "m", [tensor("x"), which], [tensor("y")], value_info=[tensor("h")])
    save_graph(model, graph)
    (model.parent / "which.raw").write_bytes(b"\1")
    profile = model.with_name("profile.json")
    done = net_run(commands, model, "--npy", "--profile", profile, more=f" which:={model.parent / 'which.raw'}")
    assert done.code == 0, done.err
    assert np.array_equal(np.load(model.parent / "results" / "Result_0" / "y.npy"), 64 * X)
    assert sorted(read_json(profile)["contexts"]) == ["one", "two"]
    assert "3 parts run on Fake GPU" in done.err


def test_a_context_may_lie_in_the_model(commands: Commands, model: Path) -> None:
    binary = model.with_name("parts.bin")
    save_in_parts(model, binary.read_bytes())
    binary.unlink()
    done = net_run(commands, model, "--npy")
    assert done.code == 0, done.err
    assert_right({name: np.load(model.parent / "results" / "Result_0" / f"{name}.npy") for name in RIGHT})


@pytest.mark.parametrize(("level", "operations"), [("basic", 0), ("detailed", 3)])
def test_net_run_profiles_each_part(commands: Commands, model: Path, level: str, operations: int) -> None:
    profile = model.with_name("profile.json")
    done = net_run(commands, model, "--num_inferences", 4, "--profiling_level", level, "--profile", profile)
    assert done.code == 0, done.err
    parts = read_json(profile)["contexts"]
    assert list(parts) == ["one", "two"]
    assert [(part["inferences"], len(part["operations"])) for part in parts.values()] == [(4, operations)] * 2


def test_a_profile_has_no_more_events_than_asked_for(commands: Commands, model: Path) -> None:
    """Each part of an inference has one for itself, and one for each of its launches."""
    profile, config = model.with_name("profile.json"), model.with_name("config.json")
    for most, inferences in ((17, 2), (7, None)):
        config.write_text(f'{{"profile_configs": {{"num_max_events": {most}}}}}')
        done = net_run(commands, model, "--num_inferences", 4, "--profile", profile, "--config_file", config)
        if inferences is None:
            assert done.code == 2 and "has 8 events at level detailed" in done.err
        else:
            assert {part["inferences"] for part in read_json(profile)["contexts"].values()} == {inferences}


def test_a_context_of_another_driver_is_built_from_source_or_refused(commands: Commands, model: Path) -> None:
    other = replace(DEVICE, driver_version="0.9")
    doubling_context(model.with_name("parts.bin"), ("one", "two"), device=other)
    done = net_run(commands, model)
    assert done.code == 0, done.err
    assert f"warning: {model}: building from source on another device: driver_version" in done.err
    done = net_run(commands, model, "--cache_compatibility_mode", "strict")
    assert done.code == DeviceOrContextError.exit_code
    assert done.err.splitlines()[-1].endswith("[wrong_device]")


def test_a_device_that_computes_nothing_is_refused(commands: Commands, model: Path) -> None:
    for device in ("null", "waiting"):
        done = net_run(commands, model, "--device", device)
        assert done.code == DeviceOrContextError.exit_code
        assert f"{device!r} computes nothing, and a model in parts needs an OpenCL device" in done.err


def test_what_is_wrong_with_a_context_is_one_line(commands: Commands, model: Path) -> None:
    binary = model.with_name("parts.bin")
    whole = binary.read_bytes()

    def refusal() -> str:
        done = net_run(commands, model)
        assert done.code == DeviceOrContextError.exit_code
        (line,) = done.err.splitlines()
        return line

    binary.write_bytes(damaged(whole))
    assert refusal().startswith(f"error: {model}: EPContext node ")
    assert refusal().endswith("[checksum_mismatch]")
    binary.write_bytes(whole[:-100])
    assert refusal().endswith("[truncated]")
    binary.chmod(0o666)
    assert refusal().endswith("[untrusted_file]")
    binary.unlink()
    assert "cannot be found next to the ONNX file" in refusal() and refusal().endswith("[malformed_ep_context]")
    small_context(binary, names=("one", "two"))
    assert "its parts were made on the device 'null'" in refusal()
    doubling_context(binary, ("one", "three"))
    done = net_run(commands, model)
    assert done.code == 2 and "the context has no graph 'two'; its graphs are 'one', 'three'" in done.err


def test_onnxruntimes_own_refusals_are_one_line(commands: Commands, model: Path) -> None:
    broken = onnx.load(str(model))
    broken.graph.node[1].op_type = "Nag"
    onnx.save(broken, str(model))
    done = net_run(commands, model)
    assert done.code == DeviceOrContextError.exit_code
    (line,) = done.err.splitlines()
    assert line.startswith(f"error: {model}: onnxruntime cannot run it: ") and "Nag" in line


def test_the_shapes_of_inputs_must_be_known(commands: Commands, model: Path) -> None:
    free = onnx.load(str(model))
    free.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n"]))
    onnx.save(free, str(model))
    done = net_run(commands, model)
    assert done.code == DeviceOrContextError.exit_code
    assert "input 'z' has the shape ['n'], but all sizes must be fixed" in done.err


def test_an_open_size_of_an_input_is_that_of_the_part_that_reads_it(commands: Commands, model: Path) -> None:
    """The generator leaves sizes open if a branch that is not taken does not fit them."""
    free = onnx.load(str(model))
    free.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(free, str(model))
    done = net_run(commands, model)
    assert done.code == 0, done.err


def test_compare_opens_it_as_a_contender(newest: Onnxruntime, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same inputs as the other engines."""
    for name, value in environment(newest).items():
        monkeypatch.setenv(name, value)
    with Process() as process:
        arguments = {"context": str(model), "device": None}
        contenders = [Contender(name, process, "context", arguments) for name in ("tuned", "untuned")]
        facts = contenders[0].facts
        assert (facts["device"], facts["computes"], facts["threads"]) == ("Fake GPU", True, None)
        assert facts["inputs"] == [{"name": "x", "shape": [64], "dtype": "float32", "memory_type": "raw"}]
        first, second = (one.outputs() for one in contenders)
        assert np.array_equal(first["y"], second["y"]) and np.array_equal(first["whole"], (first["y"] / -8).astype(int))
        assert all(one.block_ns(0.01) for one in contenders)


def test_without_onnxruntime_a_line_says_what_to_install(newest: Onnxruntime, model: Path) -> None:
    hidden = model.with_name("hidden")
    hidden.mkdir()
    (hidden / "onnxruntime.py").write_text("raise ImportError('hidden')\n")
    path = os.pathsep.join([str(hidden), *filter(None, [os.environ.get("PYTHONPATH")])])
    with Commands(environment(newest) | {"PYTHONPATH": path}) as process:
        done = net_run(process, model)
    assert done.code == DeviceOrContextError.exit_code
    assert "onnxruntime is missing (hidden); install it by: pip install" in done.err

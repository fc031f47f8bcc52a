"""Compare made-up models of all kinds of operators, as contexts on the device and in parts, with onnxruntime."""

import random
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from gputune.client.errors import Refusal
from gputune.client.generation.ep_context import EpContextFile
from gputune.client.model.importer import import_model, import_nodes
from gputune.client.model.parts import Cut, cutting
from gputune.client.run.local_device import LocalDevice
from gputune.runtime.application.context import load
from tests.opencl.conftest import KernelBench
from tests.strategies.graphs.comparing import differing, mixed
from tests.strategies.graphs.making import Array, Made


@pytest.mark.parametrize("seed", [20001, 20004, 20005, pytest.param(35, marks=pytest.mark.night)])
def test_made_up_models_run_on_the_device(bench: KernelBench, seed: int) -> None:
    made = mixed(seed)
    got = LocalDevice(bench.backend).load(import_model(made.model, Path("made up"), {})).run(made.inputs)
    assert differing(got, outputs_of(made)) == ""


def outputs_of(made: Made) -> dict[str, Array]:
    return {output.name: made.values[output.name] for output in made.model.graph.output}


def cut_at_random(model: onnx.ModelProto, seed: int) -> Cut:
    """A model of which up to four nodes stay in onnxruntime."""
    for index, node in enumerate(model.graph.node):
        node.name = f"n{index}"
    imported = import_nodes(model, Path("made up"), {})
    names = random.Random(seed).sample(sorted(imported.places), 4)
    refusals = tuple(Refusal("Op", name, "test") for name in names)
    scope = cutting._Scope(replace(imported, refusals=refusals))
    return scope.cut(cutting.Work([scope])).named("made_up", "")


@pytest.mark.parametrize(
    ("seed", "parts"), [(119, 3), *(pytest.param(*each, marks=pytest.mark.night) for each in ((87, 3), (102, 3)))]
)
@pytest.mark.usefixtures("_plugin")
def test_made_up_models_run_in_parts(
    bench: KernelBench, seed: int, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rule in ("LEAST_SHARE", "LEAST_PER_BYTE"):
        monkeypatch.setattr(cutting, rule, 0.0)
    made = mixed(seed)
    cut = cut_at_random(made.model, seed)
    assert len(cut.parts) == parts
    LocalDevice(bench.backend).write(tmp_path / "model.bin", [part.graph for part in cut.parts])
    EpContextFile(tmp_path / "model.onnx", False, (cut,)).write(tmp_path / "model.bin")
    with load(tmp_path / "model.onnx", device=bench.backend.identity.name) as opened:
        got = opened.run(made.inputs)
    assert differing(got, outputs_of(made)) == ""

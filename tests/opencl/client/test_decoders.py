"""Run decoders with a state of a fixed capacity on the device, step by step against onnxruntime at exact lengths."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from gputune.client.context.verifying.steps import Steps
from gputune.client.model.graphs import read_graphs
from gputune.client.model.importer import load as load_model
from gputune.client.model.model_files import ModelFile, StateChoice
from gputune.client.model.oracle import Oracle
from gputune.client.model.state import Decoder, Stateful, with_state
from gputune.client.run.local_device import LocalDevice
from gputune.runtime.application.context import load
from tests.opencl.conftest import KernelBench
from tests.opencl.stateful import write
from tests.strategies.decoders import DECODERS, GROUPS, SIZE, WORDS

CAPACITY = 16
FAR = 1e-5


@pytest.mark.night
@pytest.mark.filterwarnings("ignore:.* was prepared for memory handles and is given as an array")
@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("name", DECODERS)
def test_all_steps_are_those_of_exact_lengths(bench: KernelBench, name: str, tokens: int, tmp_path: Path) -> None:
    make, shapes, values = DECODERS[name]
    path, decoders = tmp_path / "model.onnx", dict[str, Decoder]()
    onnx.save(make(), path)
    file = ModelFile(path, [{**shapes, "sequence_length": (tokens,)}], values, (StateChoice(CAPACITY),))
    (graph,) = read_graphs([file], decoders=decoders)
    executor = LocalDevice(bench.backend).load(graph)
    oracle = Oracle(path, decoders[graph.name].original.model)
    steps = Steps(graph.name, executor.graph.inputs, decoders[graph.name], oracle, FAR, {})
    assert "logits" in steps.verify(executor.run)


@pytest.mark.long("no other run of every day has a device compute what the pass makes of a decoder")
def test_a_prompt_and_tokens_have_one_state(bench: KernelBench, tmp_path: Path) -> None:
    make, shapes, _ = DECODERS["attention"]
    path, made = tmp_path / "model.onnx", {}
    onnx.save(make(), path)
    for tokens in (1, 4):
        given = {**shapes, "sequence_length": (tokens,)}
        decoder = with_state(Stateful(load_model(path), path, given, {}, StateChoice(CAPACITY)))
        assert decoder.states is not None
        made[f"{tokens} of 16"] = decoder.model, decoder.states
    context_file = write(tmp_path / "decoder.bin", bench.backend, made)
    words = np.random.default_rng(0).integers(0, WORDS, (1, 12))
    past = {f"past_key_values.0.{name}": np.zeros((1, GROUPS, 0, SIZE), np.float32) for name in ("key", "value")}
    want = Oracle(path).run({"input_ids": words, **past})["logits"]
    with load(context_file, device=bench.backend.identity.name) as context, context.state() as state:
        for begin, end in ((0, 7), (7, 8), (8, 12)):
            got = context.run({"input_ids": words[:, begin:end]}, state=state)["logits"]
            np.testing.assert_allclose(got, want[:, begin:end], atol=FAR * np.abs(want).max())
        assert state.length == 12

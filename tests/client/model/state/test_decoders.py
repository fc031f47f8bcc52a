"""Test decoders with a state of a fixed capacity in onnxruntime, step by step against what they were made of."""

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import onnx.parser
import pytest

from gputune.client.context.verifying.steps import Arrays, Steps
from gputune.client.errors import VerificationError
from gputune.client.model.graphs import read_graphs
from gputune.client.model.importer import import_nodes, load
from gputune.client.model.model_files import ModelFile, StateChoice
from gputune.client.model.oracle import Oracle
from gputune.client.model.state import Decoder, Stateful, lookups, with_state
from gputune.client.model.state import decoder as decoder_module
from gputune.runtime.context.records import TensorRecord
from tests.strategies.decoders import BATCH, DECODERS, prefix

CAPACITY = 24
ERROR = 1e-5


def decoder_of(name: str, tokens: int, folder: Path, capacity: int = CAPACITY) -> Decoder:
    make, shapes, values = DECODERS[name]
    path = folder / "model.onnx"
    onnx.save(make(), path)
    return with_state(
        Stateful(load(path), path, {**shapes, "sequence_length": (tokens,)}, values, StateChoice(capacity))
    )


def prefix_of(folder: Path) -> Decoder:
    path = folder / "model.onnx"
    onnx.save(prefix(), path)
    return with_state(Stateful(load(path), path, BATCH, {}, StateChoice(CAPACITY, prefix="sequence_length")))


def steps_of(decoder: Decoder, folder: Path) -> Steps:
    tensors = [
        TensorRecord(
            item.name,
            tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim),
            onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type).name,
        )
        for item in decoder.model.graph.input
    ]
    oracle = Oracle(folder / "model.onnx", decoder.original.model)
    return Steps("graph", tensors, decoder, oracle, ERROR, {})


@pytest.mark.parametrize("tokens", [1, 8])
@pytest.mark.parametrize("name", DECODERS)
def test_all_steps_are_those_of_exact_lengths(name: str, tokens: int, tmp_path: Path) -> None:
    decoder = decoder_of(name, tokens, tmp_path)
    onnx.checker.check_model(decoder.model, full_check=True)
    found = steps_of(decoder, tmp_path).verify(Oracle(tmp_path, decoder.model).run)
    assert decoder.states is not None
    assert found.keys() >= {"logits", *(pair.output for pair in decoder.states.pairs)}


@pytest.mark.parametrize("name", ["llama", "gpt2", "t5"])
def test_samples_of_lengths_are_enough(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "ALL_BYTES", 0)
    decoder = decoder_of(name, 1, tmp_path, capacity=40)
    assert "logits" in steps_of(decoder, tmp_path).verify(Oracle(tmp_path, decoder.model).run)


@pytest.mark.parametrize("name", ["fused", "grouped"])
def test_a_larger_capacity_takes_no_more_imports(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    importing = mock.Mock(side_effect=import_nodes)
    monkeypatch.setattr(decoder_module, "import_nodes", importing)
    decoder_of(name, 1, tmp_path)
    count = importing.call_count
    decoder_of(name, 1, tmp_path, capacity=2 * CAPACITY)
    assert importing.call_count == 2 * count


def test_a_prefix_without_a_past_is_that_of_exact_lengths(tmp_path: Path) -> None:
    decoder = prefix_of(tmp_path)
    assert decoder.states is None
    found = steps_of(decoder, tmp_path).verify(Oracle(tmp_path, decoder.model).run)
    assert found["logits"].values > CAPACITY


FIXED = "(float[1, 4] x, float[1, 4] h) => (float[1, 4] y, float[1, 4] hn) { hn = Add (x, h) y = Tanh (hn) }"


@pytest.mark.parametrize("shapes", [{}, {"x": (1, 4), "h": (1, 4)}])
def test_a_state_that_does_not_grow_is_known_by_its_names(shapes: dict[str, tuple[int, ...]], tmp_path: Path) -> None:
    path, model = (
        tmp_path / "model.onnx",
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 13]> small {FIXED}'),
    )
    for item in model.graph.input if shapes else ():  # a dimension without a name
        item.type.tensor_type.shape.dim[0].Clear()
    onnx.save(model, path)
    decoder = with_state(Stateful(load(path), path, shapes, {}, StateChoice(0, (("h", "hn"),))))
    assert decoder.states is not None
    assert [(one.input, one.output, one.axis) for one in decoder.states.pairs] == [("h", "hn", -1)]
    assert shapes or steps_of(decoder, tmp_path).verify(Oracle(path).run)["hn"].values == 8 * 4
    assert decoder.original.dimensions.at(3) == {"x": (1, 4), "h": (1, 4)}


def test_records_say_what_a_step_adds(tmp_path: Path) -> None:
    states = decoder_of("llama, mask kept", 8, tmp_path).states
    assert states is not None
    assert (states.length, states.tokens, states.capacity) == ("length", 8, CAPACITY)
    assert {(one.name, one.axis) for one in states.token_inputs} == {
        ("input_ids", 1),
        ("position_ids", 1),
        ("attention_mask", 1),
    }
    assert [(one.name, one.axis) for one in states.token_outputs] == [("logits", 1)]
    assert {(one.input, one.output, one.axis) for one in states.pairs} == {
        ("past_key_values.0.key", "present.0.key", 2),
        ("past_key_values.0.value", "present.0.value", 2),
        ("attention_mask.past", "attention_mask.present", 1),
    }


def test_there_is_a_graph_for_each_capacity(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make, shapes, _ = DECODERS["attention"]
    path = tmp_path / "model.onnx"
    onnx.save(make(), path)
    given = [{**shapes, "sequence_length": (tokens,)} for tokens in (1, 4)]
    with caplog.at_level("INFO"):
        graphs = read_graphs([ModelFile(path, given, {}, (StateChoice(8), StateChoice(16)))])
    assert [text for text in caplog.messages if text.startswith("--state")] == caplog.messages[:1]
    assert [graph.name.split("_")[-2:] for graph in graphs] == [["1", "8"], ["1", "16"], ["4", "8"], ["4", "16"]]
    found = [graph.states for graph in graphs if graph.states is not None]
    assert [(one.tokens, one.capacity) for one in found] == [(1, 8), (1, 16), (4, 8), (4, 16)]


def off(output: str, change: Callable[[np.ndarray], None]) -> Callable[[Arrays], Arrays]:
    """Return what changes an output."""

    def changed(outputs: Arrays) -> Arrays:
        copy = {name: value.copy() for name, value in outputs.items()}
        change(copy[output])
        return copy

    return changed


def fill(place: tuple[int, ...], value: float) -> Callable[[np.ndarray], None]:
    return lambda array: array.__setitem__(place, value)


WRONG = {
    "logits that are off": (off("logits", fill((0, 0, 3), 7)), 0, "'logits' is not what .* off by"),
    "NaN": (off("logits", fill((0, 0, 3), np.nan)), 0, "'logits' .*: it has NaN"),
    "a row of the state": (off("present.0.key", fill((0, 0, 4, 1), 9)), 4, "with 4 rows .* 'present.0.key'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_step_gets_wrong_is_found(name: str, tmp_path: Path) -> None:
    change, _, message = WRONG[name]
    decoder = decoder_of("gpt2", 1, tmp_path)
    right = Oracle(tmp_path, decoder.model)
    with pytest.raises(VerificationError, match=message):
        steps_of(decoder, tmp_path).verify(lambda inputs: change(right.run(inputs)))


def test_a_step_that_sees_rows_behind_the_end_is_found(tmp_path: Path) -> None:
    decoder = decoder_of("gpt2", 1, tmp_path)
    for node in decoder.model.graph.node:
        if node.op_type == "Less":  # which says what lies before the end
            node.input[1] = next(name for name in node.input if name != node.input[1])
            node.op_type = "Equal"
    with pytest.raises(VerificationError, match="with 0 rows in its state"):
        steps_of(decoder, tmp_path).verify(Oracle(tmp_path, decoder.model).run)

"""Test --state from the command line, a config file and Python to the record in a context."""

from pathlib import Path

import onnx
import pytest

from gputune.runtime.context.states import FIXED, StatePair, StateRecord
from tests.client import models
from tests.client.commands import Generate, Gputune
from tests.strategies.decoders import grouped

PAIRS = [("h_0", "hn_0"), ("h_1", "hn_1"), ("c", "cn")]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = models.build(
        "(float[1,4] x, float[1,4] h_0, float[1,4] h_1, float[1,4] c, float[2,4] other) "
        "=> (float[1,4] y, float[1,4] hn_0, float[1,4] hn_1, float[1,4] cn, float[2,4] more)",
        "hn_0 = Add(x, h_0) hn_1 = Mul(x, h_1) cn = Sub(c, x) y = Add(hn_0, cn) more = Tanh(other)",
    )
    return models.save(made, tmp_path)


@pytest.fixture
def generate(generate: Generate, model: Path) -> Generate:
    generate.model = model
    return generate


def record(*pairs: tuple[str, str]) -> StateRecord:
    return StateRecord("", 0, 0, (), (), tuple(StatePair(*pair, FIXED) for pair in pairs))


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("h_0=hn_0; h_1 = hn_1;c=cn", PAIRS),
        ("h_*=hn_*", PAIRS[:2]),
        ("c=cn", PAIRS[2:]),
    ],
)
def test_the_context_has_the_pairs_and_needs_no_memory_for_them(
    generate: Generate, text: str, pairs: list[tuple[str, str]]
) -> None:
    header = generate("--state", text).header
    (graph,) = header.graphs
    assert graph.states == record(*pairs) and "states" in header.requires
    kept = {tensor.name for tensor in (*graph.inputs, *graph.outputs) if tensor.memory_type == "memhandle"}
    assert kept == {name for pair in pairs for name in pair}


def test_without_it_nothing_is_remembered(generate: Generate) -> None:
    header = generate().header
    assert header.graphs[0].states is None and "states" not in header.requires


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("c=cn;", "--state: 'c=cn;' has a part that is empty"),
        ("h_*=hn", "--state h_*=hn: give two names, with as many * in both"),
        ("c=cn;auto", "--state: 'auto' is no pair IN=OUT"),
        ("auto", "--state auto: no output of model"),
        ("d=cn", "has no input 'd'; it has x, h_0, h_1, c, other"),
        ("d*=cn*", "has no input 'd*'"),
        ("c=dn", "has input 'c', but no output 'dn'"),
        ("other=cn", "they must be the same"),
        ("c=cn --unsupported host", "--state: with --unsupported host onnxruntime runs the model, and keeps no state"),
    ],
)
def test_what_is_no_pair_is_refused_in_a_line(generate: Generate, text: str, said: str) -> None:
    ran = generate("--state", *text.split(" "))
    assert ran.code == 2 and said in ran.last_line and not generate.folder.joinpath("output").exists()


def test_models_of_a_context_remember_alike(generate: Generate, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    onnx.save(onnx.load(str(generate.model)), str(other))
    ran = generate("--state", "c=cn", "--model", f"{generate.model},{other}")
    assert [graph.states for graph in ran.header.graphs] == [record(PAIRS[2])] * 2


CHECKED = {
    "a mask that is 1": (
        ["--input_value", "attention_mask=1", "--input_dimensions", "sequence_length=2"],
        0,
        "state: past_key_values.0.key = present.0.key, past_key_values.0.value = present.0.value; 16 rows, of which an "
        "inference adds 2, in input_ids\n",
    ),
    "a mask that hides tokens": (
        ["--input_dimensions", "sequence_length=1"],
        9,
        "it may mix the rows of the past, and which of them are there is not known before it runs; "
        "instead: --input_value attention_mask=1, if nothing of the past is hidden\n",
    ),
    "two graphs": (["--input_dimensions", "sequence_length=1;sequence_length=2"], 2, ""),
}


@pytest.mark.parametrize("name", CHECKED)
def test_model_check_says_what_a_state_would_be(gputune: Gputune, name: str, tmp_path: Path) -> None:
    options, code, said = CHECKED[name]
    onnx.save(grouped(), tmp_path / "decoder.onnx")
    state = ["--state", "auto", "--state_capacity", 16, "--input_dimensions", "batch_size=1"]
    ran = gputune("model-check", tmp_path / "decoder.onnx", *state, *options)
    assert ran.code == code and said in ran.out

"""Test --weights, its key and its argument: which form a context has, and what is said of its bytes."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import parser
from onnx.numpy_helper import from_array

from gputune.client.context.memory.weights import LARGER, weight_bytes
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.report import sizes
from gputune.client.report.memory import read_memory
from gputune.client.report.sizes import split_of, split_told
from gputune.runtime.context.format import open_context, read_header
from tests.client import models
from tests.client.commands import Generate, Gputune


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.save(models.conv_relu_gemm(), tmp_path)


def test_a_packed_context_is_as_it_was_before_there_were_others(generate: Generate) -> None:
    before = generate().context.read_bytes()
    assert generate("--weights", "packed").context.read_bytes() == before


@pytest.mark.parametrize("form", ["packed", "compact"])
def test_all_bytes_have_a_name(generate: Generate, gputune: Gputune, form: str) -> None:
    ran = generate("--weights", form)
    path = ran.context
    with open_context(path) as file:
        split = split_of(file.header, path.stat().st_size)
        sources = {file.header.weights[index] for one in file.header.packing for index in one.constants("weights")}
        raw = sum(file.section(place).nbytes for place in sources)
        on_device = sum(one.packed_bytes for one in file.header.packing) + split[sizes.PACKED]
    assert sum(split.values()) == path.stat().st_size and min(split.values()) >= 0
    assert (split[sizes.AS_IN_MODEL], raw > 0) == (raw, form == "compact")
    assert read_memory(path).weights_bytes == on_device
    line = "of its bytes: weights as "
    assert (line + ("kernels read them" if form == "packed" else "the model has them")) in ran.err
    said = " ".join(gputune("context-binary-utility", "--context_binary", path).out.split())
    assert line in said and ("of which the device packs" in said) is (form == "compact")
    shown = json.loads(gputune("context-binary-utility", "--context_binary", path, "--json").out)
    assert shown["bytes_of"] == split


def test_what_would_make_a_large_context_smaller_is_said(generate: Generate, model: Path) -> None:
    path = generate(model=model).context
    plan = lower(read_model(model))
    assert weight_bytes([plan]) == sum(one.nbytes for one in plan.constants.values())
    packed = split_of(read_header(path), 10**6)[sizes.PACKED]
    assert "--weights compact" in split_told(path, int(packed / LARGER) - 1)
    assert "--weights compact" not in split_told(path, packed)
    generate("--weights", "compact", model=model)
    assert "--weights compact" not in split_told(path, 1)


@pytest.mark.parametrize(("rows", "widened"), [(4, 0), (64, 4 * (64 * 48 + 48))])
def test_a_line_says_which_numbers_are_widened(generate: Generate, tmp_path: Path, rows: int, widened: int) -> None:
    text = f"one (float[{rows}, 64] x) => (float[{rows}, 48] y) {{ w = DequantizeLinear(q, s) y = MatMul(x, w) }}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    numbers = np.arange(64 * 48, dtype=np.int8).reshape(64, 48)
    model.graph.initializer.extend([from_array(numbers, "q"), from_array(np.array(0.01, np.float32), "s")])
    ran = generate(model=models.save(model, tmp_path))
    assert (f"{widened:,} bytes are numbers of few bits" in ran.err) is bool(widened)
    assert sizes.widened_bytes(read_header(ran.context)) == widened

"""Test what options, keys and arguments ask of the precision of a model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gputune as api
from gputune.client.generation.precision import mode_on
from gputune.client.options.config import AskedPrecision
from gputune.core.dtypes import FLOAT, HALF, HALF_EXTENSION
from gputune.core.identity import DeviceIdentity
from gputune.core.precision import STORED
from tests.client.commands import Generate, Gputune
from tests.client.contexts import DEVICE
from tests.client.model.test_precision import NETWORK, WEIGHTS
from tests.client.models import Array, build, save


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(build("(float[1,3,8,8] x) => (float[1,5] y)", NETWORK, WEIGHTS), tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--io_type", "float64"), "'float64' is no type of floats; give float32 or float16 or bfloat16, or NAME=TYPE"),
        (("--io_type", "z=float16"), "--io_type: there is no input or output 'z'; there are 'x', 'y'"),
        (
            ("--keep_float32", "Conv,Cnov"),
            "--keep_float32: there is no node or type of nodes 'Cnov'",
        ),
        (("--keep_float32", "Conv"), "--keep_float32 has no effect, as all is in float32; drop it, or give"),
        (("--precision_mode", "float16"), "null does not compute in float16, as its driver does not offer cl_khr_fp16"),
        (("--unsupported", "host", "--io_type", "float16"), "--io_type has no meaning with --unsupported host"),
    ],
)
def test_what_cannot_be_asked_for(generate: Generate, model: Path, options: tuple[str, ...], said: str) -> None:
    ran = generate(*options, model=model)
    assert ran.code == 2 and said in ran.last_line, ran.err


def test_a_context_says_its_mode_and_has_the_types_that_are_asked_for(generate: Generate, model: Path) -> None:
    keys: dict[str, Any] = {
        "precision_mode": "float16_storage",
        "io_type": {"x": "float16"},
        "keep_float32": ["MatMul"],
    }
    header = generate(model=model, **keys).header
    assert {key: header.configuration[key] for key in keys} == keys
    (graph,) = header.graphs
    assert [tensor.dtype for tensor in (*graph.inputs, *graph.outputs)] == ["float16", "float32"]
    header = generate("--io_type", "float16", "--precision_mode", "float32", model=model).header
    assert header.configuration["precision_mode"] == "float32"
    assert {tensor.dtype for tensor in (*header.graphs[0].inputs, *header.graphs[0].outputs)} == {HALF}


@pytest.mark.parametrize(("extensions", "mode"), [((HALF_EXTENSION,), HALF), ((), STORED)])
def test_a_model_in_float16_computes_in_it_if_the_device_can(
    caplog: pytest.LogCaptureFixture, extensions: tuple[str, ...], mode: str
) -> None:
    device = replace(DeviceIdentity.from_dict(DEVICE), extensions=extensions)
    caplog.set_level("INFO", logger="gputune")
    assert mode_on(device, AskedPrecision(), own=HALF) == mode
    (record,) = caplog.records
    assert record.getMessage().startswith(f"precision_mode {mode}: the model is in float16, and {device.name} ")
    caplog.clear()
    assert mode_on(device, AskedPrecision(), own=FLOAT) == FLOAT
    assert mode_on(device, AskedPrecision(FLOAT), own=HALF) == FLOAT
    assert not caplog.records


@pytest.fixture
def double_tail(tmp_path: Path) -> Path:
    body = "m = MatMul(x, w) d = Cast<to=11>(m) y = Mul(d, two)"
    weights: dict[str, tuple[int, ...] | Array] = {"w": (4, 4), "two": np.array(2.0)}
    return save(build("(float[3,4] x) => (double[3,4] y)", body, weights), tmp_path)


def test_float64_is_computed_in_float32_where_that_is_asked_for(
    generate: Generate, gputune: Gputune, double_tail: Path
) -> None:
    """By the option that the refusal names."""
    refused = generate(model=double_tail)
    assert refused.code == 3 and "; instead: --float64 float32, which computes it in float32" in refused.last_line
    header = generate("--float64", "float32", model=double_tail).header
    assert header.configuration["float64"] == "float32" and header.graphs[0].outputs[0].dtype == "float32"
    checked = api.check(double_tail)
    assert not checked.runs and "float64='float32', which computes it in float32" in checked.unsupported[0].instead
    assert gputune("model-check", double_tail).code == 9
    assert gputune("model-check", double_tail, "--float64", "float32").code == 0

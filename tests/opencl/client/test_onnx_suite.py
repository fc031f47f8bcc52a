"""Run a sample of small models of ONNX's own test suite on the device; test_every_onnx_case.py runs all of it."""

import unittest
from collections.abc import Iterator

import pytest
from onnx.backend.test import loader, runner

from models.onnx_suite_worker import cases, result_of

PASSES = (
    "test_AvgPool2d_stride", "test_BatchNorm1d_3d_input_eval", "test_Conv1d_pad1size1",
    "test_Conv2d_groups_thnn", "test_Embedding", "test_GLU_dim", "test_MaxPool1d_stride_padding_dilation",
    "test_MaxPool2d_stride_padding_dilation", "test_PReLU_2d_multiparam", "test_PixelShuffle",
    "test_ReflectionPad2d", "test_log_softmax_dim3", "test_operator_addmm", "test_operator_chunk",
    "test_operator_concat2", "test_operator_convtranspose", "test_operator_index", "test_operator_pad",
    "test_operator_permute2", "test_operator_pow", "test_operator_reduced_mean_keepdim", "test_operator_repeat",
    "test_operator_symbolic_override",
)  # fmt: skip
NAMED = dict[str, unittest.TestCase]


@pytest.fixture(scope="module")
def named() -> Iterator[NAMED]:
    """The cases that are files; onnx would compute all others first, which takes a while."""
    load = loader.load_model_tests
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runner, "load_model_tests", lambda kind: [] if kind in ("node", "real") else load(kind=kind))
        yield {name: case for (_, name), case in cases().items()}


@pytest.mark.parametrize("name", [*PASSES[:4], *(pytest.param(one, marks=pytest.mark.night) for one in PASSES[4:])])
def test_a_case_passes_on_kernels(named: NAMED, name: str) -> None:
    result = result_of(named[name])
    assert (result["status"], result["detail"]) == ("passed", "")
    assert result["operations"] > 0


def test_a_case_that_is_refused_says_why_and_does_not_pass(named: NAMED) -> None:
    result = result_of(named["test_strnorm_model_nostopwords_nochangecase"])
    assert (result["status"], result["rule"]) == ("excluded", "there are no kernels for StringNormalizer")


def test_what_is_wrong_fails(named: NAMED, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gputune.client.run.onnx_backend.LoadedGraph.run", lambda self, inputs, _: {"1": inputs["0"] + 1}
    )
    result = result_of(named["test_ReLU"])
    assert result["status"] == "failed"
    assert "Not equal to tolerance" in result["detail"]

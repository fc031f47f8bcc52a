"""Run cases of ONNX's test suite, one for each line of standard input ("node test_abs"), by one of BACKENDS.

For each case, the worker writes a line of JSON: status, rule, detail, and the number of kernels, or of parts in
onnxruntime. The first line is the device.
"""

import importlib
import json
import os
import sys
import unittest
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar
from unittest.mock import patch

from onnx import ModelProto
from onnx.backend.test import runner
from onnx.backend.test.case import node
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.runner import Runner

from gputune.client.model.graph import Array
from gputune.client.run.onnx_backend import ANY_DEVICE, GputuneBackend, PreparedModel
from models.in_onnxruntime.cut_cases import InOnnxruntime, report
from models.onnx_suite import KINDS, SUFFIX
from models.onnx_suite_rules import rule_of


class Counted:
    """A prepared model whose runs are counted."""

    def __init__(self, model: PreparedModel) -> None:
        self._model = model

    def run(self, inputs: Any) -> tuple[Array, ...]:
        outputs = self._model.run(inputs)
        assert self._model.loaded is not None
        Counting.operations.append(self._model.loaded.operations)
        return outputs


class Counting(GputuneBackend):
    """The backend, with the number of operations of each run since the list was emptied."""

    operations: ClassVar[list[int]] = []

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = ANY_DEVICE, **kwargs: Any) -> bool:
        return True  # prepare says why not

    @classmethod
    def prepare(cls, model: ModelProto, device: str = ANY_DEVICE, **kwargs: Any) -> Any:
        return Counted(super().prepare(model, device, **kwargs))


BACKENDS: Mapping[str, type[Counting | InOnnxruntime]] = {"gputune": Counting, "onnxruntime": InOnnxruntime}


def result_of(case: unittest.TestCase, backend: type[Counting | InOnnxruntime] = Counting) -> dict[str, Any]:
    """What became of a case."""
    backend.operations.clear()
    result = unittest.TestResult()
    case.run(result)
    operations = sum(backend.operations)
    for _, trace in (*result.errors, *result.failures):
        return {"status": "failed", "rule": "", "detail": last_lines(trace), "operations": operations}
    for _, reason in result.skipped:
        if (rule := rule_of(reason)) is None:
            return {"status": "failed", "rule": "", "detail": f"refused: {reason}", "operations": 0}
        return {"status": "excluded", "rule": rule, "detail": reason, "operations": 0}
    if not backend.operations:
        return {"status": "failed", "rule": "", "detail": "nothing ran", "operations": 0}
    return {"status": "passed", "rule": "", "detail": "", "operations": operations}


def last_lines(trace: str) -> str:
    """What a trace ends with: the error, in one line."""
    lines = trace.strip().splitlines()
    start = max((place for place, line in enumerate(lines) if line and not line[0].isspace()), default=0)
    while start > 0 and not lines[start - 1].startswith(("  ", "Traceback")):  # messages of several lines
        start -= 1
    return " ".join(" ".join(lines[start:]).split())[:600]


def cases(
    backend: type[Counting | InOnnxruntime] = Counting, files: Sequence[str] = ()
) -> dict[tuple[str, str], unittest.TestCase]:
    """Every case by kind and name. files: node cases of these modules of onnx alone, because onnx computes what all of
    its cases expect, which takes a while."""

    def of_files(kind: str) -> list[TestCase]:
        return [] if kind != "node" else [case for file in files for case in _of_file(file)]

    with patch.object(runner, "load_model_tests", of_files) if files else nullcontext():
        found = Runner(backend).test_cases
    return {
        (kind, method.removesuffix(SUFFIX)): found[name](method)
        for name, kind in KINDS.items()
        if name in found
        for method in dir(found[name])
        if method.startswith("test_") and method.endswith(SUFFIX)
    }


def _of_file(name: str) -> list[TestCase]:
    """The node cases that a module of onnx makes."""
    before = len(node._NodeTestCases)
    importlib.import_module(f"{node.__name__}.{name}")
    return node._NodeTestCases[before:]


def main(through: str, *files: str) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what others print is no answer
    backend = BACKENDS[through]
    known = cases(backend, files)
    answers.write(json.dumps(report().title) + "\n")
    answers.flush()
    for line in sys.stdin:
        kind, name = line.split()
        answers.write(json.dumps(result_of(known[kind, name], backend)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

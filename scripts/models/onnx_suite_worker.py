"""Run cases of ONNX's own test suite by one of BACKENDS, in this process:

    python -m models.onnx_suite_worker BACKEND [GROUP ...]

The cases are those that standard input names, one a line ("node test_abs"), or all of them. A line of JSON says of each
its name, status, rule, detail, and the number of kernels, or of parts in onnxruntime. The first line is the device.

A case passes if it ran and all of its outputs are right. It is excluded if gputune refuses it for the reason that
onnx_refused.json gives. Any other result is a failure.
"""

import functools
import importlib
import json
import os
import pkgutil
import sys
import unittest
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast
from unittest.mock import patch

import numpy as np
from onnx import ModelProto
from onnx.backend.test import runner
from onnx.backend.test.case import node
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from gputune.client.memory_types import MemoryTypes
from gputune.client.model.graph import Array, Graph
from gputune.client.model.lowering import lower
from gputune.client.model.plan import Operation, Plan
from gputune.client.model.reference import evaluate
from gputune.client.run.local_device import LocalDevice
from gputune.client.run.onnx_backend import ANY_DEVICE, GputuneBackend, PreparedModel
from models.in_onnxruntime.cut_cases import InOnnxruntime, report

KINDS = {
    "OnnxBackendNodeModelTest": "node",
    "OnnxBackendSimpleModelTest": "simple",
    "OnnxBackendPyTorchOperatorModelTest": "pytorch-operator",
    "OnnxBackendPyTorchConvertedModelTest": "pytorch-converted",
}
SUFFIX = "_cpu"
GROUPS = (*(each.name for each in pkgutil.iter_modules(node.__path__) if not each.ispkg), *[*KINDS.values()][1:])
"""The modules of onnx that make node cases, and the kinds of cases that are files."""

REFUSED: Mapping[str, str] = {
    name: reason
    for reason, names in json.loads(Path(__file__).with_name("onnx_refused.json").read_text(encoding="utf-8")).items()
    for name in names
}
"""Of each case that gputune does not run, a part of the message that says why."""
SHOWS_NOTHING = ("no part: ", "onnxruntime cannot run it: ")
"""How the reasons of in_onnxruntime/cut_cases.py begin for which any case may be excluded."""


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


@dataclass(frozen=True)
class Referenced:
    """What PreparedModel asks of a loaded graph, for a plan."""

    plan: Plan

    @property
    def launches(self) -> tuple[Operation, ...]:
        return self.plan.operations

    @property
    def graph(self) -> "Referenced":
        return self

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Mapping[str, Array]:
        with np.errstate(all="ignore"):
            return evaluate(self.plan, inputs)


class References:
    """What PreparedModel asks of a device, by the references of a plan's kernels."""

    def load(self, graph: Graph, memory_types: MemoryTypes) -> Referenced:
        return Referenced(lower(graph))


class ByReferences(Counting):
    """The backend without a device."""

    @classmethod
    def opened(cls, device: str) -> LocalDevice:
        return cast(LocalDevice, References())

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == ANY_DEVICE


Backend = type[Counting | InOnnxruntime]
BACKENDS: Mapping[str, Backend] = {"gputune": Counting, "references": ByReferences, "onnxruntime": InOnnxruntime}


def result_of(case: unittest.TestCase, backend: Backend = Counting) -> dict[str, Any]:
    """Run a case and return its result."""
    backend.operations.clear()
    result = unittest.TestResult()
    case.run(result)
    operations = sum(backend.operations)
    for _, trace in (*result.errors, *result.failures):
        return {"status": "failed", "rule": "", "detail": last_lines(trace), "operations": operations}
    for _, reason in result.skipped:
        known = (REFUSED.get(case.id().rpartition(".")[2].removesuffix(SUFFIX)), *SHOWS_NOTHING)
        rule = next((each for each in known if each and each in reason), None)
        if rule is None:
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


def cases(backend: Backend = Counting, files: Sequence[str] = ()) -> dict[tuple[str, str], unittest.TestCase]:
    """Every case by kind and name. files: those of some GROUPS alone, because onnx computes what all of its node cases
    expect, which takes a while."""

    def of_files(kind: str) -> Sequence[TestCase]:
        if kind == "node":
            return [case for file in files if file not in KINDS.values() for case in of_file(file)]
        return load_model_tests(kind=kind) if kind in files else ()

    with patch.object(runner, "load_model_tests", of_files) if files else nullcontext():
        found = Runner(backend).test_cases
    return {
        (kind, method.removesuffix(SUFFIX)): found[name](method)
        for name, kind in KINDS.items()
        if name in found
        for method in dir(found[name])
        if method.startswith("test_") and method.endswith(SUFFIX)
    }


@functools.cache
def of_file(name: str) -> list[TestCase]:
    """The node cases that a module of onnx makes; it makes them once in a process."""
    before = len(node._NodeTestCases)
    importlib.import_module(f"{node.__name__}.{name}")
    return node._NodeTestCases[before:]


def main(through: str, *files: str) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what others print is no answer
    backend = BACKENDS[through]
    known = cases(backend, files)
    wanted = [(kind, name) for kind, name in map(str.split, sys.stdin)] or [*known]
    answers.write(json.dumps(report().title) + "\n")
    for kind, name in wanted:
        answers.write(json.dumps({"name": name, **result_of(known[kind, name], backend)}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

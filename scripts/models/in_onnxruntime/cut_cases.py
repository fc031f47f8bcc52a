"""Run models of ONNX's test suite in onnxruntime: parts by gputune's plugin, all other nodes by onnxruntime itself.

A model is cut, as with `--unsupported host`, when the values of its inputs are known, because inputs may decide what is
computed (shape_inputs.py). A device and the plugin are opened once in a process.
"""

from __future__ import annotations

import functools
import tempfile
import unittest
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnx.backend.base
from onnx import ModelProto

import gputune
from gputune.client.context.verifying.distance import compared
from gputune.client.generation.ep_context import EpContextFile
from gputune.client.input_values import value_of
from gputune.client.model.importer.shape_inputs import compile_time_inputs
from gputune.client.model.parts import Cut, cut_model
from gputune.client.run.local_device import LocalDevice
from gputune.runtime.backends import open_backend
from gputune.runtime.devices.discovery import DeviceReport, find, wanted_device

ERRORS_ONLY = 3
NAME = gputune.onnxruntime.ep_name()


class Excluded(unittest.SkipTest):
    """Report that a case shows nothing of the plugin."""


class InOnnxruntime(onnx.backend.base.Backend):
    """ONNX's backend interface. operations: how many parts ran on the device in each run, since it was emptied."""

    operations: ClassVar[list[int]] = []

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        return True  # running says why not

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> Any:
        return Prepared(model, cls.operations)


@dataclass(frozen=True)
class Prepared:
    """A model that is cut for the inputs of each run."""

    model: ModelProto
    operations: list[int]

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs. Raises Excluded if no part runs on the device, if onnxruntime cannot run the model itself, or if
        outputs show nothing."""
        given = self._named(inputs)
        deciding = compile_time_inputs(self.model.graph.node)
        arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
        with tempfile.TemporaryDirectory(prefix="gputune-") as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(self.model, path)
            try:
                cut = cut_model(
                    path,
                    {name: value.shape for name, value in arrays.items() if name not in deciding},
                    {name: value_of(value, name) for name, value in arrays.items() if name in deciding},
                )
                outputs = run(in_parts(cut, path.parent), given, len(cut.parts))
                if not cut.parts:
                    check_equal(outputs, run(path, given))
                    raise Excluded(f"no part: {', '.join(cut.host_ops) or 'known without computing'}")
            except Exception as error:
                if not isinstance(error, (Excluded, AssertionError)) and (why := why_not(path, given)):
                    raise Excluded(f"onnxruntime cannot run it: {why}") from None
                raise
        check_telling(outputs)
        self.operations.append(len(cut.parts))
        return outputs

    def _named(self, inputs: Sequence[Any]) -> dict[str, Any]:
        valued = {item.name for item in self.model.graph.initializer}
        names = [item.name for item in self.model.graph.input]
        required = [name for name in names if name not in valued]
        given = dict(zip(required if len(required) == len(inputs) else names, inputs, strict=True))
        return {name: np.asarray(value) if isinstance(value, np.generic) else value for name, value in given.items()}


def why_not(path: Path, inputs: Mapping[str, Any]) -> str:
    """Why onnxruntime cannot run a model, in one line; empty if it can."""
    try:
        run(path, inputs)
    except Exception as error:  # onnxruntime's errors have no class of their own
        return " ".join(str(error).split())
    return ""


def check_telling(outputs: Sequence[Any]) -> None:
    """Raise Excluded for outputs whose values are all NaN or infinite, which any broken kernel gives."""
    found = [compared(output, output) for output in outputs if isinstance(output, np.ndarray)]
    if found and all(one.shows_nothing for one in found):
        raise Excluded("all values of its outputs are NaN or infinite, so nothing is compared")


def check_equal(outputs: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Raises AssertionError."""
    for output, one in zip(outputs, wanted, strict=True):
        if isinstance(one, list):
            check_equal(output, one)
        else:
            np.testing.assert_array_equal(output, one)


def in_parts(cut: Cut, folder: Path) -> Path:
    """The ONNX file of a cut model, with its context next to it."""
    binary, path = folder / "context.bin", folder / "context_ctx.onnx"
    if cut.parts:
        device().write(binary, [part.graph for part in cut.parts])
    EpContextFile(path, False, (cut,)).write(binary)
    return path


def run(path: Path, inputs: Mapping[str, Any], parts: int = 0) -> list[Any]:
    """The outputs of a file in onnxruntime, with gputune's plugin, which must run so many nodes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = ERRORS_ONLY
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    name = str(device().device["name"])
    options.add_provider_for_devices(gputune.onnxruntime.devices(), {"device": name})
    session = onnxruntime.InferenceSession(str(path), options)
    if hasattr(session, "get_provider_graph_assignment_info"):
        found = [one for one in session.get_provider_graph_assignment_info() if one.ep_name == NAME]
        assert len(found) == parts, f"{len(found)} parts run on the device instead of {parts}"
    taken = {item.name for item in session.get_inputs()}
    outputs: list[Any] = session.run(None, {name: value for name, value in inputs.items() if name in taken})
    return outputs


@functools.cache
def report() -> DeviceReport:
    """What discovery, which takes seconds, says of the device of this process."""
    return find(wanted_device(None)).report


@functools.cache
def device() -> LocalDevice:
    """The device of this process, which the plugin opens, too."""
    backend = open_backend(report())
    gputune.onnxruntime.register()
    return LocalDevice(backend)

"""Run sessions of onnxruntime with the plugin in a child process: two OpenCL libraries cannot share a process."""

import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gputune.runtime import native
from tests.native.compiling import INCLUDE, OPTIMISED, SOURCES, compiled, sanitizers
from tests.onnxruntimes import FOLDER as OLDEST

Array = npt.NDArray[Any]
CHILD = Path(__file__).with_name("child.py")
FOLDER = native.FOLDER / "onnxruntime"
CONTROLS = "GPUTUNE_TEST_CONTROLS"
Step = tuple[str, dict[str, Any]]


def plugin() -> Path:
    """The plugin of these sources, which finds what steers a device below CONTROLS. Raises AssertionError with what the
    compiler says."""
    exports = f"-Wl,--version-script={FOLDER / 'exports.map'}"
    root = f'-DPOWER_ROOT=(getenv("{CONTROLS}") ? getenv("{CONTROLS}") : "/")'
    flags = (*OPTIMISED, "-shared", f"-I{INCLUDE}", root, exports, *sanitizers())
    return compiled("libgputune_onnxruntime.so", [*SOURCES, *sorted(FOLDER.glob("*.c"))], flags)


def skip_unloadable(version: str) -> None:
    """Skip a test in a version that the sanitizer does not load."""
    if version == "oldest" and sanitizers():
        pytest.skip("onnxruntime 1.23 does not find its own libraries by the sanitizer's dlopen")


def opened(
    model: Path,
    session: str = "one",
    options: Mapping[str, str] | None = None,
    entries: Mapping[str, str] | None = None,
    memory: bool = False,
    severity: int = 2,
) -> Step:
    """Opens a session of a model; memory: of its bytes. options: the provider's; entries: the session's."""
    fields = {"options": dict(options or {}), "entries": dict(entries or {}), "memory": memory, "severity": severity}
    return "open", {"session": session, "model": model, **fields}


def run(inputs: Mapping[str, Array], session: str = "one", entries: Mapping[str, str] | None = None) -> Step:
    return "run", {"session": session, "inputs": dict(inputs), "entries": dict(entries or {})}


def closed(session: str = "one") -> Step:
    return "close", {"session": session}


@dataclass(frozen=True)
class Ran:
    """The results of the steps, and what onnxruntime and the plugin logged."""

    results: list[Any]
    log: str


class Onnxruntime:
    """A version of onnxruntime, as this Python finds it with these variables of the environment."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._variables = variables

    def with_variables(self, **variables: str) -> "Onnxruntime":
        return Onnxruntime(self._folder, {**self._variables, **variables})

    @property
    def environment(self) -> Mapping[str, str]:
        """For a process that has this version."""
        return {**os.environ, **self._variables}

    @property
    def is_oldest(self) -> bool:
        return str(OLDEST) in self._variables.get("PYTHONPATH", "")

    def library(self) -> Path:
        """Return that for applications in C."""
        spec = importlib.util.find_spec("onnxruntime")
        assert spec is not None and spec.origin is not None
        package = OLDEST / "onnxruntime" if self.is_oldest else Path(spec.origin).parent
        (found,) = (package / "capi").glob("libonnxruntime.so.1.*")
        return found

    def do(self, *steps: Step) -> Ran:
        """Does the steps one after the other. Raises AssertionError unless the process ends well."""
        plan, results = self._folder / "plan.pickle", self._folder / "results.pickle"
        plan.write_bytes(pickle.dumps(steps))
        results.unlink(missing_ok=True)
        command = [sys.executable, str(CHILD), str(plugin()), str(plan), str(results)]
        ran = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return Ran(pickle.loads(results.read_bytes()), ran.stderr)

    def outputs(self, model: Path, inputs: Mapping[str, Array], **how: Any) -> dict[str, Array]:
        """The outputs of a session. Raises AssertionError with what onnxruntime says."""
        nothing, outputs = self.do(opened(model, **how), run(inputs)).results
        assert nothing is None, nothing
        assert isinstance(outputs, dict), outputs
        return outputs

    def refusals(self, *openings: Step) -> list[str]:
        """Return what onnxruntime says of sessions that cannot be opened."""
        said = self.do(*openings).results
        assert all(isinstance(each, str) for each in said), "one was opened"
        return said

    def refusal(self, model: Path, **how: Any) -> str:
        (said,) = self.refusals(opened(model, **how))
        return said


def filled(value: float, elements: Sequence[int] = (64,)) -> Array:
    return np.full(elements, value, np.float32)

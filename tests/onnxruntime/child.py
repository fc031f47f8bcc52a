"""Do the steps of a plan in a process of its own, which has the plugin and one version of onnxruntime.

`python child.py LIBRARY PLAN RESULTS`: the plan and the results are pickled. tests/onnxruntime/sessions.py starts it.
"""

import ctypes
import gc
import os
import pickle
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnxruntime

EP = "GputuneExecutionProvider"
LAUNCH_NS = 300_000_000
"""What a launch takes that is to be seen."""
PATIENCE_SECONDS = 5.0
"""How long files may take to contain what they will."""


def devices() -> list[Any]:
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == EP]


class Steps:
    """What has been opened so far. A step that fails gives its error's text."""

    def __init__(self) -> None:
        self._sessions: dict[str, Any] = {}

    def do(self, name: str, **arguments: Any) -> Any:
        try:
            return getattr(self, name)(**arguments)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def devices(self) -> list[tuple[str, dict[str, str]]]:
        """The kind of hardware and the metadata of each device of ours."""
        return [(device.device.type.name, dict(device.ep_metadata)) for device in devices()]

    def open(
        self, session: str, model: Path, options: dict[str, str], entries: dict[str, str], memory: bool, severity: int
    ) -> None:
        wanted = onnxruntime.SessionOptions()
        wanted.log_severity_level = severity
        for name, value in entries.items():
            wanted.add_session_config_entry(name, value)
        wanted.add_provider_for_devices(devices(), options)
        given = model.read_bytes() if memory else str(model)
        self._sessions[session] = onnxruntime.InferenceSession(given, wanted)

    def run(self, session: str, inputs: dict[str, Any], entries: dict[str, str]) -> dict[str, Any]:
        opened, options = self._sessions[session], onnxruntime.RunOptions()
        for name, value in entries.items():
            options.add_run_config_entry(name, value)
        outputs = [output.name for output in opened.get_outputs()]
        return dict(zip(outputs, opened.run(None, inputs, options), strict=True))

    def run_in_threads(self, runs: list[dict[str, Any]], times: int) -> list[list[Any]]:
        """The different outputs of each run, which a thread of its own repeats."""

        def work(arguments: dict[str, Any]) -> list[Any]:
            found: list[Any] = []
            for _ in range(times):
                result = self.do("run", **arguments)
                if not isinstance(result, str):
                    result = {name: array.tobytes() for name, array in result.items()}
                if result not in found:
                    found.append(result)
            return found

        with ThreadPoolExecutor(len(runs)) as threads:
            return list(threads.map(work, runs))

    def run_overlapping(self, runs: list[dict[str, Any]], wanted: list[dict[Path, bytes]]) -> tuple[list[bool], Any]:
        """Start each run once the one before has brought files to what it wanted. Return whether each did so before it
        ended, and the results."""
        delay = ctypes.CDLL(os.environ["GPUTUNE_OPENCL_LIBRARY"]).fake_delay
        delay.argtypes = [ctypes.c_long]
        delay(LAUNCH_NS)
        with ThreadPoolExecutor(len(runs)) as threads:
            begun, seen = [], []
            for arguments, contents in zip(runs, wanted, strict=True):
                begun.append(threads.submit(self.do, "run", **arguments))
                seen.append(self.contain(contents, begun[-1].done))
            delay(0)
            return seen, [each.result() for each in begun]

    def contain(self, wanted: dict[Path, bytes], ends: Callable[[], bool] = lambda: False) -> bool:
        """Return whether files come to contain this, before something ends."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while {path: path.read_bytes() for path in wanted} != wanted:
            if ends() or time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def open_in_threads(self, sessions: list[dict[str, Any]]) -> list[Any]:
        with ThreadPoolExecutor(len(sessions)) as threads:
            return list(threads.map(lambda arguments: self.do("open", **arguments), sessions))

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def dynamic(self, session: str, options: dict[str, str]) -> None:
        self._sessions[session].set_ep_dynamic_options(options)

    def close(self, session: str) -> None:
        del self._sessions[session]
        gc.collect()

    def descriptors(self) -> int:
        """Count the open files of this process."""
        return len(list(Path("/proc/self/fd").iterdir()))

    def fake(self, function: str) -> int:
        """What a function of the fake OpenCL library counts."""
        return int(getattr(ctypes.CDLL(os.environ["GPUTUNE_OPENCL_LIBRARY"]), function)())


def main(library: str, plan: str, results: str) -> None:
    onnxruntime.register_execution_provider_library("gputune", library)
    steps = Steps()
    done = [steps.do(name, **arguments) for name, arguments in pickle.loads(Path(plan).read_bytes())]
    del steps
    gc.collect()
    onnxruntime.unregister_execution_provider_library("gputune")
    Path(results).write_bytes(pickle.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])

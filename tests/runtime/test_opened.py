"""Test that open resources belong to a process, and that forks get an error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputune.core.errors import ForkedProcess
from gputune.core.opened import Opened
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import Context

SCRIPT = """
import os, sys, warnings, numpy as np, gputune.runtime
from gputune.core.errors import DeviceError
warnings.simplefilter("ignore")
path, device, shape = sys.argv[1], sys.argv[2] or None, tuple(map(int, sys.argv[3].split(",")))
inputs = {"x": np.zeros(shape, np.float32)}
executor = gputune.runtime.load(path, device)
executor.run(inputs)
child = os.fork()
if child == 0:
    for use in (
        lambda: executor.run(inputs),
        executor.run_in_place,
        lambda: gputune.runtime.load(path, device).run(inputs),
    ):
        try:
            use()
            print("worked")
        except DeviceError as error:
            print(error)
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
executor.run(inputs)
print("goes on")
"""


def in_a_fork(path: Path, device: str, shape: str) -> list[str]:
    """What each use of a loaded context led to in a fork, and at last in the process that has loaded it."""
    words = [sys.executable, "-c", SCRIPT, str(path), device, shape]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


SESSION = """
import gc, os, sys
from pathlib import Path
from types import SimpleNamespace
from gputune.runtime.loading.in_parts import ModelInParts

class Session:
    def get_inputs(self): return []
    get_outputs = get_provider_graph_assignment_info = get_inputs
    def get_modelmeta(self): return SimpleNamespace(graph_name="")
    def __del__(self): os.write(1, b"ended")

model = ModelInParts(Path("m.onnx"), Session(), None, [], None, [])
child = os.fork()
if child == 0:
    if sys.argv[1] == "close":
        model.close()
    if sys.argv[1] == "leave":
        with model:
            pass
    del model
    gc.collect()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
os.write(1, b"fork has gone, ")
model.close()
"""


@pytest.mark.parametrize("way", ["close", "leave", "drop"])
def test_a_fork_does_not_end_the_session_of_a_model_in_parts(way: str) -> None:
    """Whose threads it does not have, so that it would wait for them forever."""
    done = subprocess.run([sys.executable, "-c", SESSION, way], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "fork has gone, ended"), done.stderr


def test_what_was_opened_can_be_used_by_its_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened("a device")
    opened.check()
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    assert not opened.here
    with pytest.raises(ForkedProcess, match=rf"^a device was opened by process {here} and cannot be used in its fork "):
        opened.check()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_context_is_its_processs_own_even_without_a_device(context: Context, tmp_path: Path) -> None:
    write_context(tmp_path / "a.bin", context)
    run, in_place, load, after = in_a_fork(tmp_path / "a.bin", "null", "2,4")
    assert "was opened by process" in run == in_place
    assert "multiprocessing's 'spawn'" in run
    assert (load, after) == ("worked", "goes on")  # no driver is open

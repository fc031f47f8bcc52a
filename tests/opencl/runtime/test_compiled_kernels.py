"""Test that the same machine code has the same name whatever its options, and other code has another name."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gputune.runtime.backends.compiled_kernels import digest_of
from tests.devices import device

LOOK = """
import json, sys
from pathlib import Path
import numpy as np
from gputune.runtime.backends import ProgramCache, open_backend
from gputune.runtime.devices.discovery import DeviceReport
from gputune.core.launches import Launch
SOURCE = "__kernel void f(__global const float *x, __global float *y)" \\
    " { int i = get_global_id(0); y[i] = CALL(x[i]) * FACTOR; } // " + sys.argv[3]
backend = open_backend(DeviceReport.from_dict(json.loads(sys.argv[1])), compiled=Path(sys.argv[2]))
programs = ProgramCache(backend)
options = ["-DFACTOR=2 -DCALL=exp", "-DFACTOR=(1+1) -DCALL=exp -DUNUSED"]
options += ["-DFACTOR=3 -DCALL=exp", "-DFACTOR=2 -DCALL=log"]
launches = [Launch(SOURCE, "f", each, (64,), (8,), ("x", "y")) for each in options]
launches.append(Launch(SOURCE, "f", options[0], (64,), (16,), ("x", "y")))
x, y = (backend.upload(np.ones(64, np.float32)) for _ in "xy")
names = []


def names_of(launch, shared):
    program, _ = programs.program_for(launch, shared=shared)
    bound = backend.bind(program, "f", launch.global_size, launch.local_size, [x, y])
    before = backend.code_of(bound)
    backend.enqueue(bound)
    backend.finish()
    return before, backend.code_of(bound)


if backend.finds_compiled:
    assert programs.build_together(launches)
    names = [*(names_of(launch, True) for launch in launches), names_of(launches[0], False)]
print(json.dumps(names))
"""


@pytest.mark.parametrize("remark", ["a", "b", "c"])
def test_equal_code_has_equal_names(tmp_path: Path, remark: str) -> None:
    """remark: of the source, from which the names of kernels follow; linkers order symbols by hashes of names."""
    command = [sys.executable, "-c", LOOK, json.dumps(device().to_dict()), str(tmp_path), remark]
    looked = subprocess.run(command, capture_output=True, text=True)
    assert looked.returncode == 0, looked.stderr
    names = json.loads(looked.stdout.splitlines()[-1])
    if not names:
        pytest.skip("this driver does not show the code of its kernels")
    assert all(before is None for before, _ in names)  # nothing is known before the first launch
    first, same, *others, alone = [after for _, after in names]
    assert first is not None and first == same
    assert None not in others and first not in others and len(set(others)) == len(others)
    assert alone is None  # other kernels may have its name


@pytest.mark.parametrize(
    "content",
    [b"", b"no library", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 100, b"\x7fELF\x02\x01" + bytes(100)],
)
def test_what_is_no_library_has_no_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "kernel.so"
    file.write_bytes(content)
    assert digest_of(file, "kernel") is None
    assert digest_of(tmp_path / "absent", "kernel") is None

"""Test that reading a binary compiles nothing for a size that it has, and that the binary runs with any size."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.devices import device

COMPILE = """
import json, sys
from pathlib import Path
from gputune.runtime.backends import ProgramCache, open_backend
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.measuring.launching import compile_variant
from gputune.core.launches import Launch, Variant
SOURCE = "__kernel void sized(__global int *y) { y[get_global_id(0)] = 100 * get_local_size(0) + get_local_id(0); }"
folder = Path(sys.argv[2]) / "compiled"
folder.mkdir()
backend = open_backend(DeviceReport.from_dict(json.loads(sys.argv[1])), compiled=folder)
programs = ProgramCache(backend)
found = []
for size in (4, 8):
    launch = Launch(SOURCE, "sized", "", (64,), (size,), ("output",))
    compiled = compile_variant(programs, Variant({}, (), launch, {}), {"output": 256})
    (Path(sys.argv[2]) / f"{size}.bin").write_bytes(compiled.binary)
    found.append(sorted((path.parent.name, path.stat().st_ino) for path in folder.glob("*/*/sized/*/sized.so")))
print(json.dumps(found))
"""

RUN = """
import json, sys
from pathlib import Path
import numpy as np
from gputune.runtime.backends import open_backend
from gputune.runtime.devices.discovery import DeviceReport
backend = open_backend(DeviceReport.from_dict(json.loads(sys.argv[1])))
got = []
for path in sys.argv[2:]:
    program, output = backend.load_binary(Path(path).read_bytes()), backend.allocate(256)
    for size in (4, 8, 16):
        backend.enqueue(backend.bind(program, "sized", (64,), (size,), [output]))
        backend.finish()
        got.append(backend.read(output).view(np.int32).tolist())
print(json.dumps(got))
"""


def run(script: str, *arguments: Path, **environment: str) -> Any:
    ran = subprocess.run(
        [sys.executable, "-c", script, json.dumps(device().to_dict()), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with the binaries of a kernel for two sizes, and the libraries that were there after each."""
    folder = tmp_path_factory.mktemp("sized")
    return folder, run(COMPILE, folder)


def test_the_code_for_one_size_stands_for_that_for_any(compiled: tuple[Path, Any]) -> None:
    one, both = compiled[1]
    if not one:
        pytest.skip("this driver does not show the code of its kernels")
    assert [name[:5] for name, _ in one] == ["0-0-0", "4-1-1"]
    assert one[0][1] == one[1][1]
    assert [name[:5] for name, _ in both if not name.startswith("0")] == ["4-1-1", "8-1-1"]
    assert "0-0-0" not in dict(both), "it is only right for one of the sizes"


@pytest.mark.parametrize("specialised", ["1", "0"])
def test_binaries_run_with_the_size_they_were_made_for_and_with_others(
    compiled: tuple[Path, Any], specialised: str
) -> None:
    folder, _ = compiled
    sizes = (4, 8, 16)
    want = [[100 * size + place % size for place in range(64)] for size in sizes]
    got = run(RUN, folder / "8.bin", POCL_WORK_GROUP_SPECIALIZATION=specialised)
    assert got == want
    right = 3 if specialised == "1" else 1  # else the driver is told to run code for any size, which is not in there
    assert run(RUN, folder / "4.bin", POCL_WORK_GROUP_SPECIALIZATION=specialised)[:right] == want[:right]

"""Test kernels that take whole buffers and offsets: which launches become such, and the addresses that they hand on."""

import ctypes
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gputune.core.launches import OFFSET_BYTES, Launch, Needs, Stage
from gputune.kernels.family import ALONE
from gputune.kernels.offset_arguments import with_offsets

SOURCE = "__kernel void add(__global float *x, int n, __global float *y LOCAL_POOL) { }"
PLAIN = Launch(SOURCE, "add", "", (4,), (1,), ("x", 7, "y"), needs=ALONE, writes=("y",))
SHARING = Needs(local_bytes=64, cooperates=True)
ADDED = Stage("add", (4,), (1,), ("x", 7, "y"), needs=ALONE, writes=("y",))


@pytest.mark.parametrize(
    ("launch", "entry", "pools"),
    [
        (PLAIN, "add_offsets0", 0),
        (replace(PLAIN, needs=SHARING), "add_offsets0", 1),
        (replace(PLAIN, source=SOURCE.replace(" LOCAL_POOL", "")), "add_offsets0", 0),
        (replace(PLAIN, source=SOURCE.replace(" LOCAL_POOL", ""), needs=SHARING), "add", 0),
        (replace(PLAIN, needs=None), "add", 0),
        (replace(PLAIN, stages=(ADDED,)), "add_offsets1", 0),
        (replace(PLAIN, stages=(replace(ADDED, needs=SHARING),)), "add_offsets1", 1),
        (replace(PLAIN, needs=SHARING, stages=(replace(ADDED, needs=SHARING),)), "add_offsets1", 2),
        (replace(PLAIN, stages=(replace(ADDED, needs=None),)), "add", 0),
    ],
    ids=[
        "alone",
        "pool",
        "alone, without a pool",
        "local memory of its own",
        "unknown needs",
        "stage",
        "stage with a pool",
        "pools",
        "stage of unknown needs",
    ],
)
def test_launches_take_offsets_if_their_local_memory_is_known(launch: Launch, entry: str, pools: int) -> None:
    made = with_offsets(launch)
    assert made.entry == entry
    if entry == "add":
        assert made == launch
        return
    assert made.source.count("uchar pool[64]") == pools
    assert ("*pool" in made.source) == (pools > 0)
    assert [kernel.entry for kernel in made.sequence] == [f"add_offsets{n}" for n in range(len(launch.sequence))]
    assert all(kernel.arguments == ("x", 0, 7, "y", 0) for kernel in made.sequence)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("offsets", [(0, 0), (1, 2), (1 << 27, (1 << 27) + 1), ((1 << 31) - 1, 5)])
def test_offsets_reach_all_of_a_large_buffer(offsets: tuple[int, int], tmp_path: Path) -> None:
    """Numbers of 32 bits reach 32 GiB. A C compiler builds the text, with a kernel that keeps what it is given."""
    source = (
        "void *seen[2]; int number;\n"
        "__kernel void add(__global char *x, int n, __global char *y) { seen[0] = x; number = n; seen[1] = y; }"
    )
    text = with_offsets(replace(PLAIN, source=source)).source.replace("#undef __kernel\n", "#define __kernel\n")
    (tmp_path / "kernel.c").write_text(f"#include <stddef.h>\n#define __global\n{text}", encoding="utf-8")
    library = tmp_path / "kernel.so"
    command = ["cc", "-w", "-fwrapv", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "kernel.c")]
    subprocess.run(command, check=True)
    built = ctypes.CDLL(str(library))
    bases = 1 << 40, 1 << 41
    (x, y), (first, second) = map(ctypes.c_void_p, bases), map(ctypes.c_int, offsets)
    built.add_offsets0(x, first, ctypes.c_int(7), y, second)
    seen = (ctypes.c_void_p * 2).in_dll(built, "seen")
    assert list(seen) == [base + OFFSET_BYTES * offset for base, offset in zip(bases, offsets, strict=True)]
    assert ctypes.c_int.in_dll(built, "number").value == 7

"""Run processes that load a context and take turns with inferences: by gputune.load, in C, and by hand."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import tool
from gputune.runtime import native
from gputune.runtime.context.format import open_context, read_header
from gputune.runtime.context.records import BufferRef
from tests.native.compiling import compiled, opencl_library

HERE = Path(__file__).parent
SOURCES = sorted((native.FOLDER / "src").glob("*/*.c"))
FLAGS = ("-O2", f"-I{native.FOLDER / 'include'}", f"-I{native.FOLDER / 'src'}", f"-I{HERE}")
KINDS = {"input": 0, "output": 1, "arena": 2, "weights": 3}
"""Of buffers, as by_hand.c numbers them."""
SCALAR = 4096
"""In the place of a buffer: the number behind it is the argument."""


@dataclass(frozen=True)
class Memory:
    """Of a process, in kB: all that is in memory, and what of that is no file's."""

    resident: int
    anonymous: int


class Peer:
    """A running process. load_ns, device_open_ns: as it says."""

    def __init__(self, command: Sequence[str | Path], outputs: Sequence[Path]) -> None:
        """Start it. Raises RuntimeError where it ends before it is ready."""
        self._outputs = outputs
        self._process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tool.ROOT,
            env=environment(),
        )
        self.load_ns, self.device_open_ns = self._numbers()

    def infer(self, count: int) -> list[int]:
        """What so many inferences took, in ns."""
        return self._asked(count)

    def memory(self) -> Memory:
        return Memory(*self._asked(0))

    def close(self) -> str:
        """Ends it; the SHA-256 of what the last inference gave."""
        self._process.communicate(timeout=60)
        contents = [path.read_bytes() for path in self._outputs if path.exists()]
        return hashlib.sha256(b"".join(contents)).hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _asked(self, count: int) -> list[int]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        return self._numbers()

    def _numbers(self) -> list[int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}")
        return list(map(int, line.split()))


@dataclass(frozen=True)
class Contenders:
    """How to start the peers of a context. inputs: a file for each; beside: a Python with another gputune; persistent:
    whether its persistent kernels run, which the program by hand does not have."""

    context: Path
    folder: Path
    inputs: Sequence[Path]
    outputs: int
    beside: Path | None = None
    persistent: bool = False

    def persistently(self) -> Contenders:
        """Return the same with persistent kernels."""
        return replace(self, persistent=True)

    def loaded(self) -> Peer:
        """Start a process that runs the context by gputune.load."""
        return self._by_python("loaded", sys.executable)

    def other(self) -> Peer:
        """Start what that is compared with: the gputune of another Python."""
        assert self.beside is not None
        return self._by_python("other", self.beside)

    def native(self) -> Peer:
        program = compiled("by_runtime", [HERE / "by_runtime.c", *SOURCES], FLAGS, ("-std=c99",))
        return self._peer("native", [program, self.context, library(), self._form])

    def by_hand(self) -> Peer:
        program = compiled("by_hand", [HERE / "by_hand.c"], FLAGS, ("-std=c99",))
        plan, content = self.folder / "plan.txt", self.folder / "plan.bytes"
        write_plan(self.context, plan, content)
        return self._peer("by_hand", [program, plan, content, library()])

    @property
    def _form(self) -> str:
        return "persistent" if self.persistent else "launches"

    def _by_python(self, name: str, python: str | Path) -> Peer:
        return self._peer(name, [python, HERE / "by_python.py", self.context, self._form])

    def _peer(self, name: str, command: Sequence[str | Path]) -> Peer:
        outputs = [self.folder / f"{name}.{place}.raw" for place in range(self.outputs)]
        return Peer([*command, *self.inputs, *outputs], outputs)


def can_be_by_hand(context: Path) -> bool:
    """Return whether by_hand.c has all kinds of memory that the launches of the first graph use."""
    return all(ref.kind in KINDS for launch in read_header(context).graphs[0].launches for ref in launch.refs)


def write_plan(context: Path, plan: Path, content: Path) -> None:
    """What by_hand.c makes of the first graph of a context, one by one: its buffers, programs and launches as numbers,
    and their bytes."""
    with open_context(context) as file, content.open("wb") as bytes_:
        graph = file.header.graphs[0]
        refs = [ref for launch in graph.launches for ref in launch.refs]
        used = sorted({ref.index for ref in refs if ref.kind == "weights"})
        sizes = {("input", place): tensor.nbytes for place, tensor in enumerate(graph.inputs)}
        sizes |= {("output", place): tensor.nbytes for place, tensor in enumerate(graph.outputs)}
        sizes |= {("arena", place): nbytes for place, nbytes in enumerate(graph.arena_bytes)}
        sizes |= {("weights", place): file.weights(place).nbytes for place in used}
        numbers = {key: number for number, key in enumerate(sizes)}
        words: list[object] = [len(sizes)]
        for (kind, place), nbytes in sizes.items():
            words += [KINDS[kind], nbytes]
            if kind == "weights":
                bytes_.write(file.weights(place))
        programs = {program: number for number, program in enumerate(sorted({one.program for one in graph.launches}))}
        words.append(len(programs))
        for program in programs:
            words.append(bytes_.write(file.binary(program)))
        words.append(len(graph.launches))
        for launch in graph.launches:
            words += [launch.entry, programs[launch.program], len(launch.global_size)]
            words += [size for pair in zip(launch.global_size, launch.local_size, strict=True) for size in pair]
            words.append(len(launch.arguments))
            words += [word for argument in launch.arguments for word in _argument(argument, numbers)]
    plan.write_text(" ".join(map(str, words)) + "\n", encoding="utf-8")


def _argument(argument: BufferRef | int, numbers: Mapping[tuple[str, int], int]) -> tuple[int, int, int]:
    if isinstance(argument, int):
        return SCALAR, argument, 0
    return numbers[argument.kind, argument.index], argument.offset, argument.nbytes


def library() -> str:
    return os.environ.get("GPUTUNE_OPENCL_LIBRARY") or opencl_library().get("GPUTUNE_OPENCL_LIBRARY", "libOpenCL.so.1")


def environment() -> dict[str, str]:
    """What Python sets before it loads a driver is set for all, with one folder for what PoCL unpacks."""
    memory = Path("/dev/shm")
    folder = {"POCL_CACHE_DIR": str(memory / "gputune-bench")} if memory.is_dir() else {}
    own = {"POCL_AFFINITY": "1", "POCL_KERNEL_CACHE": "0", "PYOPENCL_NO_CACHE": "1"}
    return {**opencl_library(), **folder, **own, **os.environ}

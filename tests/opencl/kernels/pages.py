"""Run kernels of all families on buffers that end, and then begin, at a page without access.

A kernel that reads or writes outside a buffer ends the process. Kernels therefore run in a process of their own, which
prints the name of a case before it begins: `python -m tests.opencl.kernels.pages REPORT OPTIONS PART PARTS` for every
PARTS-th case from PART on, and with PART "outside" kernels that do read outside. REPORT is the device's, as JSON, and
OPTIONS are for every program.
"""

import ctypes
import json
import mmap
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from gputune.client.tuning.search.task_search import device_limits
from gputune.kernels.catalogue import families, family_of
from gputune.kernels.family import Array, DeviceLimits, Instance, KernelFamily, Launch
from gputune.kernels.space import Configuration, configuration_key
from gputune.runtime.backends import Backend, Buffer, ProgramCache, open_backend
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.measuring.launching import Launcher
from gputune.runtime.measuring.watcher import UNWATCHED, Course
from tests.kernels.difficult import DIFFICULT
from tests.kernels.drawing import drawn
from tests.kernels.one_of_each import ONE_OF_EACH
from tests.kernels.problems import GPU
from tests.kernels.quantised_weights import SHAPES
from tests.opencl.conftest import with_options
from tests.opencl.known import reads_in_place

PAGE = mmap.PAGESIZE
PROT_NONE = 0
DRAWN = 60
"""Configurations of a problem that are drawn, to find each kernel that it can run with."""
TOGETHER = 12
"""Cases whose kernels are built together."""

MORE = {
    "Conv": ("batch-asymmetric-pads", "dilated", "groups-of-3-and-13", "planes-strided", "odd-channels-and-pads"),
    "DepthwiseConv": ("batch-prime-channels", "fours-batch", "asymmetric"),
    "InvertedResidual": ("batch-residual", "strided"),
    "MatMul": (
        *("row-long", "primes", "row-of-parts", "few-rows"),
        *(f"computed {name}" for name in ("primes", "left-turned", "batch-innermost", "one-row", "heads")),
    ),
    "Move": ("permuted", "backwards"),
    "Normalise": ("channels",),
    "Recurrent": ("rnn", "rnn-reverse", "rnn-both-differ"),
    "Reduce": ("across", "two-rows-across"),
    "Scan": ("line",),
    "Scatter": ("maps", "points"),
    "SeparableConv": ("strided", "batch-prime-channels-residual"),
    "Softmax": ("17x37x1",),
    "Transpose": ("2x1x5x7 NHWC", "3x37x5x7 NHWC"),
}
"""Problems beside one of each family: those of its other kernels, and ends that no vector divides."""

QUANTISED = ("uneven blocks", "uneven blocks of 4 bits", "whole numbers of 4 bits")
"""The same of products whose weights are whole numbers."""

PLACES = frozenset(("indices", "rows", "columns", "grid"))
"""Inputs that say where a kernel reads or writes."""


@dataclass(frozen=True)
class Case:
    """A configuration of a problem."""

    op: str
    problem: Any
    configuration: Configuration

    @property
    def family(self) -> KernelFamily:
        return family_of(self.op)

    @property
    def instance(self) -> Instance:
        """What runs."""
        return self.family.render(self.problem, self.configuration)

    def __str__(self) -> str:
        return f"{self.problem} with {dict(self.configuration)}"


def entries(instance: Instance) -> tuple[str, ...]:
    """The kernels of an instance, in their order."""
    launches = (*instance.prepare, instance.main)
    return tuple(kernel.entry for launch in launches for kernel in launch.sequence)


def cases(limits: DeviceLimits) -> Iterator[Case]:
    """For each problem the default, and for each kernel and algorithm that it can run with a starter or configuration
    that is drawn, of those with the widest vectors; and a drawn one. Kernels for GPUs are among them."""
    assert set(ONE_OF_EACH) == set(families())
    more = ((op, DIFFICULT[op][name]) for op, names in MORE.items() for name in names)
    quantised = (("MatMul", SHAPES[name]) for name in QUANTISED)
    for op, problem in (*ONE_OF_EACH.items(), *more, *quantised):
        family = family_of(op)
        legal = drawn(family, problem, limits, DRAWN)
        tried = [family.default(problem, limits), *legal[:1]]
        by_width = sorted([*family.starters(problem, limits), *legal], key=lambda one: one.get("VW", 1))
        if family.estimate(problem, GPU) is not None:  # it has kernels that are not for CPUs
            by_width = [*family.starters(problem, GPU), *drawn(family, problem, GPU, DRAWN), *by_width]
        tried += {(entries(family.render(problem, one)), one.get("ALG")): one for one in by_width}.values()
        different = {configuration_key(each): each for each in tried}
        yield from (Case(op, problem, each) for each in different.values())


def anywhere(value: Array, numbers: np.random.Generator) -> Array:
    """Values of the same shape and type, of which most point outside of any tensor."""
    if value.dtype.kind == "f":
        return numbers.choice(np.array([np.nan, np.inf, -np.inf, 3e38, -1e10, 1.5, -1, 0], value.dtype), value.shape)
    ends = np.iinfo(value.dtype)
    far = [ends.min, ends.max, -(2**31), 2**31 - 1, -(2**20), 2**20, -2, -1, 0, 1, 2, 3]
    return numbers.choice(np.array(far, value.dtype), value.shape)


def fenced(nbytes: int, begins: bool) -> Array:
    """Bytes right behind a page without access, or right before one."""
    size = (-(-nbytes // PAGE) + 2) * PAGE
    memory = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (address, address + size - PAGE):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), PROT_NONE) == 0
    return np.frombuffer(memory, np.uint8, nbytes, PAGE if begins else size - PAGE - nbytes)


class Pages:
    """Runs cases on fenced buffers."""

    def __init__(self, report: DeviceReport, options: str) -> None:
        self.options = options
        self.backend: Backend = open_backend(report)
        self.programs = ProgramCache(self.backend)
        self.limits = device_limits(self.backend.identity)
        self._launcher = Launcher(self.programs, Course(UNWATCHED))

    def run(self, chosen: Iterable[Case]) -> None:
        """Says the name of each case and runs it; what says where to read or write points everywhere at last."""
        for case in chosen:
            instance, numbers = with_options(case.instance, self.options), np.random.default_rng(1)
            inputs = case.family.sample_inputs(case.problem, numbers)
            sizes = {**instance.packed, **instance.scratch, "output": case.family.output(case.problem).nbytes}
            wild = {name: anywhere(value, numbers) for name, value in inputs.items() if name in PLACES}
            for given in (inputs, *([inputs | wild] if wild else [])):
                for begins in (False, True):
                    where = (
                        f"{', wild' if given is not inputs else ''}, buffers {'begin' if begins else 'end'} at a page"
                    )
                    print(f"{case}{where}", flush=True)
                    self.launch(instance, given, sizes, begins)

    def launch(self, instance: Instance, inputs: dict[str, Array], sizes: dict[str, int], begins: bool) -> None:
        """Runs an instance once."""
        memory = {name: fenced(value.nbytes, begins) for name, value in inputs.items()}
        for name, value in inputs.items():
            memory[name][:] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        memory |= {name: fenced(nbytes, begins) for name, nbytes in sizes.items()}
        buffers = {name: self.lent(array) for name, array in memory.items()}
        for launch in instance.prepare:
            self._launcher.run(self._launcher.build(launch, buffers, shared=True).bound)
        self._launcher.run(self._launcher.build(instance.main, buffers, shared=True).bound)

    def lent(self, array: Array) -> Buffer:
        """The device's buffer on an array. AssertionError where it would be a copy."""
        assert reads_in_place(self.backend.identity), "the device does not read memory of the host where it lies"
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        context = cl.Context.from_int_ptr(self.backend.context_pointer)
        return Buffer(array.nbytes, cl.Buffer(context, flags, hostbuf=array))

    def build_together(self, chosen: Iterable[Case]) -> None:
        """Builds the cases' kernels in one program, where the driver takes its time for each."""
        if self.programs.merges:
            instances = [with_options(case.instance, self.options) for case in chosen]
            self.programs.build_together(
                list(dict.fromkeys(launch for each in instances for launch in (*each.prepare, each.main)))
            )


OUTSIDE = """
__kernel void outside(__global const float *restrict input, __global float *restrict output, int first)
{
    vstore4(vload4(0, input + first), 0, output);
}
"""


def read_outside(pages: Pages, first: int) -> None:
    """Reads 4 of 6 floats from `first` on."""
    launch = Launch(
        source=OUTSIDE, entry="outside", options="", global_size=(1,), local_size=(1,),
        arguments=("input", "output", first),
    )  # fmt: skip
    for begins in (False, True):
        pages.launch(Instance(launch), {"input": np.zeros(6, np.float32)}, {"output": 16}, begins)
        print("read", flush=True)


if __name__ == "__main__":
    pages = Pages(DeviceReport.from_dict(json.loads(sys.argv[1])), sys.argv[2])
    if sys.argv[3] == "outside":
        read_outside(pages, int(sys.argv[4]))
    else:
        chosen = list(cases(pages.limits))[int(sys.argv[3]) :: int(sys.argv[4])]
        for some in (chosen[first : first + TOGETHER] for first in range(0, len(chosen), TOGETHER)):
            pages.build_together(some)
            pages.run(some)
        print("done")

"""List what each OpenCL driver does differently, in one table.

Records say what a device is, never what follows from it; this table is asked for that whenever it is needed. A driver
that is not in the table is taken to do what most drivers do.

Facts that decided the design, measured on a 2-core x86 machine with AVX-512 and Debian's PoCL 3.1:

* PoCL compiles at the first launch with each local size, for 300 to 380 ms that no event shows. It does so after the
  enqueue has returned and before the launch's event runs. So the status of the event separates compiling from running,
  and each has a limit of its own: a slow compiler is no kernel that hangs.
* A binary that is read before that launch makes every fresh process pay again. A binary that is read after it takes 7
  to 13 ms at the first launch. Drivers keep their first answer. So binaries are read once, after a launch with real
  sizes.
* Reading a binary makes PoCL compile again, for 200 to 450 ms, for local sizes that are never launched. So only the
  best variant of a batch is read, with the code of the launched size in that place
  (runtime/backends/compiled_kernels.py). That saves nearly half of the cost of a program.
* A program costs PoCL 125 to 135 ms whatever it holds, and each kernel in it a fifth of that. So variants share
  programs.
* A compiler's cache hides the cost of compiling. So the user's caches are off where device work is done. A daemon keeps
  its own folder, and a program that a second process has compiled there counts with the time that it took.
* Without POCL_AFFINITY=1, PoCL's times differ by a factor of two, because both threads can land on one core.
* An installed driver may not work. A device counts only after a kernel was built and run and gave the right result.
  That happens in a child process with that driver alone, because two drivers in one process disturb each other.
* A buffer that is freed while it is a kernel's argument ends a PoCL process. Bound launches hold their buffers.
* PoCL's sin, cos and tan of a vector are wrong in every element if one is 2^23 or more. Kernels have their own
  functions and take 0.6 to 0.8 of the time (kernels/approximations.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gputune.core.identity import DeviceIdentity
from gputune.core.launches import ArgumentForm, Standard


@dataclass(frozen=True)
class CompiledFolder:
    """Say how a driver is told to keep what it compiles: one variable names the folder; where the other one is 1, it
    finds again there what any process has compiled."""

    folder: str
    finds: str


class Fence(NamedTuple):
    """Name a statement of OpenCL C by which a work-item orders what it has written before an atomic function, and what
    it reads after one, for all work-groups of a launch; and the version that has it."""

    statement: str
    standard: Standard = "CL1.2"


DEVICE_FENCE = Fence("atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, memory_scope_device)", "CL3.0")
"""The function of the language. On an H100 it costs as much as the instruction fence.acq_rel.gpu, which does the same;
with mem_fence, groups that had waited for each other read old values in nearly every case (docs/gpu_days)."""


@dataclass(frozen=True)
class Quirks:
    """Hold one driver's row; `platform` is a regular expression that is found in the names of its platforms."""

    driver: str
    platform: str

    charges_per_program: bool = False
    """Whether one program of several launches is built faster than one for each."""

    compiles_at_first_launch: frozenset[str] = frozenset({"cpu"})
    """The types of its devices for which it may make code only when a first launch with a local size is in the queue;
    such a launch says when it runs. For others code is made when a program is built or a launch is enqueued, and some
    drivers never say that a launch is running."""

    thread_per_group: str = ""
    """A regular expression for the names of CPU devices that have a thread for each compute unit, of which each takes
    one work-group of a launch before any takes a second."""

    fence: Fence | None = None
    """None where OpenCL C 1.2 has none: it promises nothing of atomic functions, and its mem_fence orders nothing
    between work-groups."""

    compiled: CompiledFolder | None = None
    """None where it cannot be told where to keep what it compiles, or not so that other processes find it."""

    defaults: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set before it is loaded, unless the user has set them."""

    measuring: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set as well in processes that measure, unless the user has set them."""

    affinity: str = ""
    """The variable that binds its threads to cores of their own where it is 1, and lets them move where it is 0."""

    verbose: str = ""
    """The build option that has its build log say what each kernel takes, which runtime/devices/resources.py reads."""

    register_cap: str = ""
    """The build option, before a number, by which no work-item of a program has more registers than that."""

    deciding: Mapping[str, str] = field(default_factory=dict)
    """Variables that change its code or how long that takes: names, with * for any characters, and what each does."""

    not_deciding: Mapping[str, str] = field(default_factory=dict)
    """Names that a pattern of `deciding` has and that change neither code nor time."""

    @property
    def unbound(self) -> dict[str, str]:
        """Return variables for a process that only compiles: its threads take whatever cores others leave."""
        return {self.affinity: "0"} if self.affinity else {}


POCL = Quirks(
    "PoCL",
    "Portable Computing Language",
    # It takes as long for a program as for four kernels in one.
    charges_per_program=True,
    # It compiles a kernel for each local size that it is launched with, on any device.
    compiles_at_first_launch=frozenset({"cpu", "gpu", "accelerator"}),
    # CPU devices are called pthread-, since version 4 cpu-; those called cpu-tbb- leave threads to a library.
    thread_per_group="pthread-|cpu-(?!tbb-)",
    # Its compiler makes of each atomic function a C11 atomic with acquire and release. Its mem_fence is empty, and only
    # says so to readers.
    fence=Fence("mem_fence(CLK_GLOBAL_MEM_FENCE)"),
    compiled=CompiledFolder("POCL_CACHE_DIR", "POCL_KERNEL_CACHE"),
    # Timings jump by a factor of two between runs unless its threads keep to their cores, and a cache of compiled
    # kernels would hide what a variant costs to build.
    defaults={"POCL_AFFINITY": "1", "POCL_KERNEL_CACHE": "0"},
    affinity="POCL_AFFINITY",
    deciding={
        "POCL_AFFINITY": "its threads keep to their cores",
        "POCL_ARGS_*": "options of the tools that it compiles with",
        "POCL_BINARY_SPECIALIZE_WG": "code for given sizes",
        "POCL_CUDA_GPU_ARCH": "the processor that code is made for",
        "POCL_EXTRA_BUILD_FLAGS": "options of its compiler",
        "POCL_FORCE_PARALLEL_OUTER_LOOP": "how work-items become loops",
        "POCL_FULL_REPLICATION_THRESHOLD": "how work-items become loops",
        "POCL_KERNELLIB_NAME": "the library of its built-in functions",
        "POCL_LEVEL0_*": "how its Level Zero driver compiles",
        "POCL_LLVM_CPU_NAME": "the processor that code is made for",
        "POCL_PATH_*": "the tools that it compiles with",
        "POCL_PTHREAD_MIN_THREADS": "how many threads share a launch",
        "POCL_TBB_*": "how launches are shared among threads",
        "POCL_TRACING*": "events are written down while kernels run",
        "POCL_VECTORIZER_FORCE_VECTOR_WIDTH": "how it vectorises",
        "POCL_VECTORIZER_PREFER_VECTOR_WIDTH": "how it vectorises",
        "POCL_WILOOPS_MAX_UNROLL_COUNT": "how work-items become loops",
        "POCL_WORK_GROUP_METHOD": "how work-items become loops",
        "POCL_WORK_GROUP_SPECIALIZATION": "code for given sizes",
    },
)

INTEL = Quirks(
    "Intel",
    "Intel",
    deciding={
        "CL_CONFIG_*": "on CPUs: vectors, target, optimisations, threads",
        "DPCPP_CPU_*": "on CPUs: where its threads run",
        "IGC_*": "how it compiles for GPUs",
        "NEOReadDebugKeys": "its GPU driver reads variables that change anything",
    },
    not_deciding={
        "CL_CONFIG_CPU_FORCE_*_MEM_SIZE": "bounds memory",
        "CL_CONFIG_*_DIR": "a folder",
        "CL_CONFIG_*DUMP*": "writes down what was compiled",
        "IGC_DumpTo*": "writes down what was compiled",
        "IGC_ShaderDump*": "writes down what was compiled",
    },
)

NVIDIA = Quirks(
    "NVIDIA",
    "NVIDIA CUDA",
    # Its binaries are PTX, which it compiles when they are loaded. Its compute cache has what any program has compiled,
    # so that loading is fast, and a variant seems to be built in no time.
    measuring={"CUDA_CACHE_DISABLE": "1"},
    verbose="-cl-nv-verbose",
    register_cap="-cl-nv-maxrregcount=",
    deciding={
        "CUDA_DEVICE_MAX_CONNECTIONS": "how many queues run at the same time",
        "CUDA_FORCE_PTX_JIT": "binaries are compiled again",
        "CUDA_LAUNCH_BLOCKING": "each launch waits for its end",
        "CUDA_SCALE_LAUNCH_QUEUES": "how many launches may wait",
    },
)

AMD = Quirks(
    "AMD",
    "AMD",
    deciding={
        "AMD_OCL_BUILD_OPTIONS*": "options of its compiler",
        "GPU_ENABLE_WAVE32_MODE": "width of a wavefront",
        "GPU_ENABLE_WGP_MODE": "which units share a work-group",
        "HSA_CU_MASK": "which compute units run kernels",
        "HSA_OVERRIDE_GFX_VERSION": "the processor that code is made for",
        "HSA_XNACK": "code that can repeat a memory access",
        "ROC_GLOBAL_CU_MASK": "which compute units run kernels",
    },
)

MESA = Quirks(
    "Mesa",
    "rusticl|Clover",
    deciding={
        "AMD_DEBUG": "for AMD: how it compiles and waits",
        "GALLIVM_*": "on CPUs: how it compiles",
        "LP_*": "on CPUs: threads and vectors",
        "INTEL_DEBUG": "for Intel: how it compiles and waits",
        "IR3_SHADER_DEBUG": "for Adreno: how it compiles",
        "RUSTICL_DEBUG": "how it compiles and waits",
        "RUSTICL_MAX_WORK_GROUPS": "how launches are divided",
    },
)

CLVK = Quirks(
    "clvk",
    "clvk",
    deciding={"CLVK_*": "how it compiles and batches launches"},
    not_deciding={"CLVK_LOG*": "what it says", "CLVK_*_DIR": "a folder"},
)

DRIVERS = (POCL, INTEL, NVIDIA, AMD, MESA, CLVK)
OTHER = Quirks("another driver", "")


def quirks_of(identity: DeviceIdentity) -> Quirks:
    """Return what is different about the driver of a device; OTHER where the table does not have it."""
    return next((row for row in DRIVERS if re.search(row.platform, identity.platform)), OTHER)


def usual_form(identity: DeviceIdentity) -> ArgumentForm:
    """Return how launches on a device are given what lies in arenas where that was not measured: drivers of GPUs may
    look at all parts of a buffer for each launch, and CPUs need no more memory than arenas with parts."""
    return "sub_buffers" if identity.device_type == "cpu" else "buffers"


def groups_at_once(identity: DeviceIdentity) -> int:
    """Return how many work-groups of a launch are sure to run at the same time on a device and may wait for each other;
    0 where that is not known."""
    names = quirks_of(identity).thread_per_group
    known = names and identity.device_type == "cpu" and re.match(names, identity.name)
    return identity.compute_units if known and device_fence(identity) is not None else 0


def device_fence(identity: DeviceIdentity) -> Fence | None:
    """Return what orders memory between the work-groups of a launch on a device; None where nothing is known to."""
    return quirks_of(identity).fence or (DEVICE_FENCE if standard_of(identity) == DEVICE_FENCE.standard else None)


def standard_of(identity: DeviceIdentity) -> Standard:
    """Return the latest version of OpenCL C that a device compiles."""
    return "CL3.0" if identity.device_version.startswith("OpenCL 3") else "CL1.2"


def unset_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the defaults of all drivers that a process's variables leave open, for before a driver is loaded."""
    defaults = {name: value for row in DRIVERS for name, value in row.defaults.items()}
    return {name: value for name, value in defaults.items() if name not in environment}

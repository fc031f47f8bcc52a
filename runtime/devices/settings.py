"""What a process adds to the conditions of a measurement: variables that change a driver's code or its time, by name,
and how many processors it may use. A measurement is valid only where these settings are equal.

A variable that is in no table is not a setting. Those that bound memory or the size of work-groups filter what can run,
as every device limit does; those that choose a device or hide some of its cores show in the device's name and compute
units.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

DECIDING: Mapping[str, str] = {
    "POCL_AFFINITY": "PoCL: its threads keep to their cores",
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
    "CL_CONFIG_*": "Intel's CPU driver: vectors, target, optimisations, threads",
    "DPCPP_CPU_*": "Intel's CPU driver: where its threads run",
    "IGC_*": "Intel's compiler for GPUs",
    "NEOReadDebugKeys": "Intel's GPU driver reads variables that change anything",
    "AMD_DEBUG": "Mesa for AMD: how it compiles and waits",
    "AMD_OCL_BUILD_OPTIONS*": "options of AMD's compiler",
    "GPU_ENABLE_WAVE32_MODE": "AMD: width of a wavefront",
    "GPU_ENABLE_WGP_MODE": "AMD: which units share a work-group",
    "HSA_CU_MASK": "AMD: which compute units run kernels",
    "HSA_OVERRIDE_GFX_VERSION": "AMD: the processor that code is made for",
    "HSA_XNACK": "AMD: code that can repeat a memory access",
    "ROC_GLOBAL_CU_MASK": "AMD: which compute units run kernels",
    "GALLIVM_*": "Mesa on CPUs: how it compiles",
    "LP_*": "Mesa on CPUs: threads and vectors",
    "INTEL_DEBUG": "Mesa for Intel: how it compiles and waits",
    "IR3_SHADER_DEBUG": "Mesa for Adreno: how it compiles",
    "RUSTICL_DEBUG": "Mesa: how it compiles and waits",
    "RUSTICL_MAX_WORK_GROUPS": "Mesa: how launches are divided",
    "CLVK_*": "clvk: how it compiles and batches launches",
    "OPENCL_LAYERS": "libraries between a program and its driver",
}
"""Names, with * for any characters, and what each changes."""

LEFT_OUT: Mapping[str, str] = {
    "CL_CONFIG_CPU_FORCE_*_MEM_SIZE": "bounds memory",
    "CL_CONFIG_*_DIR": "a folder",
    "CL_CONFIG_*DUMP*": "writes down what was compiled",
    "CLVK_LOG*": "what it says",
    "CLVK_*_DIR": "a folder",
    "IGC_DumpTo*": "writes down what was compiled",
    "IGC_ShaderDump*": "writes down what was compiled",
}
"""Names that a pattern of DECIDING has and that change neither code nor time."""

PROCESSORS = "gputune.processors"
"""The setting that says how many processors a CPU device's process may use, where they are fewer than its compute
units."""


def deciding(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that measurements depend on."""
    return {name: environment[name] for name in sorted(environment) if decides(name)}


def decides(name: str) -> bool:
    """Whether measurements depend on a variable."""
    return _is_in(name, DECIDING) and not _is_in(name, LEFT_OUT)


def scarce_processors(compute_units: int, root: Path = Path("/")) -> dict[str, str]:
    """The setting PROCESSORS for a CPU device, nothing where each compute unit has a processor.

    A driver counts a machine's processors, not those that its threads may use (taskset) nor the share of time that a
    control group grants (a container's --cpus). With fewer of them, groups of a launch wait for each other's processor:
    other times, and other winners."""
    usable = min(_allowed(root), _granted(root))
    return {PROCESSORS: f"{round(usable, 2):g}"} if usable < compute_units else {}


def _is_in(name: str, patterns: Mapping[str, str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _allowed(root: Path) -> float:
    """Processors that the threads of this process may use, all together: a driver may have bound its own threads to
    others than the one that asks. Infinite where the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return math.inf
    allowed = os.sched_getaffinity(0)
    for thread in (root / "proc/self/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended
            allowed |= os.sched_getaffinity(int(thread.name))
    return len(allowed)


def _granted(root: Path) -> float:
    """The time that control groups grant, in processors; infinite where none has a limit."""
    return min(_quotas(root), default=math.inf)


def _quotas(root: Path) -> Iterator[float]:
    """The limits of this process's control group and of those around it, of both versions of the interface."""
    for line in _content(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        inner = mount / path.lstrip("/")
        for folder in (inner, *inner.parents):
            if mount in (folder, *folder.parents):
                text = _content(folder / "cpu.max") or " ".join(
                    _content(folder / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                )
                quota, period = [*text.split(), "", ""][:2]
                if quota.isdecimal() and period.isdecimal() and int(period) > 0:
                    yield int(quota) / int(period)


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

"""Tell what a compiled kernel takes of its device, from the driver's build log and from what OpenCL answers.

NVIDIA's driver says it in its build log, in the words of ptxas, which compiles for it:

    ptxas info    : Compiling entry function 'run' for 'sm_90'
    ptxas info    : Function properties for run
    ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
    ptxas info    : Used 32 registers, used 1 barriers, 16 bytes cumulative stack size, 4096 bytes smem

The first versions wrote "60+56 bytes lmem, 44+40 bytes smem" and no line on functions. The driver's linker may add
lines such as "info    : used 28 registers, 0 stack, 0 bytes smem, 412 bytes cmem[0], 0 bytes lmem". What a log does not
say is unknown, except shared memory, which ptxas leaves out where there is none.

Other drivers are asked, but those of CPUs not for private memory: PoCL 3.1 answers 1024 bytes for every kernel, and
Intel's driver says what all work-items take that it computes together, 18432 bytes for an array of 2048. That says
nothing of a work-item. Local memory is right with both.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gputune.core.identity import DeviceIdentity
from gputune.core.resources import UNKNOWN, Resources

# cl.h, and cl_ext.h of cl_intel_required_subgroup_size
KERNEL_LOCAL_MEM_SIZE = 0x11B2
KERNEL_PRIVATE_MEM_SIZE = 0x11B4
KERNEL_SPILL_MEM_SIZE_INTEL = 0x4109
TELLS_SPILLS = "cl_intel_required_subgroup_size"
MOST_BYTES = 1 << 48

_ENTRY = re.compile(r"Compiling entry function '([^'\s]{1,1000})'")
_FUNCTION = re.compile(r"Function properties for '?([^'\s:]{1,1000})")
_AMOUNT = re.compile(
    r"\b(?:(\d{1,8})\+)?(\d{1,8}) (registers|stack\b|bytes (?:[sl]mem|stack frame|cumulative stack size|spill \w+))",
    re.ASCII,
)
_PRIVATE = ("stack", "bytes stack frame", "bytes cumulative stack size", "bytes lmem")
_SPILLED = ("bytes spill stores", "bytes spill loads")


def ptxas_resources(log: str) -> dict[str, Resources]:
    """Return what a build log of NVIDIA's says of kernels, by name, and perhaps of functions that they call; empty for
    other texts. Spilled bytes are those of instructions that store and load them."""
    found: dict[str, Resources] = {}
    entry = function = ""
    for line in log.splitlines():
        if begun := _ENTRY.search(line):
            entry = begun[1]
        elif begun := _FUNCTION.search(line):
            function = begun[1]
        elif amounts := {what: int(declared or 0) + int(more) for declared, more, what in _AMOUNT.findall(line)}:
            whole = "registers" in amounts  # the line on a kernel, which follows those on functions
            name = entry or function if whole else function or entry
            known = found.get(name, UNKNOWN)
            found[name] = _said(amounts, known.private_bytes).over(known)
            if whole:
                entry = ""
    return found


def _said(amounts: dict[str, int], private_bytes: int | None) -> Resources:
    private = [amounts[what] for what in _PRIVATE if what in amounts]
    spilled = [amounts[what] for what in _SPILLED if what in amounts]
    registers = amounts.get("registers")
    return Resources(
        registers=registers,
        spilled_bytes=sum(spilled) if spilled else None,
        private_bytes=max([*private, private_bytes or 0]) if private else None,
        local_bytes=amounts.get("bytes smem", None if registers is None else 0),
    )


def asked_resources(ask: Callable[[int], int | None], identity: DeviceIdentity) -> Resources:
    """Return what OpenCL answers of a kernel. ask: clGetKernelWorkGroupInfo, which returns None where it fails."""

    def known(what: int) -> int | None:
        answer = ask(what)
        return answer if answer is not None and answer <= MOST_BYTES else None

    local_bytes = known(KERNEL_LOCAL_MEM_SIZE)
    if identity.device_type == "cpu":
        return Resources(local_bytes=local_bytes)
    spilled_bytes = known(KERNEL_SPILL_MEM_SIZE_INTEL) if TELLS_SPILLS in identity.extensions else None
    return Resources(None, spilled_bytes, known(KERNEL_PRIVATE_MEM_SIZE), local_bytes)

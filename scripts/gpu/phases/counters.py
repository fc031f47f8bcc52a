"""Collect Nsight Compute's counters while kernels run: default product, tiled product, matrix units, softmax.

Nsight Compute may not see OpenCL kernels. The PTX that NVIDIA's OpenCL compiler made of each kernel is therefore also
loaded and launched by CUDA, and its results are compared.
"""

from __future__ import annotations

import csv
import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpu import cuda
from gpu.card import said
from gpu.device import PROGRAMS, Device, cl
from gpu.phases import gemm
from gpu.record import Record, brief, run
from gputune.client.tuning.search.task_search import device_limits
from gputune.kernels.catalogue import families
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.runtime.backends.opencl_devices import identity_of

BY_CUDA, BY_OPENCL = "--by_cuda", "--by_opencl"
SIZE = 1024
METRICS = (
    "gpu__time_duration.sum",
    "launch__registers_per_thread",
    "launch__grid_size",
    "launch__block_size",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes.sum",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__inst_executed.sum",
    "sm__inst_executed_pipe_fma.sum",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct",
    "smsp__warp_issue_stalled_short_scoreboard_per_warp_active.pct",
    "smsp__warp_issue_stalled_barrier_per_warp_active.pct",
    "smsp__warp_issue_stalled_math_pipe_throttle_per_warp_active.pct",
    "smsp__warp_issue_stalled_mio_throttle_per_warp_active.pct",
    "smsp__warp_issue_stalled_lg_throttle_per_warp_active.pct",
)


def main(record: Record) -> None:
    """Makes kernels by OpenCL, then counts them by CUDA and by OpenCL."""
    listed = _kernels(Device(), record)
    plan = record.folder / "kernels.json"
    plan.write_text(json.dumps(listed))
    record.put("kernels", value=listed)
    ncu = said("which", "ncu").strip()
    tools = _tools(ncu) if ncu.startswith("/") else ([],)
    for way in (BY_CUDA, BY_OPENCL):
        for tool in tools:
            if record.left > 1 and not record.get("ncu", way, "kernels"):
                _count(record, way, tool, plan)
        found = record.get("ncu", way) or {}
        record.say(f"{way}: exit {found.get('exit')}, {len(found.get('kernels', []))} kernels; {found.get('said')}")


def _tools(ncu: str) -> tuple[list[str], ...]:
    """Commands before the one that is counted: the metrics that this card has; where that counts nothing, ncu's own
    choice."""
    known = said(ncu, "--query-metrics", "--chips", "gh100", seconds=8)
    wanted = [name for name in METRICS if name.startswith("launch") or name.partition(".")[0] in known]
    common = [ncu, "--clock-control", "none", "--csv", "--page", "raw"]
    return [*common, "--metrics", ",".join(wanted)], [*common, "--set", "basic"]


def _count(record: Record, way: str, tool: list[str], plan: Path) -> None:
    """Launches the kernels once below a tool, and keeps what that says."""
    command = [*tool, sys.executable, "-m", "gpu.phases.counters", way, str(plan)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=0.6 * record.left)
    except (OSError, subprocess.TimeoutExpired) as error:
        record.put("error", way, value=brief(error))
        return
    (record.folder / f"ncu{way}.txt").write_text(done.stdout + done.stderr)
    words = [line[:300] for line in done.stdout.splitlines() if line.startswith(("==", "right:"))]
    record.put("ncu", way, value={"exit": done.returncode, "kernels": counters(done.stdout), "said": words[-6:]})


def counters(text: str) -> list[dict[str, str]]:
    """Return what ncu's CSV says, a map for each kernel that was launched."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    rows = [row for row in csv.DictReader(lines[start:]) if (row.get("ID") or "").isdigit()]
    return [{key: value for key, value in row.items() if key == "Kernel Name" or key in METRICS} for row in rows]


def _kernels(device: Device, record: Record) -> list[dict[str, Any]]:
    """Programs in files, and how each is launched; buffers are floats, by their sizes."""
    limits = device_limits(identity_of(device.device, ""))
    size = 64 if record.rehearse else SIZE
    listed: list[dict[str, Any]] = []
    wanted = (("MatMul", MatMulProblem(size, size, size)), ("Softmax", SoftmaxProblem(1, 1000, 1)))
    for op, problem in wanted:
        family = families()[op]
        instance = family.rendered(problem, family.default(problem, limits), limits)
        launch, sizes = instance.main, {tensor.name: tensor.nbytes for tensor in family.inputs(problem)}
        sizes |= {**instance.packed, **instance.scratch, "output": family.output(problem).nbytes}
        arguments = [[sizes[one]] if isinstance(one, str) else one for one in launch.arguments]
        listed.append(
            _listed(device, record, f"default_{op}", launch.source, launch.options, launch.entry)
            | {"global": launch.global_size, "local": launch.local_size, "arguments": arguments}
        )
    for kernel in gemm.REHEARSED[:1] if record.rehearse else (gemm.KERNELS[0], gemm.KERNELS[11]):
        text = (PROGRAMS / f"{kernel.program}.cl").read_text()
        defines = " ".join(f"-D{name}={value}" for name, value in kernel.defines.items())
        options = defines if device.nvidia else f"{defines} -DEMULATED"
        listed.append(
            _listed(device, record, kernel.program, text, options, "gemm")
            | {"global": [kernel.groups(size) * kernel.items], "local": [kernel.items]}
            | {"arguments": [[4 * size * size]] * 3 + [size] * 3}
        )
    return listed


def _listed(device: Device, record: Record, name: str, source: str, options: str, entry: str) -> dict[str, Any]:
    """A program's text and binary in files."""
    text, binary = record.folder / f"{name}.cl", record.folder / f"{name}.ptx"
    text.write_text(source)
    program = cl.Program(device.context, source).build(options)
    binary.write_bytes(program.get_info(cl.program_info.BINARIES)[0].rstrip(b"\0"))
    return {"name": name, "text": str(text), "binary": str(binary), "options": options, "entry": entry}


# --- what is counted ---


def _inputs(kernel: dict[str, Any]) -> list[Any]:
    """Arrays for buffers, the same in every process; whole numbers as they are."""
    numbers = np.random.default_rng(11)
    return [
        numbers.standard_normal(one[0] // 4).astype(np.float32) if isinstance(one, list) else np.int32(one)
        for one in kernel["arguments"]
    ]


def _by_opencl(kernels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    device, outputs = Device(), {}
    for kernel in kernels:
        arrays = _inputs(kernel)
        given = [device.upload(one) if isinstance(one, np.ndarray) else one for one in arrays]
        program = device.build(Path(kernel["text"]).read_text(), kernel["options"])
        device.event_us(device.kernel(program, kernel["entry"], *given), kernel["global"], kernel["local"])
        outputs[kernel["name"]] = [
            device.read(one, np.float32, array.size)
            for one, array in zip(given, arrays, strict=True)
            if isinstance(array, np.ndarray)
        ]
    return outputs


def _by_cuda(kernels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    cupy, outputs = importlib.import_module("cupy"), {}
    for kernel in kernels:
        given = [cupy.asarray(one) if isinstance(one, np.ndarray) else one for one in _inputs(kernel)]
        module = cupy.RawModule(path=str(cuda.loadable(Path(kernel["binary"]))))
        local = [*kernel["local"], 1, 1][:3]
        grid = [whole // part for whole, part in zip([*kernel["global"], 1, 1][:3], local, strict=True)]
        module.get_function(kernel["entry"])(tuple(grid), tuple(local), tuple(given))
        outputs[kernel["name"]] = [cupy.asnumpy(one) for one in given if isinstance(one, cupy.ndarray)]
    return outputs


def _counted(way: str, plan: str) -> None:
    """Launches all kernels once, where ncu may count; what OpenCL computes must be what CUDA computes."""
    kernels = json.loads(Path(plan).read_text())
    kept = Path(plan).with_suffix(".npz")
    for kernel in kernels:
        try:
            (outputs,) = (_by_cuda if way == BY_CUDA else _by_opencl)([kernel]).values()
        except Exception as error:
            print(f"right: {kernel['name']} failed: {brief(error)}", flush=True)
            continue
        path = kept.with_name(f"{kernel['name']}.npy")
        if path.exists():
            print(
                f"right: {kernel['name']} {np.allclose(np.load(path), outputs[-1], rtol=1e-4, atol=1e-3)}", flush=True
            )
        else:
            np.save(path, outputs[-1])


if __name__ == "__main__":
    if sys.argv[1] in (BY_CUDA, BY_OPENCL):
        _counted(sys.argv[1], sys.argv[2])
    else:
        run(main)

"""Run a context by gputune.load in turns, as turns.h has it: by_python CONTEXT FORM INPUT ... OUTPUT ...

It uses what all versions of gputune have.
"""

import re
import sys
import time
from pathlib import Path

import numpy as np

from gputune.runtime import load

context, form, *files = sys.argv[1:]
begun_ns = time.perf_counter_ns()
executor = load(context)
load_ns = time.perf_counter_ns() - begun_ns - executor.device_open_ns
executor.persistent_kernels = executor.persistent_kernels and form == "persistent"
inputs = {
    tensor.name: np.fromfile(path, tensor.dtype).reshape(tensor.shape)
    for tensor, path in zip(executor.graph.inputs, files, strict=False)
}
outputs = {tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in executor.graph.outputs}
print(load_ns, executor.device_open_ns, flush=True)


def infer() -> int:
    start = time.perf_counter_ns()
    executor.run(inputs, outputs)
    return time.perf_counter_ns() - start


def memory() -> str:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return " ".join(found for name in ("VmRSS", "RssAnon") for found in re.findall(rf"{name}:\s+(\d+)", status))


for line in sys.stdin:
    count = int(line)
    print(" ".join(str(infer()) for _ in range(count)) if count else memory(), flush=True)
for path, value in zip(files[len(inputs) :], outputs.values(), strict=True):
    value.tofile(path)

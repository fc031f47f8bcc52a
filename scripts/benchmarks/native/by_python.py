"""Run Python's runtime in turns, as turns.h has it: by_python CONTEXT FORM INPUT ... OUTPUT ..."""

import re
import sys
import time
from pathlib import Path

import numpy as np

from gputune.runtime.backends import open_backend
from gputune.runtime.loading.devices import open_timed
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.loading.model import open_any

assert open_backend is not None  # what a load would import in its midst

context, form, *files = sys.argv[1:]
begun_ns = time.perf_counter_ns()
source, graph = open_any(context).source_of(None)
file = source.open()
opened_ns = time.perf_counter_ns()
backend, device_open_ns = open_timed(file, None)
device_ns = time.perf_counter_ns()
executor = executor_on(backend, file, graph, True)
loaded_ns = time.perf_counter_ns()
file.close()
executor.persistent_kernels = executor.persistent_kernels and form == "persistent"
inputs = {
    tensor.name: np.fromfile(path, tensor.dtype).reshape(tensor.shape)
    for tensor, path in zip(executor.graph.inputs, files, strict=False)
}
outputs = {tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in executor.graph.outputs}
print(loaded_ns - device_ns + opened_ns - begun_ns, device_open_ns, flush=True)


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

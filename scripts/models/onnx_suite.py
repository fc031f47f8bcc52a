"""Run ONNX's backend test suite through gputune.client.run.onnx_backend and count real passes.

The cases, their data and their tolerances come from a pinned onnx, which is installed into a folder of its own. Each
case runs as ONNX's own runner runs it, in a worker process, so that a driver that dies takes only one case with it.

A case passes if it ran and all of its outputs are right. It is excluded if gputune refuses it for a reason in
onnx_suite_rules.py. Any other result is a failure. What PoCL compiles is kept under build/ for the next run.

With --through onnxruntime each model is cut, as with --unsupported host, and runs in onnxruntime with gputune's plugin.
A case passes only if a part of it ran on the device. If no part did, the case is excluded, and fails only if the file
without parts does not give what onnxruntime gives for the model.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import tool

ROOT = tool.ROOT
ONNX = "1.21.0"
FOLDER = ROOT / "build" / f"onnx-{ONNX}"
KEPT = ROOT / "build" / "onnx_suite"
KINDS = {
    "OnnxBackendNodeModelTest": "node",
    "OnnxBackendSimpleModelTest": "simple",
    "OnnxBackendPyTorchOperatorModelTest": "pytorch-operator",
    "OnnxBackendPyTorchConvertedModelTest": "pytorch-converted",
}
SUFFIX = "_cpu"
CASE_SECONDS = 180


def pinned_onnx() -> None:
    """Has this process, and those that it starts, import the pinned onnx, installed if it is not there yet."""
    if not (FOLDER / "onnx").is_dir():
        print(f"installing onnx=={ONNX} into {FOLDER.relative_to(ROOT)}", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps"]
        if subprocess.run([*command, "--target", str(FOLDER), f"onnx=={ONNX}"]).returncode:
            sys.exit(f"could not install onnx=={ONNX}: see pip's message above")
    sys.path.insert(0, str(FOLDER))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH"))))


def listed(match: str) -> list[tuple[str, str]]:
    """(kind, name) of the cases whose name matches."""
    from onnx.backend.base import Backend
    from onnx.backend.test.runner import Runner

    return [
        (kind, method.removesuffix(SUFFIX))
        for name, cases in Runner(Backend).test_cases.items()
        if (kind := KINDS.get(name))
        for method in sorted(dir(cases))
        if method.startswith("test_") and method.endswith(SUFFIX) and re.search(match, method.removesuffix(SUFFIX))
    ]


class Worker:
    """A process that runs cases one after the other; another takes its place when it dies."""

    def __init__(self, through: str) -> None:
        self.device = ""
        self._through = through
        self._process: subprocess.Popen[str] | None = None

    def run(self, kind: str, name: str) -> dict[str, Any]:
        """What became of a case, as onnx_suite_worker.py tells it."""
        began = time.monotonic()
        if self._process is None:
            self._process = self._started()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(CASE_SECONDS, process.kill)
        timer.start()
        line = ""
        with suppress(BrokenPipeError):
            process.stdin.write(f"{kind} {name}\n")
            process.stdin.flush()
            line = process.stdout.readline()
        timer.cancel()
        seconds = time.monotonic() - began
        if line:
            return {"kind": kind, "name": name, **json.loads(line), "seconds": seconds}
        code, self._process = process.wait(), None
        why = f"took more than {CASE_SECONDS} s" if seconds > CASE_SECONDS else f"its process ended with {code}"
        return {"kind": kind, "name": name, "status": "failed", "detail": why, "seconds": seconds}

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()

    def _started(self) -> subprocess.Popen[str]:
        environment = tool.environment(POCL_CACHE_DIR=str(KEPT), POCL_KERNEL_CACHE="1")
        command = [*tool.module("models.onnx_suite_worker"), self._through]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        if not (line := process.stdout.readline()):
            sys.exit("a worker has not started: see its message above")
        self.device = json.loads(line)
        return process


def run(cases: list[tuple[str, str]], through: str, jobs: int, workers: list[Worker]) -> Iterator[dict[str, Any]]:
    """The results of cases in their order; the processes that run them are added to the workers."""
    local = threading.local()

    def one(case: tuple[str, str]) -> dict[str, Any]:
        if not hasattr(local, "worker"):
            local.worker = Worker(through)
            workers.append(local.worker)
        result: dict[str, Any] = local.worker.run(*case)
        return result

    with ThreadPoolExecutor(jobs) as threads:
        yield from threads.map(one, cases)
    for worker in workers:
        worker.close()


def report(results: list[dict[str, Any]]) -> list[str]:
    """The counts by kind, the exclusions by rule, and every failure."""
    from tool import table

    statuses = ("passed", "failed", "excluded")
    rows = []
    for kind in (*dict.fromkeys(result["kind"] for result in results), "all"):
        of_kind = [result for result in results if kind in (result["kind"], "all")]
        counts = Counter(result["status"] for result in of_kind)
        known = sum(result["status"] == "passed" and not result["operations"] for result in of_kind)
        rows.append([kind, *(str(counts[status]) for status in statuses), str(len(of_kind)), str(known)])
    lines = [table(["cases", *statuses, "all", "passed without a kernel"], rows)]
    rules = Counter(result["rule"] for result in results if result["status"] == "excluded")
    lines += ["", "excluded because of"] if rules else []
    lines += [f"{count:>5}  {rule}" for rule, count in rules.most_common()]
    failures = [result for result in results if result["status"] == "failed"]
    lines += ["", "failed"] if failures else []
    lines += [f"  {result['kind']} {result['name']}: {result['detail']}" for result in failures]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", metavar="PATTERN", help="only cases whose name this expression finds")
    parser.add_argument("--through", default="gputune", choices=("gputune", "onnxruntime"), help="what runs the models")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many worker processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also writes every case's result there")
    parser.add_argument("--verbose", action="store_true", help="a line for each case")
    arguments = parser.parse_args()
    pinned_onnx()
    cases = listed(arguments.match)
    KEPT.mkdir(parents=True, exist_ok=True)
    began, results = time.monotonic(), []
    workers: list[Worker] = []
    for result in run(cases, arguments.through, arguments.jobs, workers):
        results.append(result)
        if arguments.verbose:
            print(f"{result['status']:>9} {result['seconds']:6.2f} s  {result['name']}  {result['detail']}", flush=True)
    device = workers[0].device if workers else "no device"
    print(
        f"onnx {ONNX} on {device}: {len(cases)} cases in {time.monotonic() - began:.0f} s\n", *report(results), sep="\n"
    )
    if arguments.json:
        content = {"onnx": ONNX, "device": device, "results": results}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 1 if any(result["status"] == "failed" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())

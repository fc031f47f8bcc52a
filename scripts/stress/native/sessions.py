"""Open and close sessions of onnxruntime with gputune a thousand times, and watch memory, descriptors and threads.

    scripts/stress/native/sessions [--sessions 1000] [FILE]

By default, the sessions are of a classifier of text lines with a float64 tensor inside, so two parts are on the
device. Every fourth session shares an arena with the next one, and in every eighth session eight threads run at the
same time. All outputs must be the same bits. In the first half of the sessions, the C library's allocator gets its
arenas for all threads. In the second half, memory may grow by at most 16 MiB, and the numbers of descriptors and
threads may not grow. The exit code is 1 if something grows or differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import gputune
import tool
from models import material
from models.in_onnxruntime.made_models import double_inside
from stress.server.observed import Usage, usage

GROWN_BYTES = 16 << 20
THREADS, RUNS = 8, 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/stress/native/sessions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="an ONNX file with EPContext nodes and fixed shapes")
    parser.add_argument("--sessions", type=int, default=1000, help="how many (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gputune-") as folder:
        return _watch(options.file or _made(Path(folder)), options.sessions)


def _made(folder: Path) -> Path:
    """The default file."""
    shape = "x=" + ",".join(map(str, material.ANGLE_SHAPE))
    done = tool.generate(folder / "made", double_inside(), shape, "none", "--unsupported", "host", quiet=True)
    return done.folder / "context_ctx.onnx"


def _watch(file: Path, count: int) -> int:
    gputune.onnxruntime.register()
    wanted: list[bytes] | None = None
    begun = usage(os.getpid())
    shared: list[Any] = []
    for number in range(count):
        shares = number % 4 in (2, 3)
        session, inputs = _session(file, shares)
        if number % 8 == 7:
            with ThreadPoolExecutor(THREADS) as pool:
                results = list(pool.map(lambda _, one=session, given=inputs: _bits(one, given), range(THREADS * RUNS)))
        else:
            results = [_bits(session, inputs)]
        wanted = wanted or results[0]
        if any(result != wanted for result in results):
            print(f"session {number}: other outputs", file=sys.stderr)
            return 1
        shared = [*shared, session] if shares and number % 4 == 2 else []
        del session
        if number + 1 == max(count // 2, 1):
            begun = usage(os.getpid())
        if (number + 1) % max(count // 10, 1) == 0:
            print(f"{number + 1} sessions: {_shown(usage(os.getpid()))}", flush=True)
    end = usage(os.getpid())
    level = end.descriptors <= begun.descriptors and end.threads <= begun.threads
    level = level and end.resident_bytes - begun.resident_bytes <= GROWN_BYTES
    print(f"after the first half: {_shown(begun)}; at the end: {_shown(end)}; {'level' if level else 'GROWN'}")
    return 0 if level else 1


def _shown(held: Usage) -> str:
    return f"{held}, {held.threads} threads"


def _session(file: Path, shares: bool) -> tuple[Any, dict[str, Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if shares:
        options.add_session_config_entry("ep.share_ep_contexts", "1")
    options.add_provider_for_devices(gputune.onnxruntime.devices(), {})
    session = onnxruntime.InferenceSession(file, options)
    generator = np.random.default_rng(0)
    return session, {one.name: generator.standard_normal(one.shape, dtype=np.float32) for one in session.get_inputs()}


def _bits(session: Any, inputs: dict[str, Any]) -> list[bytes]:
    return [np.asarray(array).tobytes() for array in session.run(None, inputs)]


if __name__ == "__main__":
    sys.exit(main())

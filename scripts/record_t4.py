"""Recordings as T4, the results format of the FAIR benchmark hub for auto-tuning, which other tuners' tools read.

The schema is version 1.0.0 of results-schema.json in github.com/odgaard/TuningSchema and in Kernel Tuner, which allows
"correct" as well; times are milliseconds. The schema calls the time to compile `compilation_time`, while Kernel Tuner
and the files on the hub say `compilation`: both are written.
"""

from __future__ import annotations

import gzip
import json
import statistics
from pathlib import Path
from typing import Any

from gputune.runtime.recording import Header, Recording, Row

VERSION = "1.0.0"
MILLISECOND_NS = 1e6
INVALIDITY = {
    "ok": "correct",
    "constraints": "constraints",
    "compile": "compile",
    "device_limits": "runtime",
    "runtime": "runtime",
    "correctness": "correctness",
    "timeout": "timeout",
    "crash": "runtime",
}
"""T4's word for each status."""


def to_t4(recording: Recording) -> dict[str, Any]:
    """The recording as T4."""
    header = recording.header
    metadata = {
        "timeunit": "milliseconds",
        "kernel": header.op,
        "problem": header.problem,
        "device": header.device.to_dict(),
        "measured": header.measured,
        "space_size": header.space_size,
    }
    return {
        "schema_version": VERSION,
        "metadata": metadata,
        "results": [_result(header, row) for row in recording.rows],
    }


def write_t4(path: Path, recording: Recording) -> None:
    """Writes the recording as T4, gzipped where the name ends so. Raises OSError."""
    text = json.dumps(to_t4(recording), separators=(",", ":")).encode() + b"\n"
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def _result(header: Header, row: Row) -> dict[str, Any]:
    times: dict[str, Any] = {
        "compilation_time": row.compile_ns / MILLISECOND_NS,
        "compilation": row.compile_ns / MILLISECOND_NS,
        "runtimes": [sample / MILLISECOND_NS for sample in row.samples_ns],
    }
    result: dict[str, Any] = {
        "configuration": dict(zip(header.parameters, row.values, strict=True)),
        "objectives": ["time"],
        "times": times,
        "invalidity": INVALIDITY[row.status],
        "correctness": int(row.status == "ok"),
        "measurements": [],
    }
    if row.samples_ns:
        median_ms = statistics.median(row.samples_ns) / MILLISECOND_NS
        result["measurements"].append({"name": "time", "value": median_ms, "unit": "ms"})
    return result

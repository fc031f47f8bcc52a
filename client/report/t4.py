"""Write T4, the results format of the FAIR benchmark hub for auto-tuning, which other tuners' tools read.

The schema is version 1.0.0 of results-schema.json in github.com/odgaard/TuningSchema and in Kernel Tuner, which also
allows "correct". Times are milliseconds. The schema calls the time to compile `compilation_time`, while Kernel Tuner
and the files on the hub say `compilation`; this module writes both.
"""

import gzip
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gputune.cache.record import Entry
from gputune.client.outputs import whole
from gputune.core.json_text import json_text
from gputune.kernels.space import configuration_key

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


def document(metadata: Mapping[str, Any], results: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Results as a T4 document."""
    return {
        "schema_version": VERSION,
        "metadata": {"timeunit": "milliseconds", **metadata},
        "results": list(results),
    }


def result(
    configuration: Mapping[str, int], status: str, samples_ns: Sequence[float], compile_ns: float
) -> dict[str, Any]:
    """Return what became of one configuration, in T4's words."""
    times = {
        "compilation_time": compile_ns / MILLISECOND_NS,
        "compilation": compile_ns / MILLISECOND_NS,
        "runtimes": [sample / MILLISECOND_NS for sample in samples_ns],
    }
    measurements = []
    if samples_ns:
        median_ms = statistics.median(samples_ns) / MILLISECOND_NS
        measurements.append({"name": "time", "value": median_ms, "unit": "ms"})
    return {
        "configuration": dict(configuration),
        "objectives": ["time"],
        "times": times,
        "invalidity": INVALIDITY[status],
        "correctness": int(status == "ok"),
        "measurements": measurements,
    }


def of_entry(entry: Entry) -> dict[str, Any]:
    """Return what a cache has of a task in one place: the last trial of each configuration."""
    metadata = {
        "kernel": entry.task.op,
        "problem": entry.task.problem,
        "device": entry.validity.to_dict(),
    }
    last = {configuration_key(stored.trial.configuration): stored.trial for stored in entry.trials}
    return document(
        metadata,
        (result(one.configuration, one.status, one.samples_ns, one.compile_ns or 0.0) for one in last.values()),
    )


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a document, gzipped where the name ends so. Raises OutputError."""
    text = json_text(content).encode() + b"\n"
    with whole(path) as unfinished:
        unfinished.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)

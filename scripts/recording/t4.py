"""Write recordings as T4; see gputune.client.report.t4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gputune.client.report import t4
from gputune.runtime.devices.recording import Recording, Row


def to_t4(recording: Recording) -> dict[str, Any]:
    """The recording as T4."""
    header = recording.header
    metadata = {
        "kernel": header.op,
        "problem": header.problem,
        "device": header.device.to_dict(),
        "measured": header.measured,
        "space_size": header.space_size,
    }

    def result(row: Row) -> dict[str, Any]:
        configuration = dict(zip(header.parameters, row.values, strict=True))
        return t4.result(configuration, row.status, row.samples_ns, row.compile_ns)

    return t4.document(metadata, map(result, recording.rows))


def write_t4(path: Path, recording: Recording) -> None:
    """Writes the recording as T4, gzipped where the name ends so. Raises OutputError."""
    t4.write(path, to_t4(recording))

"""Check what runs contexts on this machine's devices."""

from __future__ import annotations

from gputune.client.doctor.findings import Finding
from gputune.runtime.native.building import REMEDY, NotBuilt, origin_of, runtime_library


def check_contexts() -> Finding:
    """Return whether contexts run by the C runtime here, and where its library comes from; else why they do not."""
    try:
        library = runtime_library()
    except NotBuilt as error:
        return Finding(
            "software", "problem", f"no context runs here, because the C runtime is not here: {error}", REMEDY
        )
    return Finding("software", "ok", f"contexts run by the C runtime, {origin_of(library)} ({library})")

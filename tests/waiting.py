"""Wait in tests until something has happened, however busy the machine is."""

import time
from collections.abc import Callable

PATIENCE_SECONDS = 300.0
"""A wait that takes longer has failed. No test waits this long when all is well, on a busy machine either."""


def becomes(condition: Callable[[], object], pause_seconds: float = 0.01) -> bool:
    """Whether a condition comes true; asked again and again until it does, for PATIENCE_SECONDS at most."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_seconds)
    return True

"""Provide descriptors for tests, and count how many a process has."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208


def own_descriptors() -> set[tuple[str, str]]:
    """Return the number of each open descriptor of this process, and what it is open on.

    What is open later must be a subset: an object of an earlier test may close its own meanwhile.
    """
    found = set()
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))  # noqa: PTH115
    return found


def memfd(nbytes: int = 4096, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


@contextmanager
def closing_fd(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)

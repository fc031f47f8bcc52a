"""Check file descriptors, so that their memory cannot vanish while a device uses it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from gputune.core.errors import UnusableMemory
from gputune.core.logs import printable

MEMFD = "memfd"
DMA_BUF = "fd"
SEALS = ("F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_SEAL")
HOW_TO_SEAL = (
    "create it with os.memfd_create(name, os.MFD_ALLOW_SEALING) and seal it with "
    "fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)"
)

# linux/dma-buf.h: _IOW('b', 0, struct dma_buf_sync), whose one field is __u64 flags.
DMA_BUF_IOCTL_SYNC = 0x40086200
DMA_BUF_SYNC_RW = 3
DMA_BUF_SYNC_START = 0
DMA_BUF_SYNC_END = 4

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


@dataclass(frozen=True)
class Memory:
    """What a descriptor stands for: `kind` is "memfd" or "fd" (a dma-buf), `nbytes` the size of all of it."""

    kind: str
    nbytes: int


def sealed_memfd(nbytes: int) -> int | None:
    """Return a descriptor of new, zeroed memory of nbytes bytes that cannot change its size any more; None where the
    system has no such memory. Raises UnusableMemory when there is not enough."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        fd = os.memfd_create("gputune", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a sandbox without the call
            return None
        raise UnusableMemory(f"no memory descriptor can be created: {error.strerror}") from None
    try:
        os.ftruncate(fd, nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, sum(getattr(fcntl, name) for name in SEALS))
    except OSError as error:
        os.close(fd)
        raise UnusableMemory(f"memory of {nbytes} bytes cannot be allocated: {error.strerror}") from None
    return fd


def duplicate(fd: int) -> int:
    """Return a descriptor of one's own for the same memory. Raises UnusableMemory when fd is none that is open."""
    if isinstance(fd, bool) or not isinstance(fd, int) or fd < 0:
        raise UnusableMemory(f"{fd!r} is no file descriptor")
    try:
        return os.dup(fd)
    except OSError as error:
        raise UnusableMemory(f"descriptor {fd} cannot be used: {error.strerror}") from None


def examine(fd: int) -> Memory:
    """Return what an open descriptor stands for. Raises UnusableMemory for everything but a memfd that cannot shrink
    and a dma-buf: when a file is cut short, whatever has it mapped ends with SIGBUS."""
    mode = os.fstat(fd).st_mode
    link = _link_of(fd)
    if link.startswith(("/dmabuf:", "anon_inode:dmabuf")) and _synchronises(fd):
        return Memory(DMA_BUF, os.lseek(fd, 0, os.SEEK_END))
    if stat.S_ISREG(mode):
        return _examine_file(fd, link)
    kind = _KINDS.get(stat.S_IFMT(mode), link or "of an unknown kind")
    raise UnusableMemory(f"the descriptor is {kind}{_named(link)}; a sealed memfd or a dma-buf is needed")


def _examine_file(fd: int, link: str) -> Memory:
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except (OSError, AttributeError):  # a file system, or a system, without seals
        raise UnusableMemory(
            f"the descriptor is a regular file{_named(link)}, which could be cut short; {HOW_TO_SEAL}"
        ) from None
    if not seals & fcntl.F_SEAL_SHRINK:
        never = " and can never be" if seals & fcntl.F_SEAL_SEAL else ""
        raise UnusableMemory(f"the descriptor's memory is not sealed against shrinking{never}: {HOW_TO_SEAL}")
    return Memory(MEMFD, os.fstat(fd).st_size)


def synchronise(fd: int, flags: int) -> None:
    """Tell a dma-buf's exporter that the host begins (DMA_BUF_SYNC_START) or ends (DMA_BUF_SYNC_END) to use its
    memory, so that caches agree. Raises UnusableMemory when it refuses."""
    try:
        fcntl.ioctl(fd, DMA_BUF_IOCTL_SYNC, struct.pack("=Q", DMA_BUF_SYNC_RW | flags))
    except OSError as error:
        raise UnusableMemory(f"the dma-buf cannot be synchronised: {error.strerror}") from None


def _synchronises(fd: int) -> bool:
    """Return whether it answers as a dma-buf: a file may have the name of one."""
    try:
        synchronise(fd, DMA_BUF_SYNC_START)
        synchronise(fd, DMA_BUF_SYNC_END)
    except UnusableMemory:
        return False
    return True


def _named(link: str) -> str:
    return f" ({printable(link)})" if link.startswith("/") else ""


def _link_of(fd: int) -> str:
    """Return what /proc calls an open descriptor; empty where there is no /proc."""
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    return ""

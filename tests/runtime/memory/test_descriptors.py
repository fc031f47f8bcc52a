"""Test memory of descriptors where the system refuses it."""

import errno
import fcntl
import os

import pytest

from gputune.core.errors import UnusableMemory
from gputune.runtime.memory.descriptors import sealed_memfd


def refuses(code: int) -> object:
    def refuse(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_a_system_may_have_no_such_memory(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(os, "memfd_create", refuses(code))
    assert sealed_memfd(64) is None


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINVAL])
def test_other_reasons_are_told(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(os, "memfd_create", refuses(code))
    with pytest.raises(UnusableMemory, match=f"^no memory descriptor can be created: {os.strerror(code)}$"):
        sealed_memfd(64)


@pytest.mark.parametrize("call", [(os, "ftruncate"), (fcntl, "fcntl")])
def test_memory_that_is_not_there_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch, call: tuple[object, str]
) -> None:
    made = [os.memfd_create("gputune", os.MFD_ALLOW_SEALING)]
    monkeypatch.setattr(os, "memfd_create", lambda *given: made[0])
    monkeypatch.setattr(*call, refuses(errno.ENOSPC))
    with pytest.raises(UnusableMemory, match="memory of 64 bytes cannot be allocated: No space left on device"):
        sealed_memfd(64)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made[0])

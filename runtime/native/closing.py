"""Close objects of the C runtime in any order: twice, in another thread, by the garbage collector, at exit, in a fork.

C wants the reverse order of opening. So an object that others stand on is given back with the last of them.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol, Self

from gputune.core.errors import ContextClosed
from gputune.core.opened import Closing


class Library(Protocol):
    """Call the functions of gputune.h by their names without a prefix."""

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function that cannot fail; return its result."""

    def checked(self, name: str, *arguments: Any) -> None:
        """Call a function that can fail. Raises the error that its code names."""

    def made(self, name: str, *arguments: Any) -> int:
        """Call a function that makes an object; return its address. Raises as checked does."""

    def untyped(self, name: str) -> Any:
        """Return a function that returns a code, and takes objects of ctypes without a check."""

    def error(self, code: int, error: Any) -> Exception:
        """Return the error that a code names, with the text that C has written."""

    def give_back(self, name: str, pointer: int) -> None:
        """Call the function that closes an object. Raises as checked does."""


class NativeObject(Closing):
    """Hold something that a library has made, and what it stands on."""

    close_by = ""

    def __init__(self, native: Library, pointer: int, *below: NativeObject) -> None:
        self.native = native
        self._pointer: int | None = pointer
        self._held: _Held = _Held(native, self.close_by, pointer, tuple(one._held for one in below))
        self._finalizer = weakref.finalize(self, self._held.drop)

    @property
    def pointer(self) -> int:
        """Return its address. Raises ContextClosed once it is closed."""
        if self._pointer is None:
            raise ContextClosed(f"this {type(self).__name__.lower()} was closed")
        return self._pointer

    @property
    def closed(self) -> bool:
        """Return whether close() was called."""
        return self._pointer is None

    def keep(self, memory: object) -> None:
        """Keep what C reads and writes until the object is given back."""
        self._held.memory = memory

    def close(self) -> None:
        """Give it back, unless others stand on it, which then do. A second call does nothing."""
        self._pointer = None
        self._finalizer()

    def __enter__(self) -> Self:
        _ = self.pointer
        return self


class _Held:
    """Count what stands on an object of C, and give the object back when nothing does any more."""

    _turn = threading.RLock()  # a finalizer may run while another is counted

    def __init__(self, native: Library, close_by: str, pointer: int, below: tuple[_Held, ...]) -> None:
        self._native, self._close_by, self._pointer, self._below = native, close_by, pointer, below
        self._users = 1
        self.memory: object = None
        with self._turn:
            for one in below:
                one._users += 1

    @classmethod
    def forked(cls) -> None:
        """Begin anew in a fork, in which no thread is left that might hold the turn."""
        cls._turn = threading.RLock()

    def drop(self) -> None:
        """Count one user less."""
        with self._turn:
            self._users -= 1
            last = not self._users
        if not last:
            return
        try:
            self._native.give_back(self._close_by, self._pointer)
        finally:
            for one in self._below:
                one.drop()


os.register_at_fork(after_in_child=_Held.forked)

"""Provide the C runtime on a real device."""

from tests.native.conftest import c_compiler, native

__all__ = ["c_compiler", "native"]

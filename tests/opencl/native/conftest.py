"""The C runtime on a real device."""

from tests.native.conftest import native

__all__ = ["native"]

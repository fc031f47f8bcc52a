"""gputune tunes the OpenCL kernels of an ONNX model on the device that will run them.

Importing it loads nothing: each part is loaded when it is asked for (PEP 562), so `import gputune` costs no time in an
application that needs the runtime alone, and works on a device that carries core/, runtime/ and server/ only.
"""

from __future__ import annotations

from typing import Any

__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    """`__version__`: that of the installation. Raises AttributeError for other names."""
    if name == "__version__":
        from importlib.metadata import version

        return version("gputune")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

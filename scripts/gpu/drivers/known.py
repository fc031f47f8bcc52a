"""List the kernel tests that fail on other drivers, and why that is no fault of our kernels."""

from collections.abc import Mapping

KNOWN: Mapping[str, Mapping[str, str]] = {"intel": {}, "rusticl": {}}
"""By driver and by the beginning of a test's name."""

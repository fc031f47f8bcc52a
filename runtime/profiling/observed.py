"""Define what is told when an inference begins and ends, and has counted something by then."""

from __future__ import annotations

from typing import Any, Protocol


class Observed(Protocol):
    """What is counted of an inference beside its times."""

    def before(self) -> None:
        """Note that an inference is going to begin."""

    def after(self) -> None:
        """Note that the inference has ended."""

    def results(self) -> dict[str, Any]:
        """Fields of its LoggedInference."""

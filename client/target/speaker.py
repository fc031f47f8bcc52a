"""Who hears what a command has to say while it works, by how much it matters."""

from __future__ import annotations

from typing import Protocol


class Speaker(Protocol):
    """Takes lines for people; gputune.client.progress.Reporter is one."""

    def tell(self, text: str) -> None:
        """What a person must do, or nothing goes on: always shown, as it is."""

    def warn(self, text: str) -> None:
        """What may be wrong."""

    def info(self, text: str) -> None:
        """What takes its time, and what was chosen."""


class Silence:
    """A Speaker whom nobody hears."""

    def tell(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def info(self, text: str) -> None: ...


SILENCE = Silence()

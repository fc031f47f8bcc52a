"""What was chosen inside a whole model, and how it lies in the rows of the store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputune.cache.record import RecordError, WinnerRecord, finite, plain_object, positive, read_json, winner_from_row
from gputune.core.json_text import canonical_json

PLACES = "validities"
"""The key of `measured` that holds the digests of the validities of the tasks: where the contexts were compared."""


@dataclass(frozen=True)
class ChainRecord:
    """What contexts of a model, compared on the device, have led to. Raises RecordError for impossible contents."""

    winners: Mapping[str, WinnerRecord]
    """By task digest, what takes the place of the task's own winner."""
    times_ns: Mapping[str, float]
    """By task digest, the times by which it was decided what is fused; empty where nothing is."""
    launch_ns: float
    """What a launch costs beside the time of its kernel."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """What was compared and what it gained, as plain JSON values."""

    def __post_init__(self) -> None:
        times = {task: positive(time, "times_ns") for task, time in plain_object(self.times_ns, "times_ns").items()}
        object.__setattr__(self, "times_ns", times)
        object.__setattr__(self, "launch_ns", finite(self.launch_ns, "launch_ns"))
        object.__setattr__(self, "measured", plain_object(self.measured, "measured"))


CHAIN_COLUMNS = ("times_ns", "launch_ns", "measured")


def chain_to_row(chain: ChainRecord) -> tuple[Any, ...]:
    """Column values in the order of CHAIN_COLUMNS; the winners have rows of their own."""
    return canonical_json(chain.times_ns), chain.launch_ns, canonical_json(chain.measured)


def chain_from_rows(row: Sequence[Any], winners: Iterable[Sequence[Any]]) -> ChainRecord:
    """The record of a row of CHAIN_COLUMNS and of rows of a task's digest and WINNER_COLUMNS. Raises RecordError."""
    times_ns, launch_ns, measured = row
    by_task: dict[str, WinnerRecord] = {}
    for task, *winner in winners:
        if not isinstance(task, str):
            raise RecordError(f"task is {task!r}, not a digest")
        by_task[task] = winner_from_row(winner)
    return ChainRecord(by_task, read_json(times_ns, "times_ns"), launch_ns, read_json(measured, "measured"))

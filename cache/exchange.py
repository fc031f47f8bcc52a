"""Write and read the contents of a performance cache as JSON, for other machines, other tools and the long run.

    {"format": "gputune performance cache", "version": 2, "software": ..., "exported_at": ...,
     "entries": [{"task_digest": ..., "task": {...}, "validity_digest": ..., "validity": {...},
                  "trials": [{"configuration": ..., "status": ..., ..., "stored_at": ...}],
                  "winner": {..., "stored_at": ...} or null}],
     "chains": [{"digest": ..., "times_ns": ..., "launch_ns": ..., "measured": ..., "stored_at": ...,
                 "winners": {task digest: as above}}]}

Fields are those of the records. Version 1 also had the winners' program binaries, which are not read: compiled programs
do not travel. Infinities are written as core/json_text.py says. Input is checked as rows of a file are, and digests
must be those of their keys. Of two winners in one place, the winner with more behind it stays, and both are named.

A record holds no source. It names a configuration, which must be legal today and render, from this gputune's templates,
to the launches that were measured. Times and correctness of another installation are believed: a wrong record can
choose a slow configuration, or a configuration that this driver gets wrong. `--verify` finds that.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from gputune.cache.file import CacheError, one_line
from gputune.cache.key import TaskKey, Validity
from gputune.cache.record import (
    ChainRecord,
    Conclusion,
    Contents,
    Entry,
    RecordError,
    Stored,
    TrialRecord,
    WinnerRecord,
    moment,
)
from gputune.core.json_text import json_text, json_value, numbers

FORMAT = "gputune performance cache"
VERSION = 2
READABLE_VERSIONS = (1, 2)
BINARY = "binary"
"""A field of winners in version 1."""


def to_json(contents: Contents, software: str, exported_at: str) -> str:
    """Return contents as a JSON text with a line for each entry."""
    head = {"format": FORMAT, "version": VERSION, "software": software, "exported_at": exported_at}
    entries = _lines(_entry_to_json(entry) for entry in contents.entries)
    chains = _lines(_chain_to_json(digest, *one) for digest, one in contents.chains.items())
    return f'{json_text(head)[:-1]},\n"entries": [{entries}],\n"chains": [{chains}]}}\n'


def from_json(text: str, where: str) -> Contents:
    """Return the contents of an export. Raises CacheError that names `where` and what is wrong with which entry."""
    try:
        content = json_value(text)
        found = content.get("format"), content.get("version")
    except (ValueError, AttributeError) as error:
        raise CacheError(f"{where} is no export of a performance cache: {one_line(error)}") from None
    if found[0] != FORMAT:
        raise CacheError(
            f"{where} is no export of a performance cache: its format is {one_line(repr(found[0]))}, not {FORMAT!r}"
        )
    if found[1] not in READABLE_VERSIONS:
        readable = " and ".join(map(str, READABLE_VERSIONS))
        raise CacheError(f"{where} is an export of version {one_line(repr(found[1]))}; this gputune reads {readable}")
    entries = [_read(where, f"entries[{k}]", _entry, one) for k, one in enumerate(_list(where, content, "entries"))]
    chains = [_read(where, f"chains[{k}]", _chain, one) for k, one in enumerate(_list(where, content, "chains"))]
    return Contents(tuple(entries), dict(chains))


def _lines(values: Iterable[Any]) -> str:
    return ",".join(f"\n{json_text(value)}" for value in values)


def _entry_to_json(entry: Entry) -> dict[str, Any]:
    return {
        "task_digest": entry.task.digest,
        "task": entry.task.to_dict(),
        "validity_digest": entry.validity.digest,
        "validity": entry.validity.to_dict(),
        "trials": [vars(stored.trial) | {"stored_at": stored.stored_at} for stored in entry.trials],
        "winner": None
        if entry.conclusion is None
        else vars(entry.conclusion.winner) | {"stored_at": entry.conclusion.stored_at},
    }


def _chain_to_json(digest: str, chain: ChainRecord, stored_at: float) -> dict[str, Any]:
    winners = {task: vars(winner) for task, winner in chain.winners.items()}
    return {"digest": digest, **vars(chain), "winners": winners, "stored_at": stored_at}


def _list(where: str, content: Mapping[str, Any], name: str) -> list[Any]:
    found = content.get(name)
    if not isinstance(found, list):
        raise CacheError(f"{where}: {name!r} is not a list")
    return found


def _read(where: str, place: str, read: Any, value: Any) -> Any:
    """Return what `read` makes of a value; whatever is wrong with it becomes one line."""
    try:
        return read(numbers(value))
    except (RecordError, KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise CacheError(f"{where}: {place}: {one_line(why)}") from None


def _entry(fields: dict[str, Any]) -> Entry:
    task, validity = TaskKey(**fields["task"]), Validity(**fields["validity"])
    for name, key in (("task", task), ("validity", validity)):
        if fields[f"{name}_digest"] != key.digest:
            raise RecordError(f"{name}_digest does not match its key: it was changed, or another version wrote it")
    trials = []
    for one in fields["trials"]:
        stored_at = moment(one.pop("stored_at"), "stored_at")
        trials.append(Stored(TrialRecord(**one), stored_at))
    winner = fields["winner"]
    if winner is None:
        return Entry(task, validity, tuple(trials), None)
    stored_at = moment(winner.pop("stored_at"), "stored_at")
    return Entry(task, validity, tuple(trials), Conclusion(_winner(winner), stored_at))


def _winner(fields: dict[str, Any]) -> WinnerRecord:
    return WinnerRecord(**{name: value for name, value in fields.items() if name != BINARY})


def _chain(fields: dict[str, Any]) -> tuple[str, tuple[ChainRecord, float]]:
    names = {field.name for field in dataclasses.fields(ChainRecord)}
    values = {name: fields[name] for name in names} | {
        "winners": {task: _winner(winner) for task, winner in fields["winners"].items()}
    }
    digest = fields["digest"]
    if not isinstance(digest, str):
        raise RecordError(f"digest is {digest!r}, not text")
    return digest, (ChainRecord(**values), moment(fields["stored_at"], "stored_at"))

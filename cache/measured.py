"""What a performance cache remembers: trials and winners of tasks, and what was chosen inside whole models."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from gputune.cache.chain import CHAIN_COLUMNS, ChainRecord, chain_from_rows, chain_to_row
from gputune.cache.database import Database
from gputune.cache.entry import Conclusion, Entry, Stored
from gputune.cache.key import TaskKey, Validity
from gputune.cache.record import (
    TRIAL_COLUMNS,
    WINNER_COLUMNS,
    RecordError,
    TrialRecord,
    WinnerRecord,
    moment,
    trial_from_row,
    trial_to_row,
    winner_from_row,
    winner_to_row,
    without_binary,
)
from gputune.cache.schema import LAST_WITH_FOREIGN_BINARIES
from gputune.cache.summary import TaskSummary, gather, summary_from_rows
from gputune.cache.tier import tier_of
from gputune.core.json_text import canonical_json

_ANY_ORIGIN = "SELECT 1 FROM origin LIMIT 1"


class Measured(Database):
    """The records of a file; see PerformanceCache."""

    # What was measured.

    def store_trials(self, task: TaskKey, validity: Validity, trials: Iterable[TrialRecord]) -> None:
        """Add a batch, all or nothing; on return it is on the disk."""
        now = time.time()
        rows = [trial_to_row(trial) for trial in trials]
        with self._keeping("store trials"):
            owner = self._owner(task, validity)
            self._connection.executemany(
                f"INSERT INTO trial (task, validity, {', '.join(TRIAL_COLUMNS)}, stored_at)"
                f" VALUES (?, ?, {', '.join('?' * len(TRIAL_COLUMNS))}, ?)",
                [(*owner, *row, now) for row in rows],
            )

    def trials_of(self, task: TaskKey, validity: Validity) -> list[TrialRecord]:
        """All trials in order of arrival; malformed rows are skipped with a warning."""
        rows = self._rows(
            f"SELECT {_columns('trial', TRIAL_COLUMNS)} FROM trial {_owned('trial')} AND trial.stored_at >= ?"
            " ORDER BY trial.id",
            (task.digest, validity.digest, self.seen_since),
        )
        return self._checked("trials", trial_from_row, rows)

    def conclude(self, task: TaskKey, validity: Validity, winner: WinnerRecord) -> None:
        """Remember the outcome of tuning, in place of an earlier one (so also to add the binary later)."""
        row = winner_to_row(winner)
        with self._keeping("store a winner"):
            owner = self._owner(task, validity)
            self._connection.execute(
                f"INSERT OR REPLACE INTO winner (task, validity, {', '.join(WINNER_COLUMNS)}, stored_at)"
                f" VALUES (?, ?, {', '.join('?' * len(WINNER_COLUMNS))}, ?)",
                (*owner, *row, time.time()),
            )

    def winner_of(self, task: TaskKey, validity: Validity) -> WinnerRecord | None:
        """The outcome of tuning; None where there is none, or only a malformed one (with a warning).

        A binary that is not the one that was stored is left out with a warning: it has to be compiled again.
        """
        rows = self._rows(
            f"SELECT {_columns('winner', WINNER_COLUMNS)} FROM winner {_owned('winner')} AND winner.stored_at >= ?",
            (task.digest, validity.digest, self.seen_since),
        )
        winners = self._checked("winners", winner_from_row, rows)
        if not winners:
            return None
        (winner,), (row,) = winners, rows
        if row[WINNER_COLUMNS.index("binary")] and not winner.binary:
            self._warn(f"performance cache {self.path}: the binary of a {task.op} is damaged and not used")
        return without_binary(winner) if self._may_hold_foreign_binaries else winner

    def tasks(self) -> list[TaskSummary]:
        """A summary of every task and validity with a trial or a winner, by op, then by first arrival."""
        counts = self._rows(
            "SELECT task, validity, status, count(*), max(stored_at) FROM trial GROUP BY task, validity, status"
        )
        columns = _columns("winner", WINNER_COLUMNS).replace("winner.binary", "x''")
        rows = self._rows(f"SELECT task, validity, stored_at, {columns} FROM winner")
        winners = self._checked("winners", lambda row: (*row[:3], winner_from_row(row[3:])), rows)
        owners = self._rows(
            "SELECT task.id, validity.id, task.digest, task.key, validity.digest, validity.key,"
            " tier, family, vendor FROM task, validity ORDER BY task.op, task.id, validity.id"
        )
        return self._checked("tasks", summary_from_rows, gather(owners, counts, winners))

    def entry_of(self, task: TaskKey, validity: Validity) -> Entry:
        """All that is known of a task under one validity; malformed rows are left out with a warning."""
        owner = (task.digest, validity.digest)
        columns = _columns("trial", TRIAL_COLUMNS)
        rows = self._rows(f"SELECT trial.stored_at, {columns} FROM trial {_owned('trial')} ORDER BY trial.id", owner)
        trials = self._checked("trials", lambda row: Stored(trial_from_row(row[1:]), moment(row[0], "stored_at")), rows)
        columns = _columns("winner", WINNER_COLUMNS)
        rows = self._rows(f"SELECT winner.stored_at, {columns} FROM winner {_owned('winner')}", owner)
        winners = self._checked(
            "winners", lambda row: Conclusion(winner_from_row(row[1:]), moment(row[0], "stored_at")), rows
        )
        return Entry(task, validity, tuple(trials), winners[0] if winners else None)

    # What was chosen inside whole models.

    def conclude_chain(self, digest: str, chain: ChainRecord, stored_at: float | None = None) -> None:
        """Remember what was chosen in a chain, in place of an earlier choice; stored now unless told when."""
        row = chain_to_row(chain)
        with self._keeping("store what was chosen in a chain"):
            self._connection.execute("DELETE FROM chain_winner WHERE chain = ?", (digest,))
            self._connection.execute(
                f"INSERT OR REPLACE INTO chain (digest, {', '.join(CHAIN_COLUMNS)}, stored_at) VALUES (?, ?, ?, ?, ?)",
                (digest, *row, time.time() if stored_at is None else stored_at),
            )
            self._connection.executemany(
                f"INSERT INTO chain_winner (chain, task, {', '.join(WINNER_COLUMNS)})"
                f" VALUES (?, ?, {', '.join('?' * len(WINNER_COLUMNS))})",
                [(digest, task, *winner_to_row(winner)) for task, winner in chain.winners.items()],
            )

    def chain_of(self, digest: str) -> ChainRecord | None:
        """What was chosen in a chain; None where nothing was, or only something malformed (with a warning)."""
        rows = self._rows(
            f"SELECT {', '.join(CHAIN_COLUMNS)} FROM chain WHERE digest = ? AND stored_at >= ?",
            (digest, self.seen_since),
        )
        winners = self._rows(f"SELECT task, {', '.join(WINNER_COLUMNS)} FROM chain_winner WHERE chain = ?", (digest,))
        chains = self._checked("chains", lambda row: chain_from_rows(row, winners), rows)
        if chains and self._may_hold_foreign_binaries:
            own = {task: without_binary(winner) for task, winner in chains[0].winners.items()}
            return replace(chains[0], winners=own)
        return chains[0] if chains else None

    def contents_of_chains(self) -> dict[str, tuple[ChainRecord, float]]:
        """All that was chosen in chains by digest, and when it was stored; malformed ones are left out."""
        rows = self._rows("SELECT digest, stored_at FROM chain ORDER BY digest") if self._has("chain") else []
        known = {digest: (self.chain_of(digest), at) for digest, at in self._checked("chains", _chain_place, rows)}
        return {digest: (one, at) for digest, (one, at) in known.items() if one is not None}

    # Inside.

    @cached_property
    def _may_hold_foreign_binaries(self) -> bool:
        """Whether this is a file of an older version, opened for reading only, that has taken winners in."""
        version = int(self._rows("PRAGMA user_version")[0][0])
        return version <= LAST_WITH_FOREIGN_BINARIES and self._has("origin") and bool(self._rows(_ANY_ORIGIN))

    def _owner(self, task: TaskKey, validity: Validity) -> tuple[int, int]:
        """Row ids of the task and the validity, made on demand inside the caller's transaction."""
        tier = tier_of(validity.device_name, validity.compute_units, validity.vendor, validity.device_version)
        self._connection.execute(
            "INSERT OR IGNORE INTO task (digest, op, key) VALUES (?, ?, ?)",
            (task.digest, task.op, canonical_json(task.to_dict())),
        )
        self._connection.execute(
            "INSERT OR IGNORE INTO validity (digest, tier, family, vendor, key) VALUES (?, ?, ?, ?, ?)",
            (validity.digest, tier.name, tier.family, tier.vendor, canonical_json(validity.to_dict())),
        )
        ids = self._connection.execute(
            "SELECT task.id, validity.id FROM task, validity WHERE task.digest = ? AND validity.digest = ?",
            (task.digest, validity.digest),
        ).fetchone()
        return ids[0], ids[1]


def _chain_place(row: Sequence[Any]) -> tuple[str, float]:
    """A chain's digest and when it was stored. Raises RecordError."""
    digest, stored_at = row
    if not isinstance(digest, str):
        raise RecordError(f"digest is {digest!r}, not text")
    return digest, moment(stored_at, "stored_at")


def _columns(table: str, names: Iterable[str]) -> str:
    return ", ".join(f"{table}.{name}" for name in names)


def _owned(table: str) -> str:
    """Those rows of table that belong to the task digest and the validity digest given as values."""
    return (
        f"JOIN task ON task.id = {table}.task JOIN validity ON validity.id = {table}.validity"
        " WHERE task.digest = ? AND validity.digest = ?"
    )

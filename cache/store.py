"""Store performance caches: one SQLite file per device tier, which database.py opens.

A cache remembers trials and winners of tasks, choices for whole models, and programs. Generations begin and end in it,
and measurements move to other files.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputune.cache.key import TaskKey, Validity
from gputune.cache.lookup import TaskSummary, gather, summary_from_rows
from gputune.cache.programs import Programs
from gputune.cache.record import (
    CHAIN_COLUMNS,
    TRIAL_COLUMNS,
    WINNER_COLUMNS,
    ChainRecord,
    Conclusion,
    Conflict,
    Contents,
    Entry,
    Merged,
    Origin,
    RecordError,
    Stored,
    TrialRecord,
    WinnerRecord,
    chain_from_rows,
    chain_to_row,
    moment,
    origin_from_row,
    trial_from_row,
    trial_to_row,
    winner_from_row,
    winner_to_row,
)
from gputune.cache.schema import DATA_TABLES, ORPHANS
from gputune.core.json_text import canonical_json
from gputune.core.tier import tier_of


@dataclass(frozen=True)
class GenerationStart:
    """resumed: this generation had begun before and not finished; invalidated: the file was emptied now; begun_at: when
    it had begun at first, in seconds since 1970."""

    resumed: bool
    invalidated: bool
    begun_at: float = field(default=0.0, compare=False)


class PerformanceCache(Programs):
    """Read and write a performance cache file; use open or open_readonly, and close or a with statement."""

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
        """Return all trials in order of arrival; malformed rows are skipped with a warning."""
        rows = self._rows(
            f"SELECT {_columns('trial', TRIAL_COLUMNS)} FROM trial {_owned('trial')} AND trial.stored_at >= ?"
            " ORDER BY trial.id",
            (task.digest, validity.digest, self.seen_since),
        )
        return self._checked("trials", trial_from_row, rows)

    def conclude(self, task: TaskKey, validity: Validity, winner: WinnerRecord) -> None:
        """Remember the outcome of tuning, in place of an earlier one."""
        with self._keeping("store a winner"):
            self._store_winner(self._owner(task, validity), winner, time.time())

    def winner_of(self, task: TaskKey, validity: Validity) -> WinnerRecord | None:
        """Return the outcome of tuning; None where there is none, or only a malformed one (with a warning)."""
        rows = self._rows(
            f"SELECT {_columns('winner', WINNER_COLUMNS)} FROM winner {_owned('winner')} AND winner.stored_at >= ?",
            (task.digest, validity.digest, self.seen_since),
        )
        winners = self._checked("winners", winner_from_row, rows)
        return winners[0] if winners else None

    def tasks(self) -> list[TaskSummary]:
        """Return a summary of every task and validity with a trial or a winner, by op, then by first arrival."""
        counts = self._rows(
            "SELECT task, validity, status, count(*), max(stored_at) FROM trial GROUP BY task, validity, status"
        )
        rows = self._rows(f"SELECT task, validity, stored_at, {', '.join(WINNER_COLUMNS)} FROM winner")
        winners = self._checked("winners", lambda row: (*row[:3], winner_from_row(row[3:])), rows)
        owners = self._rows(
            "SELECT task.id, validity.id, task.digest, task.key, validity.digest, validity.key,"
            " tier, family, vendor FROM task, validity ORDER BY task.op, task.id, validity.id"
        )
        return self._checked("tasks", summary_from_rows, gather(owners, counts, winners))

    def entry_of(self, task: TaskKey, validity: Validity) -> Entry:
        """Return all that is known of a task under one validity; malformed rows are left out with a warning."""
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

    def conclude_chain(self, digest: str, chain: ChainRecord) -> None:
        """Remember what was chosen in a chain, in place of an earlier choice."""
        with self._keeping("store what was chosen in a chain"):
            self._store_chain(digest, chain, time.time())

    def chain_of(self, digest: str) -> ChainRecord | None:
        """Return what was chosen in a chain; None where nothing was, or only something malformed (with a warning)."""
        rows = self._rows(
            f"SELECT {', '.join(CHAIN_COLUMNS)} FROM chain WHERE digest = ? AND stored_at >= ?",
            (digest, self.seen_since),
        )
        winners = self._rows(f"SELECT task, {', '.join(WINNER_COLUMNS)} FROM chain_winner WHERE chain = ?", (digest,))
        chains = self._checked("chains", lambda row: chain_from_rows(row, winners), rows)
        return chains[0] if chains else None

    def contents_of_chains(self) -> dict[str, tuple[ChainRecord, float]]:
        """Return all that was chosen in chains by digest, and when it was stored; malformed ones are left out."""
        rows = self._rows("SELECT digest, stored_at FROM chain ORDER BY digest") if self._has("chain") else []
        known = {digest: (self.chain_of(digest), at) for digest, at in self._checked("chains", _chain_place, rows)}
        return {digest: (one, at) for digest, (one, at) in known.items() if one is not None}

    # Generations.

    def begin_generation(self, fingerprint: str, invalidate: bool) -> GenerationStart:
        """Mark the generation as begun; with invalidate, empty the file first unless it resumes one that did.

        Emptying and marking are one transaction, so no crash can come between: either nothing has happened
        yet, or the file is empty and the rerun knows it. The file is emptied and shrunk instead of unlinked,
        because a process that still had the old file open would go on writing into nowhere, or mix its log
        with the new file's.
        """
        with self._transaction("begin a generation"):
            mark = self._connection.execute(
                "SELECT invalidated, begun_at FROM generation WHERE fingerprint = ?", (fingerprint,)
            ).fetchone()
            begun_at = time.time() if mark is None else float(mark[1])
            had_invalidated = mark is not None and mark[0] == 1
            invalidates = invalidate and not had_invalidated
            if invalidates:
                for table in DATA_TABLES:
                    self._connection.execute(f"DELETE FROM {table}")
            self._connection.execute(
                "INSERT OR REPLACE INTO generation (fingerprint, invalidated, begun_at) VALUES (?, ?, ?)",
                (fingerprint, int(had_invalidated or invalidates), begun_at),
            )
        if invalidates:
            self._shrink()
        return GenerationStart(mark is not None, invalidates, begun_at)

    def finish_generation(self, fingerprint: str) -> None:
        """Remove the mark: the next generation of this fingerprint is a new one."""
        with self._keeping("finish a generation"):
            self._connection.execute("DELETE FROM generation WHERE fingerprint = ?", (fingerprint,))

    # What travels.

    def contents(self) -> Contents:
        """Return everything, to be taken in by another file or to be exported; malformed rows are left out with a
        warning."""
        entries = [self.entry_of(summary.task, summary.validity) for summary in self.tasks()]
        return Contents(tuple(entries), self.contents_of_chains())

    def take_in(self, contents: Contents, source: str) -> Merged:
        """Add what is not known yet, all or nothing. Of two winners of a task under one validity the one that rests on
        more stays; its trials keep the times at which they were stored, and `source` says where they came from."""
        merged = Merged()
        with self._transaction(f"take in {source}"):
            first = self._connection.execute("SELECT coalesce(max(id), 0) + 1 FROM trial").fetchone()[0]
            for entry in contents.entries:
                self._take_in(entry, merged)
            if merged.trials:
                self._connection.execute(
                    "INSERT INTO origin (first, last, source, stored_at) VALUES (?, ?, ?, ?)",
                    (first, first + merged.trials - 1, source, time.time()),
                )
            for digest, (chain, stored_at) in contents.chains.items():
                if not self._rows("SELECT 1 FROM chain WHERE digest = ?", (digest,)):
                    self._store_chain(digest, chain, stored_at)
                    merged.chains += 1
        return merged

    def origins(self) -> list[Origin]:
        """Return where trials came from that were not measured into this file, in the order in which they were taken
        in."""
        if not self._has("origin"):
            return []
        rows = self._rows(
            "SELECT source, (SELECT count(*) FROM trial WHERE id BETWEEN first AND last), stored_at FROM origin"
            " ORDER BY first"
        )
        return self._checked("origins", origin_from_row, rows)

    def _take_in(self, entry: Entry, merged: Merged) -> None:
        """Inside the caller's transaction."""
        owner = self._owner(entry.task, entry.validity)
        for stored in entry.trials:
            row = (*owner, *trial_to_row(stored.trial), stored.stored_at)
            same = " AND ".join(f"{name} IS ?" for name in ("task", "validity", *TRIAL_COLUMNS, "stored_at"))
            found = self._connection.execute(
                f"INSERT INTO trial (task, validity, {', '.join(TRIAL_COLUMNS)}, stored_at)"
                f" SELECT {', '.join('?' * len(row))} WHERE NOT EXISTS (SELECT 1 FROM trial WHERE {same})",
                (*row, *row),
            )
            merged.trials += found.rowcount
            merged.known += 1 - found.rowcount
        if entry.conclusion is None:
            return
        mine = self.entry_of(entry.task, entry.validity).conclusion
        kept, dropped = entry.conclusion, mine
        if mine is not None and mine.foundation >= entry.conclusion.foundation:
            kept, dropped = mine, entry.conclusion
        if dropped is not None and dropped.winner.configuration != kept.winner.configuration:
            merged.conflicts.append(Conflict(entry.task, entry.validity, kept.winner, dropped.winner))
        if kept is not mine:
            merged.winners += 1
            self._store_winner(owner, kept.winner, kept.stored_at)

    # Upkeep.

    def forget(self, summaries: Iterable[TaskSummary]) -> int:
        """Remove tasks under their validities, with their trials and winners, and give the space back; returns the
        number of trials.
        """
        removed = 0
        with self._transaction("remove old measurements"):
            for summary in summaries:
                owner = (summary.task.digest, summary.validity.digest)
                for table in ("trial", "winner"):
                    found = self._connection.execute(
                        f"DELETE FROM {table} WHERE task = (SELECT id FROM task WHERE digest = ?)"
                        " AND validity = (SELECT id FROM validity WHERE digest = ?)",
                        owner,
                    )
                    removed += found.rowcount if table == "trial" else 0
            for statement in ORPHANS:
                self._connection.execute(statement)
        self._shrink()
        return removed

    def problems(self) -> list[str]:
        """Return what is wrong with the file: damaged pages, and rows that cannot be read."""
        known = len(self.warnings)
        found = [row[0] for row in self._rows("PRAGMA integrity_check(20)") if row[0] != "ok"]
        for summary in self.tasks():
            self.entry_of(summary.task, summary.validity)
            self.winner_of(summary.task, summary.validity)
        self.contents_of_chains()
        self.origins()
        return found + self.warnings[known:]

    # Inside.

    def _store_winner(self, owner: tuple[int, int], winner: WinnerRecord, stored_at: float) -> None:
        """Inside the caller's transaction."""
        self._connection.execute(
            f"INSERT OR REPLACE INTO winner (task, validity, {', '.join(WINNER_COLUMNS)}, stored_at)"
            f" VALUES (?, ?, {', '.join('?' * len(WINNER_COLUMNS))}, ?)",
            (*owner, *winner_to_row(winner), stored_at),
        )

    def _store_chain(self, digest: str, chain: ChainRecord, stored_at: float) -> None:
        """Inside the caller's transaction."""
        self._connection.execute("DELETE FROM chain_winner WHERE chain = ?", (digest,))
        self._connection.execute(
            f"INSERT OR REPLACE INTO chain (digest, {', '.join(CHAIN_COLUMNS)}, stored_at) VALUES (?, ?, ?, ?, ?)",
            (digest, *chain_to_row(chain), stored_at),
        )
        self._connection.executemany(
            f"INSERT INTO chain_winner (chain, task, {', '.join(WINNER_COLUMNS)})"
            f" VALUES (?, ?, {', '.join('?' * len(WINNER_COLUMNS))})",
            [(digest, task, *winner_to_row(winner)) for task, winner in chain.winners.items()],
        )

    def _owner(self, task: TaskKey, validity: Validity) -> tuple[int, int]:
        """Return row ids of the task and the validity, made on demand inside the caller's transaction."""
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
    """Return a chain's digest and when it was stored. Raises RecordError."""
    digest, stored_at = row
    if not isinstance(digest, str):
        raise RecordError(f"digest is {digest!r}, not text")
    return digest, moment(stored_at, "stored_at")


def _columns(table: str, names: Iterable[str]) -> str:
    return ", ".join(f"{table}.{name}" for name in names)


def _owned(table: str) -> str:
    """Return those rows of table that belong to the task digest and the validity digest given as values."""
    return (
        f"JOIN task ON task.id = {table}.task JOIN validity ON validity.id = {table}.validity"
        " WHERE task.digest = ? AND validity.digest = ?"
    )

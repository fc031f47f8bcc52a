"""The performance cache: one SQLite file per device tier. database.py opens it, measured.py has its records; here is
what is done with all of them: generations begin and end, measurements come and go."""

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gputune.cache.entry import Conflict, Contents, Entry, Merged, Origin, origin_from_row
from gputune.cache.measured import Measured
from gputune.cache.record import TRIAL_COLUMNS, WINNER_COLUMNS, trial_to_row, winner_to_row, without_binary
from gputune.cache.schema import DATA_TABLES, ORPHANS
from gputune.cache.summary import TaskSummary

MOST_PROGRAM_BYTES = 256 << 20
"""What the kernel repository of a file may hold."""


@dataclass(frozen=True)
class GenerationStart:
    """resumed: this generation had begun before and not finished; invalidated: the file was emptied now; begun_at: when
    it had begun at first, in seconds since 1970."""

    resumed: bool
    invalidated: bool
    begun_at: float = field(default=0.0, compare=False)


class PerformanceCache(Measured):
    """A performance cache file; use open or open_readonly, and close or a with statement."""

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
        """Everything, to be taken in by another file or to be exported; malformed rows are left out with a warning."""
        entries = [self.entry_of(summary.task, summary.validity) for summary in self.tasks()]
        return Contents(tuple(entries), self.contents_of_chains())

    def take_in(self, contents: Contents, source: str) -> Merged:
        """Add what is not known yet, all or nothing. Of two winners of a task under one validity the one that rests on
        more stays; its trials keep the times at which they were stored, and `source` says where they came from.

        Program binaries are not taken in: they are native code that nothing here has verified. Those of winners that
        stay are compiled when they are needed, from what today's kernels render."""
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
                winners = {task: without_binary(winner) for task, winner in chain.winners.items()}
                self.conclude_chain(digest, replace(chain, winners=winners), stored_at)
                merged.chains += 1
        return merged

    def origins(self) -> list[Origin]:
        """Where trials came from that were not measured into this file, in the order in which they were taken in."""
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
            self._connection.execute(
                f"INSERT OR REPLACE INTO winner (task, validity, {', '.join(WINNER_COLUMNS)}, stored_at)"
                f" VALUES (?, ?, {', '.join('?' * len(WINNER_COLUMNS))}, ?)",
                (*owner, *winner_to_row(without_binary(kept.winner)), kept.stored_at),
            )

    # The kernel repository.

    def program_of(self, digest: str) -> bytes | None:
        """The binary of a program, which counts as used now; None where it is not there, or is damaged."""
        rows = self._rows("SELECT binary, binary_sha256 FROM program WHERE digest = ?", (digest,))
        if not rows:
            return None
        binary, sha256 = rows[0]
        if not isinstance(binary, bytes) or hashlib.sha256(binary).hexdigest() != sha256:
            self._warn(f"performance cache {self.path}: a program of the kernel repository is damaged and not used")
            return None
        with self._keeping("note the use of a program"):
            self._connection.execute("UPDATE program SET used_at = ? WHERE digest = ?", (time.time(), digest))
        return binary

    def keep_program(self, digest: str, binary: bytes, most_bytes: int = MOST_PROGRAM_BYTES) -> None:
        """Keep a program; those not used for longest make room for it."""
        with self._keeping("store a program"):
            self._connection.execute(
                "INSERT OR REPLACE INTO program (digest, binary, binary_sha256, used_at) VALUES (?, ?, ?, ?)",
                (digest, binary, hashlib.sha256(binary).hexdigest(), time.time()),
            )
            self._connection.execute(
                "DELETE FROM program WHERE digest IN (SELECT digest FROM (SELECT digest,"
                " sum(length(binary)) OVER (ORDER BY used_at DESC, digest) AS total FROM program) WHERE total > ?)",
                (most_bytes,),
            )

    def forget_programs(self) -> None:
        """Empty the kernel repository."""
        with self._transaction("empty the kernel repository"):
            self._connection.execute("DELETE FROM program")

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
        """What is wrong with the file: damaged pages, rows that cannot be read, binaries that have changed."""
        known = len(self.warnings)
        found = [row[0] for row in self._rows("PRAGMA integrity_check(20)") if row[0] != "ok"]
        for summary in self.tasks():
            self.entry_of(summary.task, summary.validity)
            self.winner_of(summary.task, summary.validity)
        self.contents_of_chains()
        self.origins()
        return found + self.warnings[known:]

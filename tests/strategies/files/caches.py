"""Change performance caches and exports, and use them.

A third of the cases each are files whose bytes have changed or that lie beside odd companions, files with odd values in
cells or odd schemas, and exports with odd values. Each is read, written, travels, and is given to commands of
`gputune performance-cache`; what goes wrong must be a CacheError of one printable line, or a warning, within 4 GiB of
address space. No program may come back but the one that was kept, and none from another cache.
"""

import contextlib
import functools
import io
import json
import random
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from gputune.cache import CacheError, ChainRecord, PerformanceCache, TaskKey, TrialRecord, Validity, WinnerRecord
from gputune.cache.exchange import from_json, to_json
from gputune.client.cli.main import cli
from gputune.client.errors import GputuneError
from gputune.client.tuning.search.seeding import Seeding
from gputune.kernels.space import TuningSpace
from tests.strategies.changes import NUMBERS, ODD_VALUES, Broken, check_line, mutated_bytes, mutated_value

TASK = TaskKey(op="Conv", problem={"n": 1, "chain": {"steps": [["clip", [0.0, 6.0]]]}}, layout="NHWC")
VALIDITY = Validity("pthread-a", "Portable Computing Language", "3.1", 2, "a" * 64, "b" * 64, 1, device_type="cpu")
WINNER = WinnerRecord({"N": 8}, 1000.5, 4000.0, "quick", {"ok": 2, "timeout": 1}, "c" * 64)
CHAIN = ChainRecord({TASK.digest: WINNER}, {TASK.digest: 12.5}, 3.0, {"gain": 1.1, "places": []})
SECRET = b"s" * 32
PROGRAMS = {"a" * 64: b"\x7fELF of a program", "b" * 64: b"\x7fELF of another"}
ANY_SPACE = TuningSpace((), ())
CHAIN_DIGEST = "f" * 64
CELLS = (
    *NUMBERS,
    *ODD_VALUES[:8],
    b"",
    b"\xff\xfe",
    b"\x00" * 9,
    "[" * 3000,
    '{"a": NaN}',
    '{"a": 1e999}',
    '{"\\ud800": 1}',
)
STATEMENTS = (
    "PRAGMA user_version = 4", "PRAGMA user_version = 2", "PRAGMA user_version = -1", "PRAGMA application_id = 7",
    "CREATE TABLE more (x)", "DROP TABLE origin", "DROP TABLE trial", "DROP INDEX trial_of",
    "CREATE TRIGGER t AFTER INSERT ON trial BEGIN DELETE FROM winner; END",
    "CREATE VIEW v AS SELECT * FROM trial", "ALTER TABLE winner ADD COLUMN x", "DELETE FROM task",
    "DELETE FROM validity",
    "UPDATE program SET digest = 'x' WHERE digest LIKE 'a%'",
    "UPDATE OR REPLACE program SET digest = replace(digest, 'a', 'b')",
    "UPDATE sqlite_sequence SET seq = -1", "PRAGMA journal_mode = DELETE", "PRAGMA writable_schema = ON",
)  # fmt: skip


def examine(chance: random.Random, folder: Path) -> str:
    """Return how one changed cache or export ends. Raises Broken, and whatever else is raised that must not be."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "cache.sqlite"
        kind = chance.randrange(3)
        if kind == 2:
            return check_export(chance, path)
        path.write_bytes(original())
        if kind == 0:
            change_bytes(chance, path)
        else:
            change_contents(chance, path)
        return check_file(chance, path)


def change_bytes(chance: random.Random, path: Path) -> None:
    """Change the file, or put an odd companion beside it."""
    if chance.random() < 0.2:
        suffix = chance.choice(("-wal", "-shm", "-journal", "-suspect"))
        Path(f"{path}{suffix}").write_bytes(mutated_bytes(original()[: chance.choice((0, 32, 4096))], chance))
    else:
        path.write_bytes(mutated_bytes(original(), chance))


def change_contents(chance: random.Random, path: Path) -> None:
    """Put odd values into cells, or change the schema."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        for _ in range(chance.choice((1, 1, 2, 4))):
            with contextlib.suppress(sqlite3.Error):  # what SQLite itself refuses
                if chance.random() < 0.2:
                    file.execute(chance.choice(STATEMENTS))
                    continue
                table = chance.choice(
                    ("task", "validity", "trial", "winner", "chain", "chain_winner", "origin", "program")
                )
                names = [row[1] for row in file.execute(f"PRAGMA table_info({table})")] or ["x"]  # it may be gone
                value = chance.choice(CELLS)
                value = json.dumps(value) if isinstance(value, dict | list) else value
                cast = "CAST(? AS TEXT)" if isinstance(value, bytes) and chance.random() < 0.5 else "?"
                file.execute(f"UPDATE {table} SET {chance.choice(names)} = {cast}", (value,))


def check_file(chance: random.Random, path: Path) -> str:
    """Read and write a changed file, and give it to commands."""
    ended: list[str] = []
    with refusals(ended), PerformanceCache.open_readonly(path, secret=SECRET) as cache:
        use(cache)
        cache.makers()
        cache.problems()
        from_json(to_json(cache.contents(), "1", "now"), "there")
        list(Seeding(cache).seeds_for(TASK, VALIDITY, ANY_SPACE, {}).configurations)
    command(chance, path)
    with refusals(ended), PerformanceCache.open(path, secret=SECRET) as cache:
        use(cache)
        cache.begin_generation("g", invalidate=chance.random() < 0.1)
        cache.store_trials(TASK, VALIDITY, [TrialRecord({"N": 1}, "ok", [1.0])])
        cache.take_in(cache.contents(), "itself")
        cache.keep_program(*next(iter(PROGRAMS.items())))
        cache.finish_generation("g")
        for warning in cache.warnings:
            check_line(CacheError(warning))
    with refusals(ended), PerformanceCache.open(path.with_name("other.sqlite"), secret=SECRET) as other:
        with PerformanceCache.open_readonly(path) as cache:
            other.take_in(cache.contents(), str(path))
        use(other)
        if other.makers():
            raise Broken("a program was taken from another cache")
    return ended[0] if ended else "used"


def check_export(chance: random.Random, path: Path) -> str:
    """Take a changed export in."""
    text = exported()
    if chance.random() < 0.7:
        text = json.dumps(mutated_value(json.loads(text), chance))
    else:
        text = mutated_bytes(text.encode(), chance).decode(errors="replace")
    ended: list[str] = []
    with refusals(ended), PerformanceCache.open(path) as cache:
        cache.take_in(from_json(text, "export.json"), "export.json")
        use(cache)
        if problems := cache.problems():
            raise Broken(f"what was taken in is no sound cache: {problems[0]}")
    file = path.with_name("export.json")
    file.write_text(text, encoding="utf-8", errors="replace")
    call("import", file, "--performance_cache_dir", path.parent / "taken")
    return ended[0] if ended else "taken in"


def use(cache: PerformanceCache) -> None:
    """Ask for everything. Raises Broken for a program that is not the one that was kept under its digest."""
    cache.winner_of(TASK, VALIDITY)
    cache.chain_of(CHAIN_DIGEST)
    cache.trials_of(TASK, VALIDITY)
    for digest, kept in PROGRAMS.items():
        if (found := cache.program_of(digest)) not in (None, kept):
            raise Broken(f"a program came back that was not kept so: {found!r:.40}")
    cache.tasks()
    cache.contents()
    cache.origins()


def command(chance: random.Random, path: Path) -> None:
    """Run one of the commands on a file."""
    json_option = ("--json",) if chance.random() < 0.5 else ()
    call(*chance.choice((
        ("list", "--performance_cache_dir", path.parent, *json_option), ("show", path, *json_option),
        ("show", path, "--task", TASK.digest[:8], *json_option), ("stats", path, *json_option),
        ("verify", path, *json_option), ("export", path, "--output", path.with_name("e.json")),
        ("export", path, "--output", path.with_name("t4"), "--format", "t4"),
        ("merge", path, "--into", path.with_name("m.sqlite"), *json_option), ("diff", path, path, *json_option),
        ("prune", path, "--most_size", "1K"), ("prune", path, "--older_than", "0", "--dry_run"),
    )))  # fmt: skip


def call(*words: object) -> None:
    """Runs a command of `gputune performance-cache`. Raises what is not one line for users."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        try:
            cli.main(["performance-cache", *map(str, words)], standalone_mode=False)
        except (CacheError, GputuneError, click.ClickException) as error:
            check_line(error)
            return
        if "--json" in words:
            json.loads(out.getvalue(), parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise Broken(f"{name} is not JSON")


@contextlib.contextmanager
def refusals(ended: list[str]) -> Iterator[None]:
    """Note a refusal, which must be one line."""
    try:
        yield
    except CacheError as error:
        ended.append(check_line(error))


@functools.cache
def original() -> bytes:
    """Return the file of a small cache."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cache.sqlite"
        with PerformanceCache.open(path, secret=SECRET) as cache:
            trials = [TrialRecord({"N": number}, "ok", [1000.0 + number, 900.0], compile_ns=2e8) for number in range(8)]
            failed = TrialRecord({"N": 64}, "device_limits", message="local memory: asked 65536, available 32768")
            cache.store_trials(TASK, VALIDITY, [*trials, failed])
            cache.conclude(TASK, VALIDITY, WINNER)
            cache.conclude_chain(CHAIN_DIGEST, CHAIN)
            for digest, program in PROGRAMS.items():
                cache.keep_program(digest, program)
        return path.read_bytes()


@functools.cache
def exported() -> str:
    """Return an export of the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cache.sqlite"
        path.write_bytes(original())
        with PerformanceCache.open_readonly(path) as cache:
            return to_json(cache.contents(), "1", "now")

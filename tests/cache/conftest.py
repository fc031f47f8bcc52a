"""Provide keys and records for the cache tests."""

import contextlib
import hashlib
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gputune.cache import TaskKey, TrialRecord, Validity, WinnerRecord
from gputune.cache.schema import APPLICATION_ID, SCHEMAS

TASK = TaskKey(
    op="Conv",
    problem={"batch": 1, "height": 56, "bias": True, "epilogue": {"steps": [["clip", [0.0, 6.0]]]}},
    dtype="float32",
    layout="NHWC",
)
VALIDITY = Validity(
    device_name="pthread-skylake-avx512-AMD EPYC",
    platform="Portable Computing Language",
    driver_version="3.1",
    compute_units=2,
    source_sha256="a" * 64,
    space_sha256="b" * 64,
    measuring_version=1,
    vendor="AuthenticAMD",
    platform_version="OpenCL 3.0 PoCL 3.1, LLVM 15",
    device_version="OpenCL 3.0 PoCL HSTR",
    device_type="cpu",
    settings={"POCL_AFFINITY": "1"},
)
WINNER = WinnerRecord(
    configuration={"MWG": 8, "VWN": 16},
    median_ns=1000.5,
    default_ns=4000.0,
    effort="quick",
    trials={"ok": 2, "timeout": 1},
    rendered_sha256="c" * 64,
)


def run(*words: object) -> Result:
    """Call `gputune performance-cache` with these words."""
    from gputune.client.cli.cache.performance_cache import command  # the processes of test_processes.py need none

    return CliRunner().invoke(command, [str(word) for word in words])


def edit(path: Path, *statements: str) -> None:
    """Change a cache behind its back."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def trial(number: int) -> TrialRecord:
    return TrialRecord(
        configuration={"MWG": number},
        status="ok",
        samples_ns=[1000.0 + number, 900.0, 1200.0],
        compile_ns=2e8,
        measured={"samples": 3, "sample_ns": 1e6, "rounds": [1, 2]},
        rendered_sha256="0123456789abcdef" * 4,
    )


FAILED = TrialRecord(
    configuration={"MWG": 64}, status="device_limits", message="local memory: asked 65536, available 32768"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "caches" / "tier.sqlite"


def as_version(path: Path, version: int) -> None:
    """Make of a cache what an older gputune would have written: its tables, with binaries where they had any."""
    older = path.with_name("older")
    with contextlib.closing(sqlite3.connect(older, isolation_level=None)) as file:
        file.executescript(f"{SCHEMAS[version]} ATTACH '{path}' AS today;")
        for (table,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns, todays = (
                [row[1] for row in file.execute(f"SELECT * FROM pragma_table_info('{table}', '{schema}')")]
                for schema in ("main", "today")
            )
            values = [name if name in todays else f"CAST('{BINARY.get(name)}' AS BLOB)" for name in columns]
            file.execute(f"INSERT INTO {table} SELECT {', '.join(values)} FROM today.{table}")
        file.executescript(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {version};")
    older.replace(path)


BINARY = {"binary": "ELF", "binary_sha256": hashlib.sha256(b"ELF").hexdigest()}

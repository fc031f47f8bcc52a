"""The tables of a performance cache file. Raise SCHEMA_VERSION with any change."""

import hashlib

APPLICATION_ID = 0x67707463  # "gptc": tells our files from other programs' databases
SCHEMA_VERSION = 5
LAST_WITH_FOREIGN_BINARIES = 4
"""Up to this version, winners kept the program binaries of the files and exports that they were taken in from."""

_MEASURED = """
-- What is computed: one row per TaskKey.
CREATE TABLE task (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    op TEXT NOT NULL,
    key TEXT NOT NULL               -- JSON of all TaskKey fields
);
-- Where and how it was measured: one row per Validity, with the tier that follows from it.
CREATE TABLE validity (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    tier TEXT NOT NULL,
    family TEXT NOT NULL,
    vendor TEXT NOT NULL,
    key TEXT NOT NULL               -- JSON of all Validity fields
);
-- Every measurement, failures included, in order of arrival; a configuration may be measured again.
CREATE TABLE trial (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL REFERENCES task (id),
    validity INTEGER NOT NULL REFERENCES validity (id),
    configuration TEXT NOT NULL,    -- JSON object
    status TEXT NOT NULL,
    samples_ns BLOB NOT NULL,       -- little-endian 64-bit floats
    median_ns REAL,
    minimum_ns REAL,
    spread REAL,
    compile_ns REAL,
    message TEXT NOT NULL,
    measured TEXT NOT NULL,         -- JSON object
    rendered_sha256 TEXT NOT NULL,  -- of the launches that were measured, empty where nobody said
    stored_at REAL NOT NULL         -- seconds since 1970, UTC
);
CREATE INDEX trial_of ON trial (task, validity, status, stored_at);
-- The outcome of tuning a task.
CREATE TABLE winner (
    task INTEGER NOT NULL REFERENCES task (id),
    validity INTEGER NOT NULL REFERENCES validity (id),
    configuration TEXT NOT NULL,    -- JSON object
    median_ns REAL NOT NULL,
    default_ns REAL,
    effort TEXT NOT NULL,
    binary BLOB NOT NULL,           -- the program binary, empty until known
    binary_sha256 TEXT NOT NULL,
    trials TEXT NOT NULL,           -- JSON object: status -> count
    rendered_sha256 TEXT NOT NULL,
    stored_at REAL NOT NULL,
    PRIMARY KEY (task, validity)
);
-- Generations that have begun and not finished.
CREATE TABLE generation (
    fingerprint TEXT PRIMARY KEY,
    invalidated INTEGER NOT NULL,   -- 1: it has emptied this file, so its rerun must not
    begun_at REAL NOT NULL
);
"""

_CHAINS = """
-- What was chosen inside a whole model: one row per digest of its operations and of the winners of its tasks.
CREATE TABLE chain (
    digest TEXT PRIMARY KEY,
    times_ns TEXT NOT NULL,         -- JSON object: task digest -> time in the chain
    launch_ns REAL NOT NULL,
    measured TEXT NOT NULL,         -- JSON object
    stored_at REAL NOT NULL
);
-- What takes a task's winner's place in a chain; columns as in winner.
CREATE TABLE chain_winner (
    chain TEXT NOT NULL REFERENCES chain (digest),
    task TEXT NOT NULL,             -- digest
    configuration TEXT NOT NULL,
    median_ns REAL NOT NULL,
    default_ns REAL,
    effort TEXT NOT NULL,
    binary BLOB NOT NULL,
    binary_sha256 TEXT NOT NULL,
    trials TEXT NOT NULL,
    rendered_sha256 TEXT NOT NULL,
    PRIMARY KEY (chain, task)
);
"""

_TRAVEL = """
-- Trials that were measured elsewhere: whose numbers are between first and last came from a file or an export.
CREATE TABLE origin (
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    source TEXT NOT NULL,
    stored_at REAL NOT NULL
);
-- The kernel repository: compiled programs of whatever configuration; those not used for longest go first.
CREATE TABLE program (
    digest TEXT PRIMARY KEY,        -- of what is compiled, for which launches, and by which compiler
    binary BLOB NOT NULL,
    binary_sha256 TEXT NOT NULL,
    used_at REAL NOT NULL           -- seconds since 1970, UTC
);
"""

SCHEMAS = {
    2: _MEASURED,
    3: _MEASURED + _CHAINS,
    4: _MEASURED + _CHAINS + _TRAVEL,
    SCHEMA_VERSION: _MEASURED + _CHAINS + _TRAVEL,
}
"""What files hold by version. Those of an older one here get what they lack when they are opened for writing."""

_NO_FOREIGN_BINARIES = "".join(
    f"UPDATE {table} SET binary = x'', binary_sha256 = '{hashlib.sha256().hexdigest()}'"
    " WHERE EXISTS (SELECT 1 FROM origin);\n"
    for table in ("winner", "chain_winner")
)
"""Empties the binaries of a file that has taken winners in: which of them are its own, version 4 did not note."""

DATA_TABLES = ("origin", "chain_winner", "chain", "winner", "trial", "validity", "task")
"""What invalidating empties, in an order that keeps references whole."""


ORPHANS = (
    "DELETE FROM task WHERE id NOT IN (SELECT task FROM trial UNION SELECT task FROM winner)",
    "DELETE FROM validity WHERE id NOT IN (SELECT validity FROM trial UNION SELECT validity FROM winner)",
    "DELETE FROM chain_winner WHERE task NOT IN (SELECT digest FROM task)",
    "DELETE FROM origin WHERE NOT EXISTS (SELECT 1 FROM trial WHERE trial.id BETWEEN first AND last)",
)
"""What removes rows that nothing refers to any more, in an order that keeps references whole."""


def upgrade(version: int) -> str:
    """The statements that make a file of a version of SCHEMAS, or a new one (0), one of today."""
    return SCHEMAS[SCHEMA_VERSION].removeprefix(SCHEMAS.get(version, "")) + _NO_FOREIGN_BINARIES

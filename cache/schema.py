"""Define the tables of a performance cache file. Raise SCHEMA_VERSION with any change."""

APPLICATION_ID = 0x67707463  # "gptc": tells our files from other programs' databases
SCHEMA_VERSION = 6
FIRST_WITH_MACS = 6
"""Before this version, winners had program binaries of their own, and no program had a MAC."""

_TRIAL = """
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
"""

_WINNER = """
-- The outcome of tuning a task.
CREATE TABLE winner (
    task INTEGER NOT NULL REFERENCES task (id),
    validity INTEGER NOT NULL REFERENCES validity (id),
    configuration TEXT NOT NULL,    -- JSON object
    median_ns REAL NOT NULL,
    default_ns REAL,
    effort TEXT NOT NULL,
    trials TEXT NOT NULL,           -- JSON object: status -> count
    rendered_sha256 TEXT NOT NULL,
    stored_at REAL NOT NULL,
    PRIMARY KEY (task, validity)
);
"""

_GENERATION = """
-- Generations that have begun and not finished.
CREATE TABLE generation (
    fingerprint TEXT PRIMARY KEY,
    invalidated INTEGER NOT NULL,   -- 1: it has emptied this file, so its rerun must not
    begun_at REAL NOT NULL
);
"""

_CHAIN = """
-- What was chosen inside a whole model: one row per digest of its operations and of the winners of its tasks.
CREATE TABLE chain (
    digest TEXT PRIMARY KEY,
    times_ns TEXT NOT NULL,         -- JSON object: task digest -> time in the chain
    launch_ns REAL NOT NULL,
    measured TEXT NOT NULL,         -- JSON object
    stored_at REAL NOT NULL
);
"""

_CHAIN_WINNER = """
-- What takes a task's winner's place in a chain; columns as in winner.
CREATE TABLE chain_winner (
    chain TEXT NOT NULL REFERENCES chain (digest),
    task TEXT NOT NULL,             -- digest
    configuration TEXT NOT NULL,
    median_ns REAL NOT NULL,
    default_ns REAL,
    effort TEXT NOT NULL,
    trials TEXT NOT NULL,
    rendered_sha256 TEXT NOT NULL,
    PRIMARY KEY (chain, task)
);
"""

_ORIGIN = """
-- Trials that were measured elsewhere: whose numbers are between first and last came from a file or an export.
CREATE TABLE origin (
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    source TEXT NOT NULL,
    stored_at REAL NOT NULL
);
"""

_PROGRAM = """
-- The kernel repository: compiled programs of whatever configuration; those not used for longest go first.
CREATE TABLE program (
    digest TEXT PRIMARY KEY,        -- of what is compiled, for which launches, and by which compiler
    binary BLOB NOT NULL,
    binary_sha256 TEXT NOT NULL,
    mac BLOB NOT NULL,              -- of the row, under the secret of the installation that has compiled it
    used_at REAL NOT NULL           -- seconds since 1970, UTC
);
"""

_MAC = "    mac BLOB NOT NULL,              -- of the row, under the secret of the installation that has compiled it\n"
_SHARED = "configuration, median_ns, default_ns, effort, trials, rendered_sha256"
"""Columns that winner and chain_winner have had in all versions."""


def _with_binaries(table: str) -> str:
    """Return the table of winners as it was before FIRST_WITH_MACS."""
    effort = "    effort TEXT NOT NULL,\n"
    note = "           -- the program binary, empty until known" if "stored_at" in table else ""
    return table.replace(effort, f"{effort}    binary BLOB NOT NULL,{note}\n    binary_sha256 TEXT NOT NULL,\n")


_BEFORE_MACS = (
    _TRIAL + _with_binaries(_WINNER) + _GENERATION,
    _CHAIN + _with_binaries(_CHAIN_WINNER),
    _ORIGIN + _PROGRAM.replace(_MAC, ""),
)
"""Columns that versions 2, 3 and 4 have added; 5 has changed rows only."""

SCHEMAS = {
    2: _BEFORE_MACS[0],
    3: "".join(_BEFORE_MACS[:2]),
    4: "".join(_BEFORE_MACS),
    5: "".join(_BEFORE_MACS),
    SCHEMA_VERSION: _TRIAL + _WINNER + _GENERATION + _CHAIN + _CHAIN_WINNER + _ORIGIN + _PROGRAM,
}
"""Tables of files by version. Files of an older version are brought up to date when they are opened for writing."""

_WITHOUT_BINARIES = "".join(
    f"ALTER TABLE {table} RENAME TO before; {made}"
    f"INSERT INTO {table} SELECT {columns} FROM before; DROP TABLE before;\n"
    for table, made, columns in (
        ("winner", _WINNER, "task, validity, " + _SHARED + ", stored_at"),
        ("chain_winner", _CHAIN_WINNER, "chain, task, " + _SHARED),
    )
)
"""Takes the program binaries off winners; compiled programs have no MAC before FIRST_WITH_MACS, so they go, too."""

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
    """Return the statements that make a file of a version of SCHEMAS, or a new one (0), one of today. What was measured
    stays."""
    if version == 0:
        return SCHEMAS[SCHEMA_VERSION]
    missing = SCHEMAS[FIRST_WITH_MACS - 1].removeprefix(SCHEMAS[version])
    return f"{missing} {_WITHOUT_BINARIES} DROP TABLE program; {_PROGRAM}"

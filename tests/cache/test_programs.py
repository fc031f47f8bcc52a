"""Test that only compiled programs of this installation are used."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import PerformanceCache
from gputune.cache.programs import compiler_of, program_digest
from gputune.core.launches import Launch, Stage
from gputune.runtime.devices.discovery import NULL_REPORT

from .conftest import as_version, edit, run

MINE, OTHERS = b"m" * 32, b"o" * 32


def program(number: int) -> tuple[str, bytes]:
    return f"{number:064x}", bytes([number]) * 1000


@pytest.fixture
def kept(path: Path) -> Path:
    """A file with two programs that were compiled under MINE."""
    with PerformanceCache.open(path, secret=MINE) as cache:
        for number in (1, 2):
            cache.keep_program(*program(number))
    return path


def found(path: Path, secret: bytes | None) -> list[bytes | None]:
    with PerformanceCache.open_readonly(path, secret=secret) as cache:
        return [cache.program_of(program(number)[0]) for number in (1, 2)]


def test_only_the_installation_that_has_compiled_programs_uses_them(kept: Path) -> None:
    assert found(kept, MINE) == [program(1)[1], program(2)[1]]
    assert found(kept, OTHERS) == found(kept, None) == [None, None]
    with PerformanceCache.open(kept, secret=OTHERS) as cache:
        assert cache.program_of(program(1)[0]) is None
        assert cache.foreign == {program(1)[0]}
        cache.keep_program(*program(1))
        assert cache.program_of(program(1)[0]) == program(1)[1]
        assert cache.makers() == {"own": 1, "foreign": 1}
        assert cache.warnings == []
    assert found(kept, MINE) == [None, program(2)[1]]


def test_without_a_secret_all_are_of_others(kept: Path) -> None:
    with PerformanceCache.open(kept) as cache:
        assert cache.program_of(program(1)[0]) is None
        assert cache.foreign == {program(1)[0]}
        assert cache.makers() == {"foreign": 2}


def test_nothing_is_kept_without_a_secret(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        cache.keep_program(*program(1))
        assert cache.program_of(program(1)[0]) is None
        assert cache._rows("SELECT count(*) FROM program") == [(0,)]


@pytest.mark.parametrize(
    "change",
    [
        "digest = CASE digest WHEN '{1}' THEN '{2}' ELSE '{1}' END",  # each has the other's name
        "mac = (SELECT mac FROM program WHERE digest = '{2}') WHERE digest = '{1}'",
        "(binary, binary_sha256, mac) = (SELECT binary, binary_sha256, mac FROM program WHERE digest = '{2}')"
        " WHERE digest = '{1}'",
        "(binary, binary_sha256) = (SELECT binary, binary_sha256 FROM program WHERE digest = '{2}')"
        " WHERE digest = '{1}'",
        "mac = x'' WHERE digest = '{1}'",
        "mac = hex(mac) WHERE digest = '{1}'",
        "mac = 7 WHERE digest = '{1}'",
        "mac = substr(mac, 1, 31) WHERE digest = '{1}'",
    ],
)
def test_a_program_in_the_place_of_another_is_foreign(kept: Path, change: str) -> None:
    one, other = program(1)[0], program(2)[0]
    statement = change.replace("{1}", one).replace("{2}", other)
    if "CASE" in change:  # two names cannot be swapped at once
        edit(kept, "UPDATE program SET digest = 'x' WHERE digest = '" + one + "'")
        edit(kept, f"UPDATE program SET digest = '{one}' WHERE digest = '{other}'")
        statement = f"digest = '{other}' WHERE digest = 'x'"
    edit(kept, f"UPDATE program SET {statement}")
    mine = found(kept, MINE)
    assert mine == ([None, None] if "CASE" in change else [None, program(2)[1]])
    with PerformanceCache.open_readonly(kept, secret=MINE) as cache:
        assert cache.makers()["foreign"] == mine.count(None)


@pytest.mark.parametrize("change", ["binary = x'00'", "binary = 'text'", "binary_sha256 = 'c0ffee'", "binary = x''"])
def test_a_damaged_program_is_not_used_and_said_to_be_damaged(kept: Path, change: str) -> None:
    edit(kept, f"UPDATE program SET {change}")
    with PerformanceCache.open(kept, secret=MINE) as cache:
        assert cache.program_of(program(1)[0]) is None
        assert cache.foreign == set()
        assert cache.makers() == {"damaged": 2}
        (warning,) = cache.warnings
        assert "damaged" in warning


def test_the_ones_used_longest_ago_go_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1, 100))
    monkeypatch.setattr("gputune.cache.programs.time.time", lambda: float(next(ticks)))
    with PerformanceCache.open(path, secret=MINE) as cache:
        for number in range(3):
            cache.keep_program(*program(number), most_bytes=3000)
        assert cache.program_of(program(0)[0]) == program(0)[1]  # used now
        cache.keep_program(*program(3), most_bytes=3000)
        there = [cache.program_of(program(number)[0]) is not None for number in range(4)]
        assert there == [True, False, True, True]
        assert cache.program_bytes() == 3000
        cache.forget_programs(1000)
        assert cache.program_bytes() == 1000
        cache.forget_programs()
        assert cache.program_bytes() == 0


def test_a_file_of_the_version_before_brings_no_programs(kept: Path) -> None:
    as_version(kept, 5)
    assert found(kept, MINE) == [None, None]
    with PerformanceCache.open_readonly(kept, secret=MINE) as cache:
        assert cache.makers() == {"foreign": 2}
        assert cache.program_bytes() == 2000
    with PerformanceCache.open(kept, secret=MINE) as cache:
        assert cache.makers() == {}
        cache.keep_program(*program(1))
        assert cache.program_of(program(1)[0]) == program(1)[1]
    assert not list(kept.parent.glob("*.damaged*"))


LAUNCH = Launch("source", "f", "-DA", (64, 2), (8, 1), ("x", 3), (Stage("g", (8,), (1,), ("x",)),))


@pytest.mark.parametrize(
    "change",
    [
        lambda one: replace(one, source="other", source_sha256=""),
        lambda one: replace(one, options="-DA=2"),
        lambda one: replace(one, entry="h"),
        lambda one: replace(one, global_size=(64, 4)),
        lambda one: replace(one, local_size=(8, 2)),
        lambda one: replace(one, stages=()),
        lambda one: replace(one, stages=(replace(one.stages[0], local_size=(8,)),)),
    ],
)
def test_what_is_compiled_is_in_the_digest(change: Callable[[Launch], Launch]) -> None:
    assert NULL_REPORT.identity is not None
    compiler = compiler_of(NULL_REPORT.identity, {})
    assert program_digest(change(LAUNCH), compiler) != program_digest(LAUNCH, compiler)
    assert program_digest(replace(LAUNCH, arguments=("y",)), compiler) == program_digest(LAUNCH, compiler)


@pytest.mark.parametrize(
    "field", ["name", "compute_units", "platform", "platform_version", "device_version", "driver_version", "settings"]
)
def test_who_compiles_is_in_the_digest(field: str) -> None:
    device, settings = NULL_REPORT.identity, {"A": "1"}
    assert device is not None
    before = program_digest(LAUNCH, compiler_of(device, settings))
    if field == "settings":
        settings = {"A": "2"}
    else:
        value = getattr(device, field)
        changed: Any = {field: value + 1 if isinstance(value, int) else f"{value}x"}
        device = replace(device, **changed)
    assert program_digest(LAUNCH, compiler_of(device, settings)) != before


def test_verify_says_whose_programs_are(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(*words: str) -> str:
        ran = run("verify", kept, *words)
        assert ran.exit_code == 0, ran.output
        return ran.output

    said = "compiled programs: {} of this installation, {} of others, which are not used"
    for number, secret in ((2, MINE), (0, OTHERS)):
        file = tmp_path / "secret"
        file.unlink(missing_ok=True)
        file.touch(0o600)
        file.write_bytes(secret)
        monkeypatch.setenv("GPUTUNE_CACHE_SECRET_FILE", str(file))
        assert said.format(number, 2 - number) in verify()
        assert f'"own": {number}' in verify("--json") and f'"foreign": {2 - number}' in verify("--json")
    monkeypatch.delenv("GPUTUNE_CACHE_SECRET_FILE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "none"))
    assert said.format(0, 2) in verify()
    assert not (tmp_path / "none").exists(), "looking makes no secret"

"""Test that every reader refuses a foreign JSON value with more than 32 levels like any other wrong value."""

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputune.cache.exchange import to_json
from gputune.cache.record import DEEPEST_CELL, Contents, Entry, RecordError, Stored, TrialRecord, read_json
from gputune.client.errors import GputuneError
from gputune.client.farm.jobs import Journal
from gputune.client.strict_json import read_object
from gputune.client.viewer.schematic import read_schematic
from gputune.core.errors import MalformedLog
from gputune.core.json_text import DEEPEST, json_value
from gputune.runtime.context.records import DEEPEST_CONFIGURATION
from gputune.runtime.devices.recording import row_of
from tests.cache.conftest import TASK, VALIDITY, trial
from tests.client.commands import Gputune

ROOT = Path(__file__).parents[2]
TOO_DEEP = (DEEPEST + 1, 600, 980, 5_000, 200_000)


def lists(levels: int) -> str:
    return "[" * levels + "]" * levels


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_32_levels_are_taken() -> None:
    assert DEEPEST == DEEPEST_CONFIGURATION == 32
    assert json_value(lists(DEEPEST)) == nested(DEEPEST)
    assert json_value('{"a":' * (DEEPEST - 1) + "1" + "}" * (DEEPEST - 1))
    assert json_value("7", 1) == 7


@pytest.mark.parametrize("levels", TOO_DEEP)
@pytest.mark.parametrize("way", ["lists", "maps", "both", "hooked"])
def test_more_are_refused(levels: int, way: str) -> None:
    text = '{"a":' * levels + "{}" + "}" * levels if way == "maps" else lists(levels)
    text = f'{{"a": {text}, "b": 1}}' if way == "both" else text
    hooks: dict[str, Any] = {"object_pairs_hook": dict} if way == "hooked" else {}
    with pytest.raises(ValueError, match="it has more than 32 levels"):
        json_value(text, **hooks)


def schematic(path: Path, text: str) -> None:
    path.write_text(text)
    read_schematic(path)


def config(path: Path, text: str) -> None:
    path.write_text(f'{{"a": {text}}}')
    read_object(path)


def jobs(path: Path, text: str) -> None:
    Journal(path).begin({}, "me")
    with sqlite3.connect(path) as file:
        file.execute("UPDATE jobs SET asked = ?", (text,))
    file.close()
    Journal(path).jobs()


READERS: dict[str, tuple[Callable[[Path, str], object], type[Exception]]] = {
    "schematic": (schematic, MalformedLog),
    "config file": (config, GputuneError),
    "jobs of a farm": (jobs, GputuneError),
    "row of a recording": (lambda path, text: row_of(text, 1), ValueError),
    "cell of a cache": (lambda path, text: read_json(text, "measured"), RecordError),
    "record": (lambda path, text: TrialRecord({}, "crash", measured={"a": nested(len(text) // 2)}), RecordError),
}


@pytest.mark.parametrize("levels", [33, 600, 980, 5_000])
@pytest.mark.parametrize(("read", "error"), READERS.values(), ids=READERS)
def test_readers_refuse_more_as_whatever_else_is_wrong(
    tmp_path: Path, read: Callable[[Path, str], object], error: type[Exception], levels: int
) -> None:
    with pytest.raises(error):
        read(tmp_path / "file", lists(levels))


def export(measured_levels: int) -> str:
    """An export with one trial, whose `measured` has so many levels."""
    text = to_json(Contents((Entry(TASK, VALIDITY, (Stored(trial(1), 1.0),), None),), {}), "1", "now")
    return re.sub(r'"measured":\{[^}]*\}', f'"measured":{{"a":{lists(measured_levels - 1)}}}', text)


def test_what_a_record_may_hold_fits_into_an_export(gputune: Gputune, tmp_path: Path) -> None:
    file = tmp_path / "export.json"
    file.write_text(export(DEEPEST_CELL))
    words = ("performance-cache", "import", file, "--performance_cache_dir", tmp_path / "cache")
    assert gputune(*words).code == 0
    (made,) = (tmp_path / "cache").glob("*.sqlite")
    again = tmp_path / "again.json"
    assert gputune("performance-cache", "export", made, "--output", again).code == 0
    assert json_value(again.read_text())["entries"] == json_value(file.read_text())["entries"]


@pytest.mark.parametrize("levels", [DEEPEST_CELL + 1, 600, 980, 5_000])
def test_a_deeper_export_is_refused_in_one_line(gputune: Gputune, tmp_path: Path, levels: int) -> None:
    file = tmp_path / "export.json"
    file.write_text(export(levels))
    ran = gputune("performance-cache", "import", file, "--performance_cache_dir", tmp_path / "cache")
    assert (ran.code, len(ran.err.splitlines())) == (7, 1)
    assert f"{file} is no export of a performance cache: it has more than 32 levels" in ran.err
    assert not (tmp_path / "cache").exists()


OWN_PROCESSES = {
    "client/compare/contender.py": "what the process that has started it writes",
    "client/compare/turns.py": "what a process of its own answers",
    "runtime/backends/probe.py": "an argument from the process that has started it",
    "runtime/contexts/probe.py": "an argument from the process that has started it",
    "runtime/devices/discovery.py": "what a process of its own answers",
    "server/worker/__main__.py": "arguments from the daemon",
}


def test_all_that_is_read_from_outside_is_read_by_one_function() -> None:
    rooms = ("cache", "client", "core", "kernels", "runtime", "server")
    found = {
        str(path.relative_to(ROOT))
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
        if re.search(r"json\.loads?\(", path.read_text(encoding="utf-8"))
    }
    assert found == {*OWN_PROCESSES, "core/json_text.py"}

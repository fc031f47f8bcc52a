"""Test that files and pages keep their structure whatever a name holds, and that their readers read that name.

The same evil names go through everything that is written; plain names give the expected structure.
"""

import csv
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from gputune.client.input_lists import read_input_list
from gputune.client.outputs import file_stems
from gputune.client.pages.escaping import c_string, csv_cell, markdown_code, markdown_text, shell_word
from gputune.core.logs import printable
from gputune.runtime.context.records import TensorRecord
from tests.client.commands import Gputune
from tests.client.contexts import DEVICE, small_context
from tests.client.evil_names import EVIL, PLAIN, model_of
from tests.client.pages.reading import Page, words
from tests.client.viewer.read_back import read_chrome


class Written:
    """What every command that writes has written about a model with some names, and what it printed."""

    def __init__(self, gputune: Gputune, folder: Path, names: Sequence[str], target: tuple[object, ...]) -> None:
        self.folder, self.names = folder, names
        self.printed: dict[str, str] = {}
        self._gputune = gputune
        folder.mkdir()
        onnx.save(model_of(names), folder / "m.onnx")
        cache = ("--performance_cache_dir", folder / "cache")
        self._run(
            "context-binary-generator", "--model", folder / "m.onnx", "--binary_file", "m", "--output_dir", folder,
            "--tuning_effort", "quick", *target, "--profiling_level", "basic", *cache,
            "--summary_json", folder / "generated.json", "--report", folder / "report.html",
        )  # fmt: skip
        words = []
        for name, stem in file_stems(names).items():
            np.ones(4, np.float32).tofile(folder / f"{stem}.in")
            words.append(f"{stem if stem != name else name}:={folder / stem}.in")
        (folder / "list.txt").write_text(" ".join(words), encoding="utf-8")
        for form in ("csv", "json"):
            self._run(
                "net-run", "--retrieve_context", folder / "m.bin", "--input_list", folder / "list.txt", "--npy",
                "--output_dir", folder / "results", "--profiling_level", "qhas", "--summary_json", folder / "ran.json",
                "--export_times", folder / f"times.{form}",
            )  # fmt: skip
        log = ("--input_log", folder / "results" / "profilelogs" / "gputune-profiling-data.log")
        plan = ("--schematic", folder / "m_schematic.bin")
        self._run("profile-viewer", *log, *plan)
        for name in ("chrometrace.json", "a.html", "a.csv", "a.json"):
            self._run("profile-viewer", *log, *plan, "--output", folder / name)
        context = ("--context_binary", folder / "m.bin")
        self._run("context-binary-utility", *context, "--json_file", folder / "utility.json")
        self._run("context-binary-utility", *context)
        self._run("memory-report", *context, "--output", folder / "memory.html")
        self._run("model-check", folder / "m.onnx")
        self._run("performance-cache", "list", *cache)

    def _run(self, command: str, *arguments: object) -> None:
        ran = self._gputune(command, *arguments)
        assert ran.code == 0, ran.err
        self.printed[f"{command} {len(self.printed)}"] = ran.out + ran.err

    def files(self, pattern: str) -> dict[str, str]:
        found = {path.name: path.read_text(encoding="utf-8") for path in sorted(self.folder.glob(pattern))}
        assert found
        return found


@pytest.fixture
def both(gputune: Gputune, tmp_path: Path, null_target: tuple[object, ...]) -> tuple[Written, Written]:
    plain, evil = tmp_path / "plain", tmp_path / "evil"
    return Written(gputune, plain, PLAIN, null_target), Written(gputune, evil, EVIL, null_target)


def test_names_stay_names_in_all_that_commands_write(both: tuple[Written, Written]) -> None:
    plain, evil = both
    for command, text in evil.printed.items():
        assert not [c for c in text if not c.isprintable() and c not in "\n\r"], command
        assert text.count("\n") <= 1.3 * plain.printed[command].count("\n") + 30, command  # long names wrap
        assert "\ncurl" not in text and "```\n" not in text
    pages = evil.files("*.html")
    assert pages.keys() == {"a.html", "memory.html", "report.html"}
    for name, page in pages.items():
        shown = Page(page)
        assert shown.tags.keys() == Page(plain.files(name)[name]).tags.keys(), name
        assert EVIL[0] in words(shown.blocks) or name == "report.html"
    for name, text in evil.files("*.json").items():
        content = json.loads(text, parse_constant=pytest.fail)
        assert _shape(content, EVIL) == _shape(json.loads(plain.files(name)[name]), PLAIN), name
    for name, text in evil.files("*.csv").items():
        rows, others = (
            list(csv.reader(content.splitlines(), strict=True)) for content in (text, plain.files(name)[name])
        )
        assert {len(row) for row in rows} == {len(others[0])} and rows[0] == others[0], name
        assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "@", "-x"))]
    assert read_chrome(evil.folder / "chrometrace.json").count("launch") > 0
    stems = file_stems([f"{name}o" for name in EVIL])
    results = evil.folder / "results" / "Result_0"
    assert {path.name for path in results.iterdir()} == {
        f"{stem}.{end}" for stem in stems.values() for end in ("raw", "npy")
    }
    assert {path.name for path in evil.folder.parent.iterdir()} == {"plain", "evil"}


def _shape(value: object, names: Sequence[str]) -> object:
    """Return the form of a JSON value: the keys that are no names, and of lists what their elements share."""
    if isinstance(value, dict):
        known = {key: _shape(item, names) for key, item in value.items() if not _is_named(key, names)}
        named = [_shape(item, names) for key, item in value.items() if _is_named(key, names)]
        return known, len(named), named[:1]
    return [_shape(item, names) for item in value[:1]] if isinstance(value, list) else type(value) is str


def _is_named(key: str, names: Sequence[str]) -> bool:
    return any(key in (name, f"{name}o") or key.startswith(name) for name in names)


def test_an_exported_folder_says_and_takes_evil_names(gputune: Gputune, tmp_path: Path) -> None:
    device = {**DEVICE, "name": EVIL[1], "platform": "x", "driver_version": EVIL[0]}
    contexts = (
        small_context(tmp_path / "m.bin", names=PLAIN[:2], tensors=(PLAIN, ("y",)), device={**device, "name": "D"}),
        small_context(tmp_path / "$(evil)'.bin", names=EVIL[:2], tensors=(EVIL, ("y",)), device=device),
    )
    lines = []
    for place, context in enumerate(contexts):
        ran = gputune("export", "--context_binary", context, "--output_dir", tmp_path / f"app{place}")
        assert ran.code == 0, ran.err
        lines.append((tmp_path / f"app{place}" / "README.md").read_text(encoding="utf-8").splitlines())
    plain, evil = lines
    assert [line[:2] for line in evil if not line.startswith(("    {", "static"))] == [
        line[:2] for line in plain if not line.startswith(("    {", "static"))
    ]
    table = [line.replace(r"\|", "") for line in evil if line.startswith("| input")]
    assert [row.count("|") for row in table] == [6] * 2 * len(EVIL)
    app = tmp_path / "app1"
    inputs = tuple(TensorRecord(name, (2, 4)) for name in EVIL)
    (line,) = read_input_list(app / "input_list.txt", inputs)
    assert line.files.keys() == set(EVIL)
    assert all((app / path).stat().st_size == 32 for path in line.files.values())
    assert len(set(line.files.values())) == len(EVIL)


@pytest.mark.parametrize("name", EVIL)
def test_a_string_of_c_is_the_name(name: str, tmp_path: Path) -> None:
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler")
    source = f"#include <stdio.h>\nint main(void) {{ return fputs({c_string(name)}, stdout) < 0; }}\n"
    assert source.isascii() and source.count("\n") == 2
    command = [compiler, "-std=c99", "-trigraphs", "-Wall", "-Werror", "-x", "c", "-", "-o", str(tmp_path / "say")]
    subprocess.run(command, input=source, text=True, check=True)
    assert subprocess.run([tmp_path / "say"], capture_output=True, check=True).stdout == name.encode()


@pytest.mark.parametrize("name", EVIL)
def test_each_syntax_reads_back_the_printable_name(name: str) -> None:
    shown = printable(name)
    (row,) = csv.reader([f"1,{csv_cell(name)},2"], strict=True)
    assert row in (["1", shown, "2"], ["1", f"'{shown}", "2"])
    (word,) = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {shell_word(name)}"], capture_output=True, check=True, text=True
    ).stdout.splitlines()
    assert word == shown
    for markdown in (markdown_code(name), markdown_text(name)):
        assert not set("\n|[]<>*~\"'$\\") & set(re.sub(r"</?code>", "", markdown).replace("`", ""))
        assert re.fullmatch(r"[^`]*|`[A-Za-z0-9_./:-]+`", markdown)


def test_no_two_names_share_a_stem_and_a_stem_is_no_other_name() -> None:
    stems = file_stems(EVIL)
    assert list(stems) == list(EVIL)
    assert len({stem.casefold() for stem in stems.values()}) == len(EVIL)
    assert not [name for name, stem in stems.items() if stem in EVIL and stem != name]
    assert max(len(stem.encode()) for stem in stems.values()) < 210

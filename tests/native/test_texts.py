"""Test that the longest texts fit into the C runtime's buffers of fixed sizes, and that all text that is written
without a bound is known here. The C library ends the program for most texts that do not fit, AddressSanitizer for all.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from gputune.runtime import native
from gputune.runtime.power.fake_trees import make_tree
from tests.native.compiling import OPTIMISED, SOURCES, compiled, environment
from tests.native.voting import ADRENO, CPU, MALI, Voting, files, place, start, stored, table

UNBOUND = re.compile(r"\b(v?sprintf|strcpy|strcat|strncat|stpcpy|gets|f?scanf|sscanf)\(")
KNOWN = {
    "names.h": {"sprintf": 1},  # a number behind a name, for which file_stem leaves room
    "onnxruntime/factory.c": {"strcpy": 1, "sscanf": 2},  # into room that was made for it; numbers
    "onnxruntime/nodes.c": {"strcpy": 1, "strcat": 1},  # into room that was made for them
    "onnxruntime/segment.c": {"sprintf": 2, "strcpy": 1},  # "shapes"
    "src/devices/device.c": {"strcpy": 1},  # into room that was made for it
    "src/memory/importers.c": {"sscanf": 1},  # numbers
    "src/memory/importing.c": {"strcpy": 5},  # reasons between rooms of one size, and into room that was made for one
    "src/power/controls.c": {"strcpy": 3, "sscanf": 1},  # contents between rooms of one size; numbers
    "src/power/journal.c": {"strcpy": 2, "sscanf": 5},  # a name and a content of at most their rooms
    "src/power/nvml.c": {"strcpy": 2, "sscanf": 1},  # "default"; numbers
    "src/power/power.c": {"strcpy": 1},  # contents
    "src/power/shown.c": {"strcpy": 3},  # contents, and keys between rooms of one size
    "src/power/steering.c": {"strcpy": 1},  # contents
}
"""By file, without the agent's; and which of the tests here, or what else, sees that it fits."""
LONG = [126, 127, 128, 255, 1024, 5000]
"""Letters: around the sizes of buffers."""


def test_all_text_without_a_bound_is_known() -> None:
    files = [path for path in native.FOLDER.rglob("*.[ch]") if path.parent.name != "agent"]
    found = {path: Counter(UNBOUND.findall(path.read_text(encoding="utf-8"))) for path in files}
    assert {path.relative_to(native.FOLDER).as_posix(): {**one} for path, one in found.items() if one} == KNOWN


def test_words_of_memory_are_short() -> None:
    text = (native.FOLDER / "src" / "memory" / "importing.c").read_text(encoding="utf-8")
    words = [word for line in re.findall(r"strcpy\(([^;]*);", text) for word in re.findall(r'"([^"]*)"', line)]
    assert len(words) == 1 and max(map(len, words)) < 100


SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(
    scope="module",
    params=[pytest.param((), id="plain"), pytest.param(SANITIZED, id="sanitizers", marks=pytest.mark.night)],
)
def program(c_compiler: str, request: pytest.FixtureRequest) -> Path:
    plugin = native.FOLDER / "onnxruntime"
    files = [Path(__file__).parent / "drivers" / "texts.c", plugin / "factory.c", plugin / "nodes.c", *SOURCES]
    return compiled("texts", files, (*OPTIMISED, *request.param))


def said(program: Path, case: str) -> list[str]:
    """What a case prints. Raises AssertionError with what the sanitizer reports."""
    ran = subprocess.run([program, case], env=environment(), capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    return ran.stdout.splitlines()


def test_shapes_of_the_longest_numbers_fit(program: Path) -> None:
    (line,) = said(program, "shapes")
    longest, room = map(int, line.split(" of "))
    assert room - 8 <= longest < room, "else the cases do not come to the end"


@pytest.mark.parametrize(
    ("case", "begins"),
    [("tensors", "'nnn"), ("options", "there is no perf profile 'vvv")],
)
def test_messages_with_the_longest_names_fit(program: Path, case: str, begins: str) -> None:
    (line,) = said(program, case)
    assert line.startswith(begins) and len(line) < 512


def test_reasons_of_devices_with_the_longest_names_fit(program: Path) -> None:
    assert said(program, "verdicts") == ["399"] * 6


def test_an_absent_input_of_a_node_is_missing_whatever_else_has_no_name(program: Path) -> None:
    wanted = [
        f"its input {gone} is missing: graph 'main' takes '{name}' there"
        for gone, name in enumerate(("first", "second", "third"))
        for _ in range(2)
    ]
    assert said(program, "absent") == [*wanted, "good", "good"]


@pytest.mark.parametrize("device", [CPU, ADRENO, MALI], ids=["cpu", "adreno", "mali"])
@pytest.mark.parametrize("letters", LONG)
def test_devices_and_controls_of_the_longest_names_fit(program: Path, device: Sequence[str], letters: int) -> None:
    """Of a root as deep as paths may be, with lists of words and numbers that are longer than their room."""
    kind, vendor, name = device
    with place() as folder:
        deep = folder / "/".join(["d" * 200] * (min(letters, 800) // 200 + 1))
        deep.mkdir(parents=True)
        root = make_tree(deep / "root", "cpufreq", "kgsl", "memory", "mali")
        for path in root.rglob("*"):
            if path.is_file() and path.name.endswith(("governors", "frequencies", "freq", "governor")):
                path.write_text((path.read_text().strip() + " ") * (letters // 8 + 1))
        voting = Voting(program, root, (kind, vendor, name + "x" * letters))
        assert voting.tell("open", word="burst") == ""
        assert voting.tell("open", 1, "p" * 62).startswith("there is no perf profile 'ppp")
        for phase in ("init", "execute", "deinit"):
            voting.tell("begin", word=phase)
            voting.tell("end", word=phase)
        assert len(voting.tell("told")) < 400
        voting.tell("close")
        voting.end()


@pytest.mark.parametrize("letters", [46, 47, 48, *LONG])
def test_journals_with_the_longest_texts_fit(program: Path, letters: int) -> None:
    """What another process has written is taken as it is, or as nothing."""
    with place() as folder:
        root = make_tree(folder / "root", "cpufreq")
        first = Voting(program, root, CPU)
        first.vote("balanced")
        first.end(kill=True)
        kept = {path: path.read_text() for path in files(folder) if path.suffix in (".votes", ".originals")}
        assert len(kept) == 2
        for path, text in kept.items():
            longest = re.sub(r'("[^"]*policy[^"]*":)"[^"\\]*', lambda found: f'{found[1]}"{"9" * letters}', text)
            longest = re.sub(r'"(\d+:)', rf'"{"1" * letters}\1', longest)
            path.write_text(longest)
        second = Voting(program, root, CPU)
        second.vote("burst")
        found = table(folder)
        assert found is not None and found["in_force"] == stored(start("burst"))
        second.tell("close")
        second.end()

"""Test that no command overwrites its inputs.

Every command that writes files runs once while the files that it opens are watched: all of them were reported. Then
each output is put where an input lies, by links: the command is refused, and nothing has changed. Every output meets
every input at night.
"""

import os
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from gputune.client.options.files import OutputFile, OutputFolder
from gputune.client.outputs import Files
from tests.client.commands import Gputune

from .scenes import SCENES, Scene
from .test_file_options import COMMANDS, of_type

pytestmark = pytest.mark.slow  # each starts processes
UNFINISHED = re.compile(r"\.(gputune-|.+\.)[0-9a-f]{16}")
"""Names of files that are renamed when they are complete."""
OWN = re.compile(r"-(wal|shm|journal)$|/__pycache__/")
"""What SQLite and Python make beside a file."""
JOURNAL = "jobs.sqlite"


@dataclass
class Watched:
    """The files that were opened, and those that the command has told, by their resolved paths."""

    folder: Path
    read: set[Path] = field(default_factory=set)
    written: set[Path] = field(default_factory=set)
    told: list[Files] = field(default_factory=list)
    on: bool = False

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open" and isinstance(arguments[0], str | bytes):
            writes = isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            self._add(self.written if writes else self.read, os.fsdecode(arguments[0]))
        elif event == "os.rename":
            self._add(self.written, os.fsdecode(arguments[1]))
        elif event == "sqlite3.connect" and str(arguments[0]).startswith("file:"):
            self._add(self.read, unquote(urlsplit(arguments[0]).path))  # also to read, SQLite opens it for writing

    def _add(self, found: set[Path], name: str) -> None:
        path = Path(name).absolute()
        inside = path.is_relative_to(self.folder) and not path.is_dir()
        if inside and not any(map(UNFINISHED.fullmatch, path.parts)) and not OWN.search(str(path)):
            found.add(path.relative_to(self.folder))

    def named(self, *roles: str) -> set[Path]:
        """The files that were told with one of these roles."""
        return {
            Path(os.path.relpath(file.path.parent.resolve(), self.folder), file.path.name)
            for files in self.told
            for file in files
            if file.role in roles
        }


HOOKS: list[Watched] = []


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    for watched in HOOKS:
        watched.hook(event, arguments)


@contextmanager
def watching(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Watches what is opened in a folder in the block. An audit hook stays, so that there is one for all."""
    if not HOOKS:
        sys.addaudithook(audit)
    watched = Watched(folder)
    HOOKS[:] = [watched]
    begin = Files.__init__

    def noted(self: Files) -> None:
        begin(self)
        watched.told.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(Files, "__init__", noted)
        watched.on = True
        try:
            yield watched
        finally:
            watched.on = False


def content(folder: Path) -> dict[str, object]:
    """What lies in a folder: the bytes of files, and where links lead. The journal of jobs may go on."""
    return {
        str(path.relative_to(folder)): path.readlink() if path.is_symlink() else path.is_dir() or path.read_bytes()
        for path in folder.rglob("*")
        if JOURNAL not in path.name
    }


def link(place: Path, file: Path) -> None:
    place.symlink_to(file)


def hard_link(place: Path, file: Path) -> None:
    place.hardlink_to(file)


LINKS: Sequence[Callable[[Path, Path], None]] = (link, hard_link)


@dataclass
class Stage:
    """A scene in a folder that is made anew for each call."""

    scene: Scene
    gputune: Gputune
    pristine: Path
    folder: Path

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.pristine, self.folder)
        os.chdir(self.folder)

    def refuses(self, said: str) -> None:
        """Calls the command, which is refused without any change."""
        before = content(self.folder)
        ran = self.gputune(*self.scene.words)
        assert (ran.code, said in ran.last_line) == (2, True), f"{ran.code}: {ran.out}{ran.err}"
        assert content(self.folder) == before


@pytest.fixture
def stage(gputune: Gputune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Stage:
    scene = SCENES[name]
    pristine = tmp_path / "pristine"
    pristine.mkdir()
    monkeypatch.chdir(pristine)
    scene.make()
    scene.prepare(monkeypatch)
    found = Stage(scene, gputune, pristine, tmp_path / "stage")
    found.reset()
    return found


@pytest.mark.parametrize(
    ("name", "every"),
    [(name, False) for name, scene in SCENES.items() if not scene.late]
    + [pytest.param(name, True, marks=pytest.mark.night) for name in SCENES],
)
def test_no_output_replaces_what_the_command_reads(
    stage: Stage, name: str, every: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watching(stage.folder, monkeypatch) as watched:
        ran = stage.gputune(*stage.scene.words)
    assert ran.code == 0, ran.err
    outputs = watched.named("written", "folder") - {Path()}
    inputs = {path for path in watched.named("read", "changed") if (stage.pristine / path).is_file()}
    not_told = watched.written - outputs - watched.named("changed")
    not_told |= watched.read - watched.named("read", "changed", "written")
    assert not_told == set()
    made = sorted(path for path in outputs if (stage.folder / path).exists())
    assert made
    cases = [(output, "would overwrite", file, place) for output in made for file in sorted(inputs) for place in LINKS]
    cases += [
        (output, "one file", other, link)
        for output in made
        for other in made
        if other != output and output not in other.parents
    ]
    if not every:  # but one for each output
        random.Random(0).shuffle(cases)
        cases = list({case[:2]: case for case in cases}.values())
    for output, said, file, place in cases:
        stage.reset()
        for path in (output, file):
            (stage.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (stage.folder / output).unlink(missing_ok=True)
        place(stage.folder / output, stage.folder / file)
        stage.refuses(said)


ELSEWHERE = {
    "power fake-tree": "its folder must be new",
    "target-server": "--unix is a socket that must not be there",
}
"""Commands that write and have no scene, since nothing that is there can be replaced."""


def test_every_output_of_every_command_is_in_a_scene() -> None:
    for words in COMMANDS:
        scenes = [scene for scene in SCENES.values() if scene.command == " ".join(words)]
        used = {word for scene in scenes for word in scene.arguments}
        outputs = [one.opts for one in of_type(words, OutputFile, OutputFolder) if not used.intersection(one.opts)]
        assert not outputs or " ".join(words) in ELSEWHERE, words

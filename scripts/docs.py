"""Writes the parts of pages that the code decides, between the lines

    <!-- scripts/docs: NAME -->
    <!-- end -->

of README.md and the pages of folders. What stands between them is written anew; all else is left as it is.
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import bench
import fuzz
import tool
from gputune.client.model.importer import SUPPORTED_OPS
from gputune.kernels.catalogue import families

FOLDERS = {
    ".": "Commands",
    "models": "models/: networks, run as a whole",
    "stress": "stress/: what must not break",
    "recording": "recording/: tuning spaces kept for later",
    "pages": "pages/: pages in a browser",
}
"""The folders of scripts/ with commands, and their headings; the benchmarks stand between the first two."""


def kernel_counts() -> str:
    """How many families there are, and how many operators a model may contain."""
    return f"{len(families())} families compute {len(SUPPORTED_OPS)} ONNX operators.\n"


def operators() -> str:
    """Every operator that a model may contain, in the order of the alphabet."""
    return textwrap.fill(", ".join(sorted(SUPPORTED_OPS)), 120, break_on_hyphens=False) + "\n"


def commands() -> str:
    """A line for every command, benchmark and kind of fuzzing, by folder."""
    parts = {folder: [f"## {heading}", ""] for folder, heading in FOLDERS.items()}
    for path in sorted(executables()):
        folder = path.relative_to(tool.SCRIPTS).parts[0] if path.parent != tool.SCRIPTS else "."
        parts[folder].append(f"- `{path.relative_to(tool.ROOT).as_posix()}`: {purpose(path)}")
    parts["stress"] += [
        f"- `scripts/fuzz {name}`: {tool.first_sentence(module.__doc__)}" for name, module in fuzz.COMMANDS.items()
    ]
    benchmarks = ["## benchmarks/: what is claimed, measured", ""]
    benchmarks += [f"- `scripts/bench {name}`: {sentence}" for name, sentence in bench.sentences().items()]
    first, *others = parts.values()
    return "\n\n".join("\n".join(lines) for lines in (first, benchmarks, *others)) + "\n"


def executables() -> list[Path]:
    """The commands: files of scripts/ whose first line names their interpreter."""
    files = (path for path in tool.SCRIPTS.rglob("*") if path.is_file() and path.suffix != ".py")
    return [path for path in files if path.read_bytes().startswith(b"#!")]


def purpose(path: Path) -> str:
    """The sentence with which a command's first comment begins."""
    comment = re.match(r"#!.*\n((?:#.*\n)+)", path.read_text(encoding="utf-8"))
    if comment is None:
        raise ValueError(f"{path} does not say what it is for")
    return tool.first_sentence(re.sub(r"^# ?", "", comment[1], flags=re.MULTILINE))


PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "README.md": {"operators": operators},
    "kernels/README.md": {"counts": kernel_counts},
    "scripts/README.md": {"commands": commands},
}
"""By page: its parts, and what writes each."""


def written(page: str) -> str:
    """The text of a page with its parts as the code has them now. ValueError where the lines around one are missing."""
    text = (tool.ROOT / page).read_text(encoding="utf-8")
    for name, write in PARTS[page].items():
        begin, end = f"<!-- scripts/docs: {name} -->\n", "<!-- end -->\n"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"{page} has no lines {begin.strip()} and {end.strip()}")
        text = f"{before}{begin}{write()}{end}{after}"
    return text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/docs", description="Writes what pages take from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a page is behind")
    options = parser.parse_args(arguments)
    behind = {page: text for page in PARTS if (text := written(page)) != (tool.ROOT / page).read_text(encoding="utf-8")}
    for page, text in behind.items():
        if not options.check:
            (tool.ROOT / page).write_text(text, encoding="utf-8")
        print(f"{page}: {'is behind the code: run scripts/docs' if options.check else 'written'}")
    return int(options.check and bool(behind))


if __name__ == "__main__":
    sys.exit(main())

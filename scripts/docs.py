"""Write what the code decides: the files of FILES whole, and the parts of pages between the lines

    <!-- scripts/docs: NAME -->
    <!-- end -->

of pages. The text between them is replaced; all else stays as it is.
"""

import argparse
import dataclasses
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import bench
import c_tables
import fuzz
import tool
import website
from gpu.page import page as gpus
from gputune.client.model.importer import SUPPORTED_OPS
from gputune.core.bounds import IN_FILES, Within
from gputune.core.dtypes import ELEMENT_TYPES
from gputune.core.identity import DeviceIdentity
from gputune.kernels.catalogue import families
from gputune.runtime.context import format, memory_need, package
from gputune.runtime.context import records as context_records
from gputune.runtime.context.records import (
    BufferRef,
    ContextHeader,
    FileRecord,
    GraphRecord,
    LaunchRecord,
    ModelRecord,
    ProgramEntry,
    Section,
    TensorRecord,
)
from gputune.runtime.context.states import LARGEST_RANK, StatePair, StateRecord, TokenAxis
from tables import c_presets, interface, perf_profile_stub

FOLDERS = {
    ".": "Commands",
    "models": "models/: whole networks",
    "stress": "stress/: random inputs, kills and long loads",
    "recording": "recording/: recorded tuning spaces",
    "gpu": "gpu/: GPUs, with a graphics card and without",
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
    benchmarks = ["## benchmarks/: measurements of the claims", ""]
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


def layout() -> str:
    """How the parts of a context binary and of a package lie in their files."""
    memory = _paragraphs(memory_need.__doc__)[1:]
    pages = {"A context binary": _paragraphs(format.__doc__)[1:], "The memory block": memory}
    pages["A package"] = _paragraphs(package.__doc__)[1:]
    return "\n".join(f"## {title}\n\n" + "\n\n".join(texts) + "\n" for title, texts in pages.items())


def _paragraphs(text: str | None) -> list[str]:
    return [textwrap.fill(" ".join(part.split()), 120) for part in (text or "").split("\n\n")]


RECORDS = (
    ContextHeader,
    GraphRecord,
    TensorRecord,
    LaunchRecord,
    BufferRef,
    ProgramEntry,
    Section,
    ModelRecord,
    FileRecord,
    StateRecord,
    StatePair,
    TokenAxis,
    DeviceIdentity,
)
TYPES = {
    str: "text",
    int: "number from 0",
    bool: "true or false",
    tuple[int, ...]: "list of numbers from 0",
    tuple[int, int, int]: "list of 3 numbers from 0",
    tuple[str, ...]: "list of texts",
    tuple[BufferRef | int, ...]: "list of buffers, or of numbers of 32 bits",
    dict[str, str]: "map of texts",
    dict[str, Any]: "map",
}


def records() -> str:
    """The maps of a header: their keys, and the types of these."""
    return "\n".join(map(_record, RECORDS))


def _record(record: type[Any]) -> str:
    lines = [f"### {record.__name__}", "", *_paragraphs(record.__doc__), "", "| key | value |", "|---|---|"]
    hints, bounds = get_type_hints(record), get_type_hints(record, include_extras=True)
    for field in dataclasses.fields(record):
        newer = "; in newer files only" if field.name in getattr(record, IN_FILES).later else ""
        lows = [mark.low for mark in getattr(bounds[field.name], "__metadata__", ()) if isinstance(mark, Within)]
        text = "number from -1" if lows == [-1] else _type(hints[field.name])
        lines.append(f"| `{field.name}` | {text}{newer} |")
    return "\n".join(lines) + "\n"


def _type(hint: Any) -> str:
    if hint in TYPES:
        return TYPES[hint]
    if get_origin(hint) is Literal:
        return " or ".join(f'"{value}"' for value in get_args(hint) if value != "marks")
    if get_origin(hint) is tuple:
        return f"list of {get_args(hint)[0].__name__}"
    return f"a {(get_args(hint) or [hint])[0].__name__}"


def limits() -> str:
    """The numbers that a reader needs."""
    numbers = {
        "format version": format.FORMAT_VERSION,
        "format version of contexts that are compact or require a feature": format.REQUIRING_VERSION,
        "features that a context may require": len(context_records.FEATURES),
        "alignment of the section area and of each section, bytes": format.ALIGNMENT,
        "largest header, bytes": format.LARGEST_HEADER_BYTES,
        "largest memory block, bytes": format.LARGEST_MEMORY_BLOCK_BYTES,
        "bytes that a byte of a compressed section becomes, at most": context_records.MOST_INFLATED,
        "largest tensor, bytes": context_records.LARGEST_TENSOR_BYTES,
        "dimensions of a tensor, at most": LARGEST_RANK,
        "levels of the configuration, at most": context_records.DEEPEST_CONFIGURATION,
        "bytes of a counter of persistent kernels": context_records.COUNTER_BYTES,
        "bytes of their status": context_records.STATUS_BYTES,
        "package version": package.PACKAGE_VERSION,
        "contexts of a package, at most": package.MOST_CONTEXTS,
        "largest index of a package, bytes": package.LARGEST_INDEX_BYTES,
    }
    rows = [f"| {name} | {number} |" for name, number in numbers.items()]
    rows += [f"| bytes of an element of {name} | {each.nbytes} |" for name, each in ELEMENT_TYPES.items()]
    return "\n".join(["| quantity | number |", "|---|---|", *rows]) + "\n"


PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "docs/gpus.md": {"gpus": gpus},
    "docs/operators.md": {"operators": operators},
    "docs/options.md": {"keys": interface.config_keys},
    "docs/python.md": {"arguments": interface.arguments},
    "kernels/README.md": {"counts": kernel_counts},
    "scripts/README.md": {"commands": commands},
    "docs/file_format.md": {"layout": layout, "records": records, "limits": limits},
}
"""By page: its parts, and what writes each."""
FILES: Mapping[str, Callable[[], str]] = {
    c_tables.PATH: c_tables.text,
    c_presets.PATH: c_presets.text,
    perf_profile_stub.PATH: perf_profile_stub.text,
    interface.HELP: interface.help_text,
    interface.SIGNATURES: interface.signatures,
    c_tables.AGENT_PATH: c_tables.agent_messages,
    c_tables.AGENT_HEADER_PATH: c_tables.agent_header,
}
"""What is written whole."""


def written(page: str) -> str:
    """The text of a page or file as the code has it now. ValueError where the lines around a part are missing."""
    if page in FILES:
        return FILES[page]()
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
    parser = argparse.ArgumentParser(
        prog="scripts/docs", description="Writes what pages and tables take from the code."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a page is behind")
    parser.add_argument(
        "--site", action="store_true", help="make a site of all pages in build/site; needs gputune[docs]"
    )
    options = parser.parse_args(arguments)
    if options.site:
        return website.make()
    pages = [*PARTS, *FILES]
    behind = {page: text for page in pages if (text := written(page)) != (tool.ROOT / page).read_text(encoding="utf-8")}
    for page, text in behind.items():
        if not options.check:
            (tool.ROOT / page).write_text(text, encoding="utf-8")
        print(f"{page}: {'is behind the code: run scripts/docs' if options.check else 'written'}")
    return int(options.check and bool(behind))


if __name__ == "__main__":
    sys.exit(main())

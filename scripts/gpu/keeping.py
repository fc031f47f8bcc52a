"""Keep the files of a day: where phases write, what is brought back, and how two days differ."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

DAY = "day.json"
PACKED = ("recordings", "models")
"""Phases whose files get a package of their own; those of all others go together, with the logs."""
OTHERS = "others"
MOST_BYTES = 15 << 20
"""Of a package; larger files do not come back."""


def record_of(work: Path, name: str) -> Path:
    """Return where a phase writes its record."""
    return work / f"{name}.json"


def log_of(work: Path, name: str) -> Path:
    """Return where a phase's output goes."""
    return work / f"{name}.log"


def read(path: Path) -> dict[str, Any]:
    """Return a record; an empty one where it is missing or broken."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def keep(work: Path, out: Path, outcomes: Sequence[Mapping[str, Any]]) -> None:
    """Writes day.json from the records of all phases until now, and packs their other files."""
    names = [str(outcome["name"]) for outcome in outcomes]
    records = {name: read(record_of(work, name)) for name in names}
    text = json.dumps({"outcomes": list(outcomes), **records}, indent=1)
    partial = work / f"{DAY}.partial"
    partial.write_text(text, encoding="utf-8")
    (out / DAY).write_text(text, encoding="utf-8")
    packages: dict[str, list[Path]] = {OTHERS: [log_of(work, name) for name in names]}
    for name in names:
        files = (path for path in (work / name).rglob("*") if path.is_file() and not path.is_symlink())
        packages.setdefault(name if name in PACKED else OTHERS, []).extend(files)
    for package, files_of in packages.items():
        pack(out / f"{package}.tar.gz", work, files_of)


def pack(path: Path, root: Path, files: Sequence[Path], most: int = MOST_BYTES) -> None:
    """Packs files by their names below a folder, the small ones first, as many as there is room for; a list in the
    package says which are missing."""
    left_out: list[str] = []
    kept: list[tuple[str, bytes]] = []
    room = most
    for file in sorted((one for one in files if one.exists()), key=lambda one: one.stat().st_size):
        name, content = file.relative_to(root).as_posix(), b""
        if file.stat().st_size <= 4 * most:
            content = _packed([(name, file.read_bytes())])
        if not content or len(content) > room:
            left_out.append(name)
            continue
        room -= len(content)
        kept.append((name, file.read_bytes()))
    if left_out:
        kept.append(("left_out.txt", "".join(f"{name}\n" for name in left_out).encode()))
    if kept:
        path.write_bytes(_packed(kept))


def _packed(contents: Sequence[tuple[str, bytes]]) -> bytes:
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w:gz", compresslevel=5) as package:
        for name, content in contents:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            package.addfile(entry, io.BytesIO(content))
    return result.getvalue()


def print_difference(a: Path, b: Path) -> int:
    """Prints the numbers that two days have in common next to each other; returns the exit code."""
    one, other = dict(numbers(read(a))), dict(numbers(read(b)))
    if not one or not other:
        print(f"{b if one else a} has no numbers")
        return 1
    for side, path in ((one, a), (other, b)):
        cards = {value for key, value in _leaves(read(path)) if key.endswith(".card")}
        print(f"{path}: {', '.join(sorted(map(str, cards)))}, {len(side)} numbers")
    for key in one:
        if key in other:
            ratio = f"{other[key] / one[key]:8.3f}" if one[key] else "        "
            print(f"{one[key]:14.6g} {other[key]:14.6g} {ratio}  {key}")
    return 0


def numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Give every number of a day with its place; of a spread only the median."""
    for key, value in _leaves(record):
        if isinstance(value, int | float) and not isinstance(value, bool):
            parent, _, last = key.rpartition(".")
            if last not in ("q1", "q3", "n"):
                yield (parent if last == "median" else key), float(value)


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{place}.{number}")
    else:
        yield place, value

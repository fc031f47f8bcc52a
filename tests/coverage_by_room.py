"""Show by room which share of the statements the last run of scripts/test --coverage reached."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import tool  # of scripts/

KEPT = Path(__file__).parents[1] / "build" / "coverage"


def report(files: Mapping[str, tuple[int, int]]) -> str:
    """Return a table from the statements of each file, and how many of them ran."""
    rooms: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, counts in files.items():
        for room in (Path(name).parts[0], "all"):
            rooms[room] = [before + count for before, count in zip(rooms[room], counts, strict=True)]
    rows = [
        [room, f"{statements:,}", f"{100 * ran / max(statements, 1):.1f} %"]
        for room, (statements, ran) in sorted(rooms.items(), key=lambda pair: (pair[0] == "all", pair[0]))
    ]
    return tool.table(["room", "statements", "reached"], rows)


def main() -> None:
    """Print the table."""
    from coverage import Coverage

    measured = Coverage(data_file=KEPT)
    measured.load()
    files = {}
    for name in measured.get_data().measured_files():
        _, statements, _, missing, _ = measured.analysis2(name)
        files[Path(name).as_posix()] = (len(statements), len(statements) - len(missing))
    print(report(files))


if __name__ == "__main__":
    main()

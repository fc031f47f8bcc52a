"""Print by how many lines of code each room has changed since the base branch; scripts/check does so at its end.

Blank lines, comments and docstrings are no code.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
BRANCHES = ("origin/main", "origin/master", "main", "master")
PYTHON, C = {".py"}, {".c", ".h", ".hpp", ".cl"}


def code_lines(text: str, suffix: str) -> int:
    """Return the number of lines of a text that hold code: of Python, or of C and OpenCL."""
    if suffix in C:
        text = re.sub(r"/\*.*?\*/", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
        return sum(bool(re.sub(r"//.*", "", line).strip()) for line in text.splitlines())
    lines = enumerate(text.splitlines(), 1)
    code = {number for number, line in lines if line.strip() and not line.lstrip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code -= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return len(code)


def room_of(name: str) -> str:
    """Return the top folder of a file, C and OpenCL apart."""
    path = Path(name)
    return (path.parts[0] if len(path.parts) > 1 else ".") + (" (C)" if path.suffix in C else "")


def changes(root: Path, base: str) -> Counter[str]:
    """Return by room the lines of code that a checkout has more than a commit."""
    changed = git(root, "diff", "--name-only", "--no-renames", "-z", base, "--")
    added = git(root, "ls-files", "--others", "--exclude-standard", "-z")
    names = [name for name in (changed + added).decode().split("\0") if Path(name).suffix in PYTHON | C]
    before = io.BytesIO(git(root, "cat-file", "--batch", given="".join(f"{base}:{name}\n" for name in names)))
    rooms: Counter[str] = Counter()
    for name in names:
        suffix, path = Path(name).suffix, root / name
        if path.is_file():
            rooms[room_of(name)] += code_lines(path.read_text(encoding="utf-8"), suffix)
        if (head := before.readline().split())[-1] != b"missing":
            rooms[room_of(name)] -= code_lines(before.read(int(head[2])).decode(), suffix)
            before.readline()
    return rooms


def git(root: Path, *arguments: str, given: str = "") -> bytes:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, input=given.encode(), capture_output=True, check=True).stdout


def base_of(root: Path) -> str | None:
    """Return the commit at which this branch left the base branch; None without a history or such a branch."""
    for branch in BRANCHES:
        try:
            return git(root, "merge-base", "HEAD", branch).decode().strip()
        except (OSError, subprocess.CalledProcessError):
            continue
    return None


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each room that has changed."""
    parser = argparse.ArgumentParser(prog="tests/code_lines.py", description=__doc__)
    parser.add_argument("base", nargs="?", help="a commit (default: where this branch left origin/main or main)")
    base = parser.parse_args(arguments).base or base_of(ROOT)
    if base is None:
        print("lines of code: there is no base branch to compare with")
        return 0
    rooms = {room: change for room, change in changes(ROOT, base).items() if change}
    print(f"lines of code since {base[:8]}: {sum(rooms.values()):+,}")
    for room, change in sorted(rooms.items(), key=lambda pair: pair[1]):
        print(f"  {room:14} {change:+7,}" + ("  say in CHANGELOG.md for whom" if change > 0 else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Describe the project's Python files: where they are, and what they import."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("cache", "client", "core", "kernels", "runtime", "server")
TEXT = re.compile(r"(\"\"\"|''')(?:[^\\]|\\.)*?\1", re.DOTALL)
IMPORT = re.compile(r"^[ \t]*(?:from +(\.*)([\w.]*) +import +(\([^)]*\)|[^\n#;]+)|import +([^\n#;]+))", re.MULTILINE)


def python_files(*folders: str) -> list[Path]:
    """Return all Python files below some of the project's folders."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if "__pycache__" not in path.parts)


def imports_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of all that a text imports, wherever in it; a name that begins with dots is relative.

    The text is not parsed, which would take seconds for all files.
    """
    text = TEXT.sub(lambda found: "\n" * found[0].count("\n"), text)
    for found in IMPORT.finditer(text):
        dots, module, names, modules = found.groups("")
        names = re.sub(r"#.*|[()]", "", names or modules)
        line = text.count("\n", 0, found.start()) + 1
        for name in filter(None, (one.split(" as ")[0].strip() for one in names.split(","))):
            # `from gputune.server import protocol` imports a room by its last word.
            yield line, dots + (f"{module}." if module else "") + name

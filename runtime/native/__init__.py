"""Hold the C runtime, for applications without Python: sources that build by themselves (`gputune export`)."""

from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES = tuple(f"src/{name}" for name in ("devices", "files", "graphs", "memory", "power", "profiling"))
"""The folders of the runtime's own sources, which include each other by their place."""
FOLDERS = (".", "include", "onnxruntime", *SOURCES)
_BUILT_FROM = ("Makefile", "CMakeLists.txt")


def files() -> list[Path]:
    """Return all that the C runtime is built from, relative to FOLDER."""
    found = [path for folder in FOLDERS for path in (FOLDER / folder).iterdir()]
    wanted = [path for path in found if path.suffix in (".c", ".h", ".hpp", ".map") or path.name in _BUILT_FROM]
    return sorted(path.relative_to(FOLDER) for path in wanted)

"""Build the site with Sphinx: the pages of docs/ and a few other pages, with their links."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import tool

SOURCE, SITE = tool.ROOT / "build" / "site_source", tool.ROOT / "build" / "site"
DOCS = tool.ROOT / "docs"
SCHEMAS = DOCS / "schemas"
"""Files that the site has as they are."""
ELSEWHERE: Mapping[str, str] = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "GLOSSARY.md": "glossary.md",
    "kernels/README.md": "kernels.md",
    "scripts/README.md": "tools.md",
}
"""Pages outside of docs/, and what they are called in the site."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def make() -> int:
    """Makes it; whatever Sphinx warns of is an error. The exit code."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(DOCS, SOURCE, ignore=shutil.ignore_patterns("__pycache__"))
    for page, text in pages().items():
        (SOURCE / page).write_text(text, encoding="utf-8")
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(SOURCE), str(SITE)]
    code = subprocess.run(sphinx, check=False).returncode
    if code == 0:
        print(f"{SITE / 'index.html'}: {len(list(SITE.rglob('*.html')))} pages")
    return code


def pages() -> dict[str, str]:
    """The text of each page with links as the site has them, by its path in there."""
    places = {(tool.ROOT / path).resolve(): name for path, name in ELSEWHERE.items()}
    places |= {path: path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))}
    return {name: _linked(path, name, places) for path, name in places.items()}


def _title(page: Path) -> str:
    """The first heading of a page."""
    return page.read_text(encoding="utf-8").partition("# ")[2].partition("\n")[0]


def _linked(path: Path, name: str, places: Mapping[Path, str]) -> str:
    """Links that lead to no page of the site, but to a file of the code, are its name."""

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if ":" in target:
            return found[0]
        wanted = (path.parent / target).resolve()
        if wanted.is_relative_to(SCHEMAS):
            return f"[{text}]({os.path.relpath(wanted, (DOCS / name).parent)})"
        if wanted in places:
            if text.endswith(".md"):  # a name of a file, which a page of a site does not have
                text = _title(wanted)
            return f"[{text}]({os.path.relpath(places[wanted], Path(name).parent)}{anchor})"
        return text if text.startswith("`") else f"`{text}`"

    return _LINK.sub(link, path.read_text(encoding="utf-8"))

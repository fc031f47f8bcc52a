"""How Sphinx makes a site of these pages: `scripts/docs --site`."""

import itertools
import re
from importlib.metadata import version as version_of

project = "gputune"
version = release = version_of("gputune")
smartquotes = False  # which would make one dash of the two before an option
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]
source_suffix = {".md": "markdown"}
root_doc = "index"
html_theme = "furo"
html_title = f"gputune {release}"
html_show_copyright = html_show_sphinx = html_copy_source = False
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # pages begin with headings of their own
autodoc_typehints = "description"
autodoc_member_order = "bysource"


BAR = "| "
"""Begins a line of help that stands as it is written: an example, or a table."""


def _plain(app, context, lines):
    """Help is text for a terminal: in it a star is no markup, code stands in single backticks, and what is not to be
    wrapped is code."""
    groups = itertools.groupby(lines, key=lambda line: line.startswith(BAR))
    shown = [(_code if as_written else _prose)(list(group)) for as_written, group in groups]
    lines[:] = itertools.chain.from_iterable(shown)


def _prose(lines):
    for place, line in enumerate(lines):
        if not line.lstrip().startswith(".. "):
            line = re.sub(r"PosixPath\((.*?)\)", r"\1", line)
            lines[place] = re.sub(r"(?<!`)`(?!`)", "``", re.sub(r"(?<!\*)\*(?!\*)", r"\\*", line))
    return lines


def _code(lines):
    lines = [line.removeprefix(BAR) for line in lines]
    language = "sh" if any(line.startswith("gputune ") for line in lines) else "text"
    return ["", f".. code-block:: {language}", "", *(f"   {line}" for line in lines), ""]


def setup(app):
    for part in ("description", "options", "arguments"):
        app.connect(f"sphinx-click-process-{part}", _plain)

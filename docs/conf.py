"""How Sphinx makes a site of these pages: `scripts/docs --site`."""

from importlib.metadata import version as version_of

project = "gputune"
version = release = version_of("gputune")
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

"""Test that the site's pages link to each other, whatever folder their texts come from."""

import importlib.util
import re
from pathlib import PurePosixPath

import website


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (website.DOCS / "index.md").read_text(encoding="utf-8")
    listed = {
        line for block in re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL) for line in block.splitlines()
    }
    assert {name.removesuffix(".md") for name in website.pages()} - {"index"} <= listed


def test_links_lead_to_pages_of_the_site_or_are_names_of_files() -> None:
    pages = website.pages()
    for name, text in pages.items():
        code_left_out = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", code_left_out):
            assert (website.DOCS / name).with_name(target).is_file(), f"{name}: {target}"
        for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)#\s:]+)(?:#[^)]*)?\)", code_left_out):
            place = PurePosixPath(name).parent / target
            parts: list[str] = []
            for part in place.parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            found = "/".join(parts) in pages or (website.DOCS / place).is_relative_to(website.SCHEMAS)
            assert found and ((website.DOCS / place).is_file() or place.suffix == ".md"), f"{name}: {target}"


def test_a_link_that_is_called_by_its_file_gets_the_title_of_its_page() -> None:
    pages = website.pages()
    assert "[Comparing with other engines](comparing.md)" in pages["tutorial.md"]
    assert not [name for name, text in pages.items() if re.search(r"\[[^\]]*\.md\]\(", text)]


def test_a_link_into_the_code_is_the_name_of_the_file() -> None:
    memory, architecture = website.pages()["memory.md"], website.pages()["architecture.md"]
    assert "](../examples/two_parts.py)" not in memory
    assert "`examples/two_parts.py`" in memory
    assert "](glossary.md)" in architecture


def test_examples_of_help_are_code() -> None:
    spec = importlib.util.spec_from_file_location("conf", website.DOCS / "conf.py")
    assert spec is not None and spec.loader is not None
    conf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conf)
    lines = ["Tune `*.onnx`.", "", "| gputune tune *.onnx   # all", "| cd out", "", "More.", "", "| hit  known", ""]
    conf._plain(None, None, lines)
    assert [line for line in lines if line] == [
        r"Tune ``\*.onnx``.",
        ".. code-block:: sh",
        "   gputune tune *.onnx   # all",
        "   cd out",
        "More.",
        ".. code-block:: text",
        "   hit  known",
    ]

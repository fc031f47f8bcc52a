"""Test what all pages promise: names stay texts, nothing is asked for, and any window and paper will do."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gputune.client.farm.engine import Announced
from gputune.client.farm.jobs import FarmJob, JobPart
from gputune.client.farm.status import farm_page
from gputune.client.pages import blocks
from gputune.client.pages.document import page
from gputune.client.report.memory import ArenaTensor, GraphMemory, MemoryReport
from gputune.client.report.sections.memory import memory_page
from gputune.client.report.sections.report import report_page
from gputune.client.report.writer import read_report
from gputune.client.viewer.sections.document import page_of
from pages.headless import Browser
from stress.made_up_cache import HOSTILE
from stress.made_up_profile import hostile_profile, made_up_profile
from tests.client.evil_names import EVIL
from tests.client.pages.reading import UNFOLD, Page, every, words, written

ROOT = Path(blocks.__file__).parent
Make = Callable[[tuple[Path, Path]], str]


def hostile_memory() -> str:
    tensors = tuple(ArenaTensor(name, 0, 64 * place, 64, place, place) for place, name in enumerate(EVIL))
    graph = GraphMemory(HOSTILE, EVIL, (64 * len(EVIL),), 64, tensors)
    return memory_page(MemoryReport(HOSTILE, EVIL[0], 5, (graph,)))


def hostile_farm() -> str:
    told = {"running": HOSTILE, "problem": "", "state": {f"clock {HOSTILE}": 1}, "trials": "x"}
    devices = {name: Announced(name, EVIL[0], {}, {}, True, told) for name in EVIL[:4]}
    return farm_page(
        devices, [FarmJob(*EVIL[:2], {}, "running", 0.0, 0.0, (JobPart(EVIL[0], HOSTILE, "queued"),))], EVIL[3], 2
    )


PAGES: dict[str, Make] = {
    "report": lambda made: report_page(read_report(*made)),
    "profile": lambda made: page_of(hostile_profile()),
    "profile without timestamps": lambda made: page_of(hostile_profile("basic")),
    "memory": lambda made: hostile_memory(),
    "farm": lambda made: hostile_farm(),
}


@pytest.fixture(params=PAGES)
def html(request: pytest.FixtureRequest, made: tuple[Path, Path]) -> str:
    return PAGES[request.param](made)


def test_names_stay_texts(html: str) -> None:
    shown = Page(html)
    assert shown.tags.keys() <= set(Page(page("", "", "", [blocks.tiles(("", "", ""))], "")).tags)
    assert shown.tags["script"] == 2
    assert shown.links == ["data:,"]
    assert not [c for c in html if not c.isprintable() and c not in "\n\xa0"]
    assert any("<script>alert(1)" in text for text in (words(shown.blocks), *shown.words))


def test_links_lead_to_a_place_of_the_page(html: str) -> None:
    shown = list(every(Page(html).blocks))
    ids = [one for block in shown for one in (block.get("id"), *block.get("ids", ())) if one]
    assert len(ids) == len(set(ids))
    linked = re.findall(r'"link":"([^"]*)"', html)
    assert set(linked) <= set(ids)


def test_without_a_script_the_main_figures_are_there(html: str) -> None:
    assert "<noscript>" in html and "needs JavaScript" in html
    figures = html.split("<table>")[1].split("</table>")[0]
    for block in every(Page(html).blocks):
        if block["kind"] == "tiles":
            assert all(f"<td>{value}</td>" in figures for _, value, _ in block["items"])


def test_no_text_is_ever_parsed() -> None:
    script = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("*.js"))
    assert script and not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|document\.write|eval\(", script
    )


def test_in_a_browser_it_is_silent_and_fits_every_window(browser: Browser, html: str, tmp_path: Path) -> None:
    address = written(tmp_path / "page.html", html)
    for width, dark in ((1280, False), (700, True), (400, False), (320, True)):
        browser.look(width, dark=dark)
        browser.load(address)
        browser.value(UNFOLD)
        assert browser.wrong(address, width) == []
        assert browser.requests() == [address]
        assert browser.value("document.querySelectorAll('img, iframe, object, b[onerror]').length") == 0
        assert browser.value("document.querySelector('main').textContent.length") > 200
        assert browser.value("[...document.querySelectorAll('.area')].every(one => one.clientWidth > 100)")


def test_on_paper_all_rows_are_open(browser: Browser, tmp_path: Path) -> None:
    browser.look(700)
    browser.load(written(tmp_path / "page.html", page_of(made_up_profile(40, 3))))
    browser.value("dispatchEvent(new Event('beforeprint'))")
    assert browser.value("document.querySelectorAll('.more').length") == 40


def test_the_browser_notices_errors_and_requests(browser: Browser, tmp_path: Path) -> None:
    browser.load(written(tmp_path / "page.html", "<img src=missing.png><script>nothing()</script>"))
    assert any("nothing is not defined" in text for text in browser.complaints())
    assert browser.requests()[1:] == [(tmp_path / "missing.png").as_uri()]


def test_the_page_forbids_a_script_that_is_not_its_own(browser: Browser, tmp_path: Path) -> None:
    taken = hostile_memory().replace("<footer>", "<script>document.title = 'taken'</script><footer>")
    browser.load(written(tmp_path / "page.html", taken))
    assert browser.value("document.title") != "taken"


@pytest.mark.parametrize(
    ("form", "value", "shown"),
    [
        ("time", 41_234, "41.2 µs"), ("micros", 41_234, "41.2"), ("bytes", 5_726_592, "5.73 MB"),
        ("count", 1234, "1,234"), ("tenth", 1234.56, "1,234.6"), ("share", 0.125, "12.5 %"),
        ("percent", 0.125, "12 %"), ("time", None, "–"),
    ],
)  # fmt: skip
def test_a_column_says_how_its_numbers_are_written(form: str, value: float | None, shown: str) -> None:
    (row,) = blocks.table([blocks.Column("x", lambda item: item, form)], [value])["rows"]
    assert row == [[shown.replace(" ", "\u00a0"), value]]

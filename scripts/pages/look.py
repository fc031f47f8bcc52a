"""Take pictures of pages in a headless Chromium: light and dark, wide and narrow.

    scripts/pages/look report [--cache FILE] [--context FILE]
    scripts/pages/look profile [--log FILE] [--schematic FILE]
    scripts/pages/look site [--only NAME]

Reports and profiles are made up unless they are given; `scripts/docs --site` makes the site. The exit code is 1 if a
page writes to the console, requests anything from elsewhere, is wider than its window, or takes over 2 s to open.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import tool
import website
from gputune.client.outputs import write_text
from gputune.client.report import write_report
from gputune.client.report.memory import read_memory
from gputune.client.report.sections.memory import memory_page
from gputune.client.viewer.profile import Profile, open_profile
from gputune.client.viewer.sections.document import page_of
from pages.headless import Browser, chromium, find_chromium
from stress import made_up_cache
from stress.made_up_profile import hostile_profile, made_up_profile

LOOKS = {
    "light": (1180, False),
    "dark": (1180, True),
    "tablet": (768, False),
    "phone": (360, False),
    "small": (320, True),
}
LONGEST_MS = 2000
TAKEN_MS = "performance.timing.loadEventEnd - performance.timing.navigationStart"
OPEN = """
document.querySelectorAll('.tasks details').forEach((task, n) => { task.open = n < 2; });
document.querySelectorAll('.folding button.fold').forEach((one, n) => { if (n < 2) one.click(); });
"""
"""What folds in a page: tasks of a report, operations of a profile."""
FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))"


def report(options: argparse.Namespace) -> list[Path]:
    """Write the report of a cache, and of a context's memory; return their pages."""
    cache, context = options.cache, options.context
    if cache is None:
        for left in options.output.glob("*.sqlite*"):
            left.unlink()
        cache, context = made_up_cache.make(options.output)
    pages = [options.output / "report.html"]
    write_report(cache, pages[0], context)
    if context is not None:
        pages.append(options.output / "memory.html")
        write_text(pages[1], memory_page(read_memory(context)))
    return pages


def profile(options: argparse.Namespace) -> list[Path]:
    """Write the pages of profiles; return them."""
    profiles: dict[str, Profile] = {
        "profile": made_up_profile(),
        "no_schematic": made_up_profile(30, 20, "detailed", with_schematic=False),
        "basic": made_up_profile(30, 20, "basic"),
        "hostile": hostile_profile(),
    }
    if options.log is not None:
        profiles = {"given": open_profile([options.log], options.schematic)}
    pages = {options.output / f"{name}.html": each for name, each in profiles.items()}
    for path, each in pages.items():
        path.write_text(page_of(each), encoding="utf-8")
    return list(pages)


def site(options: argparse.Namespace) -> list[Path]:
    """Return the pages of the site."""
    return [path for path in sorted(website.SITE.rglob("*.html")) if options.only in ("", path.stem)]


KINDS = {"report": report, "profile": profile, "site": site}


def faults(browser: Browser, page: Path, output: Path) -> Iterator[str]:
    """Take pictures of a page in each of LOOKS, as it opens and unfolded; yield what is wrong with it."""
    for name, (width, dark) in LOOKS.items():
        browser.look(width, 900, dark)
        browser.load(page.as_uri())
        taken_ms = browser.value(f"new Promise(done => setTimeout(() => done({TAKEN_MS})))")
        if taken_ms > LONGEST_MS:
            yield f"{page.stem}, {name}: the page took {taken_ms} ms to open"
        browser.picture(output / f"{page.stem}_{name}.png")
        browser.value(OPEN)
        browser.value(FRAMES)
        browser.picture(output / f"{page.stem}_{name}_open.png")
        own = website.SITE.as_uri(), "asked for data:"
        wrong = (line for line in browser.wrong(page.as_uri(), width) if not any(each in line for each in own))
        yield from (f"{page.stem}, {name}: {line}" for line in wrong)


def main(arguments: list[str] | None = None) -> int:
    """Take pictures as the command line asks; return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/pages/look", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--cache", type=Path, help="of a report: a performance cache file")
    parser.add_argument("--context", type=Path, help="of a report: a context binary that weighs its tasks")
    parser.add_argument("--log", type=Path, help="of a profile: its log")
    parser.add_argument("--schematic", type=Path, help="of a profile: the schematic of its context")
    parser.add_argument("--only", default="", metavar="NAME", help="of the site: this page alone, such as tutorial")
    parser.add_argument("--output", type=Path, help="folder of the pages and pictures (default: build/pages/KIND)")
    options = parser.parse_args(arguments)
    path = find_chromium()
    if path is None:
        sys.exit("look: there is no Chromium; on Debian: apt-get install chromium")
    options.output = (options.output or tool.ROOT / "build" / "pages" / options.kind).resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    pages = KINDS[options.kind](options)
    if not pages:
        sys.exit("look: there is no such page; scripts/docs --site makes the site")
    with chromium(path, 300) as browser:
        wrong = [line for page in pages for line in faults(browser, page, options.output)]
    print(f"{len(pages)} pages, pictures in {options.output}", *(f"WRONG  {line}" for line in wrong), sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

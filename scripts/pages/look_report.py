"""Make a report of a made-up cache, or of a given cache, and take pictures of it in a headless Chromium.

The exit code is 1 if the page writes to the console, requests anything, or is wider than its window.
"""

import argparse
import sys
from pathlib import Path

from gputune.client.report import write_report
from pages.headless import Browser, chromium, find_chromium
from stress import made_up_cache

OUTPUT = Path(__file__).parents[2] / "build" / "report"
LOOKS = {
    "light": (1180, False),
    "dark": (1180, True),
    "tablet": (768, False),
    "phone": (360, False),
    "small": (320, True),
}


def look(browser: Browser, address: str, folder: Path) -> list[str]:
    """Pictures of the page in each of LOOKS, closed and with its first two tasks open; what is wrong with it."""
    wrong = []
    for name, (width, dark) in LOOKS.items():
        browser.look(width, 900, dark)
        browser.load(address)
        browser.picture(folder / f"{name}.png")
        browser.value("document.querySelectorAll('details.task').forEach((task, n) => { task.open = n < 2; })")
        browser.picture(folder / f"{name}_open.png")
        wrong += [f"{name}: {said}" for said in browser.wrong(address, width)]
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, help="a performance cache file; a made-up one otherwise")
    parser.add_argument("--context", type=Path, help="a context binary that weighs its tasks")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the page and its pictures")
    options = parser.parse_args()
    path = find_chromium()
    if path is None:
        sys.exit("look_report: there is no Chromium; on Debian: apt-get install chromium")
    options.output.mkdir(parents=True, exist_ok=True)
    cache, context = options.cache, options.context
    if cache is None:
        for left in options.output.glob("*.sqlite*"):
            left.unlink()
        cache, context = made_up_cache.make(options.output)
    page = options.output.resolve() / "report.html"
    write_report(cache, page, context)
    with chromium(path, 300) as browser:
        wrong = look(browser, page.as_uri(), options.output)
    print(f"{page} ({page.stat().st_size} bytes), pictures beside it")
    for line in wrong:
        print(f"WRONG  {line}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

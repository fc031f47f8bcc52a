"""Make pages of made-up profiles, or of a given log, and take pictures of them in a headless Chromium.

The exit code is 1 if a page writes to the console, requests anything, is wider than its window, or takes longer than 2
s to open.
"""

import argparse
import sys
from pathlib import Path

from gputune.client.viewer.page.document import page_of
from gputune.client.viewer.profile import Profile, open_profile
from pages.headless import Browser, chromium, find_chromium
from stress.made_up_profile import hostile_profile, made_up_profile

OUTPUT = Path(__file__).parents[2] / "build" / "profile"
LOOKS = {"light": (1180, False), "dark": (1180, True), "phone": (390, False), "small": (320, True)}
LONGEST_MS = 2000
OPEN_ROWS = "document.querySelectorAll('.foldable button.fold').forEach((one, n) => { if (n < 2) one.click(); })"
TAKEN_MS = "performance.timing.loadEventEnd - performance.timing.navigationStart"


def look(browser: Browser, page: Path, folder: Path) -> list[str]:
    """Pictures of a page in each of LOOKS, with two operations open; what is wrong with it."""
    wrong = []
    address = page.as_uri()
    for name, (width, dark) in LOOKS.items():
        browser.look(width, 900, dark)
        browser.load(address)
        taken_ms = browser.value(f"new Promise(done => setTimeout(() => done({TAKEN_MS})))")
        print(f"{page.stem} {name}: opened in {taken_ms} ms")
        browser.value(OPEN_ROWS)
        browser.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")
        browser.picture(folder / f"{page.stem}_{name}.png")
        if taken_ms > LONGEST_MS:
            wrong.append(f"{name}: the page took {taken_ms} ms to open")
        wrong += [f"{name}: {said}" for said in browser.wrong(address, width)]
    return [f"{page.stem} {line}" for line in wrong]


def profiles(log: Path | None, schematic: Path | None) -> dict[str, Profile]:
    """The profiles that are looked at, by the names of their pages."""
    if log is not None:
        return {"given": open_profile([log], schematic)}
    return {
        "profile": made_up_profile(),
        "no_schematic": made_up_profile(30, 20, "detailed", with_schematic=False),
        "basic": made_up_profile(30, 20, "basic"),
        "hostile": hostile_profile(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, help="a profile log; made-up ones otherwise")
    parser.add_argument("--schematic", type=Path, help="the schematic of its context")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the pages and their pictures")
    options = parser.parse_args()
    path = find_chromium()
    if path is None:
        sys.exit("look_profile: there is no Chromium; on Debian: apt-get install chromium")
    folder: Path = options.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wrong = []
    with chromium(path, 300) as browser:
        for name, profile in profiles(options.log, options.schematic).items():
            page = folder / f"{name}.html"
            page.write_text(page_of(profile), encoding="utf-8")
            print(f"{page} ({page.stat().st_size} bytes), pictures beside it")
            wrong += look(browser, page, folder)
    for line in wrong:
        print(f"WRONG  {line}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

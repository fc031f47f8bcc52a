"""Test real device strings and their tiers."""

import json
from pathlib import Path
from typing import Any

import pytest

from gputune.core.tier import tier_of

NAMES: dict[str, Any] = json.loads(Path(__file__).with_name("devices.json").read_text(encoding="utf-8"))
"""What OpenCL devices say of themselves, in three lists.

known: names in CLBlast's database (github.com/CNugteren/CLBlast, src/database) by the families of its tuning page, with
which the rules were improved. unseen: name, vendor and family of devices in public bug reports, which were looked for
when the rules were done. described: name, vendor, device version, and the family and vendor of the tier.
"""
KNOWN: dict[str, list[str]] = NAMES["known"]
DEVICES: list[tuple[str, str, str, str, str]] = NAMES["described"]


@pytest.mark.parametrize(("name", "vendor", "version", "family", "maker"), DEVICES)
def test_family_and_vendor(name: str, vendor: str, version: str, family: str, maker: str) -> None:
    tier = tier_of(name, 4, vendor, version)
    assert (tier.family, tier.vendor) == (family, maker)


@pytest.mark.parametrize("family", KNOWN)
def test_devices_of_a_family(family: str) -> None:
    assert {name: tier_of(name, 4).family for name in KNOWN[family]} == dict.fromkeys(KNOWN[family], family)


def test_devices_that_the_rules_were_not_made_for() -> None:
    """All of them: one that fails says that a rule fits too much."""
    unseen = NAMES["unseen"]
    assert len(unseen) >= 20
    assert [tier_of(name, 4, vendor).family for name, vendor, _ in unseen] == [family for *_, family in unseen]


def test_every_model_and_number_of_compute_units_has_a_file_of_its_own() -> None:
    names = {tier_of(n, cu, v, d).file_name for n, v, d, _, _ in DEVICES for cu in (2, 4)}
    assert len(names) == 2 * len(DEVICES)


@pytest.mark.parametrize(
    ("name", "file_name"),
    [
        ("pthread-skylake-avx512-AMD EPYC", "pthread-skylake-avx512-amd-epyc-cu2.sqlite"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "intel-xeon-cpu-2-20ghz-cu2.sqlite"),
        ("../../etc/passwd\0", "etc-passwd-cu2.sqlite"),
    ],
)
def test_file_name(name: str, file_name: str) -> None:
    assert tier_of(name, 2).file_name == file_name


def test_an_adreno_is_named_by_its_version() -> None:
    assert tier_of("QUALCOMM Adreno(TM)", 6, "QUALCOMM", "OpenCL 3.0 Adreno(TM) 740").name == "adreno-740-cu6"


@pytest.mark.parametrize("name", ["", "骁龙", "x" * 5000, "///", "\udcff"])
def test_any_name_gives_a_file_name_that_fits(name: str) -> None:
    file_name = tier_of(name, 1).file_name
    assert "/" not in file_name
    assert 0 < len(file_name.encode()) < 200


def test_names_that_cannot_be_written_out_stay_apart() -> None:
    assert tier_of("骁龙", 1) != tier_of("麒麟", 1)
    assert tier_of("x" * 500 + "a", 1) != tier_of("x" * 500 + "b", 1)

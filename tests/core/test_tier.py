"""Test real device strings and their tiers."""

import pytest

from gputune.core.tier import tier_of

from .devices import KNOWN, UNSEEN

# name, vendor, device version -> family, vendor of the tier
DEVICES = [
    ("pthread-skylake-avx512-AMD EPYC", "AuthenticAMD", "OpenCL 3.0 PoCL", "cpu-avx512", "amd"),
    ("pthread-Intel(R) Xeon(R) CPU @ 2.20GHz", "GenuineIntel", "OpenCL 1.2 pocl", "cpu", "intel"),
    ("pthread-haswell-Intel(R) Xeon(R) CPU @ 2.20GHz", "GenuineIntel", "", "cpu-avx2", "intel"),
    ("cpu-znver4-AMD Ryzen 9 7950X 16-Core Processor", "AuthenticAMD", "", "cpu-avx512", "amd"),
    ("cpu-minimal-skylake-Intel(R) Core(TM) i7-6700 CPU @ 3.40GHz", "", "", "cpu-avx2", "intel"),
    ("pthread-cortex-a76", "ARM", "", "cpu-neon", "arm"),
    ("cpu-neoverse-n1", "0x41", "", "cpu-neon", "arm"),
    ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", "Intel(R) Corporation", "", "cpu-intel-runtime", "intel"),
    ("AMD EPYC 7763 64-Core Processor", "Intel(R) Corporation", "", "cpu-intel-runtime", "amd"),
    ("QUALCOMM Adreno(TM)", "QUALCOMM", "OpenCL 3.0 Adreno(TM) 740", "adreno-7xx", "qualcomm"),
    ("QUALCOMM Adreno(TM)", "QUALCOMM", "OpenCL 2.0 Adreno(TM) 640", "adreno-6xx", "qualcomm"),
    ("QUALCOMM Adreno(TM) 330", "QUALCOMM", "OpenCL 1.2", "adreno-4xx", "qualcomm"),
    ("Mali-T760", "ARM", "", "mali-midgard", "arm"),
    ("Mali-G76 r0p0", "ARM", "", "mali-bifrost", "arm"),
    ("Mali-G710 r0p0", "ARM", "", "mali-valhall", "arm"),
    ("Mali-G715-Immortalis MC11", "ARM", "", "mali-valhall", "arm"),
    ("Immortalis-G720", "ARM", "", "mali-5th-generation", "arm"),
    ("NVIDIA H200", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia-hopper", "nvidia"),
    ("NVIDIA A100-SXM4-40GB", "NVIDIA Corporation", "", "nvidia-ampere", "nvidia"),
    ("NVIDIA RTX A4000", "NVIDIA Corporation", "", "nvidia-ampere", "nvidia"),
    ("NVIDIA RTX 6000 Ada Generation", "NVIDIA Corporation", "", "nvidia-ada", "nvidia"),
    ("NVIDIA GeForce RTX 3090", "NVIDIA Corporation", "", "nvidia-ampere", "nvidia"),
    ("NVIDIA GeForce RTX 4090", "NVIDIA Corporation", "", "nvidia-ada", "nvidia"),
    ("NVIDIA GeForce RTX 5090", "NVIDIA Corporation", "", "nvidia-blackwell", "nvidia"),
    ("NVIDIA L4", "NVIDIA Corporation", "", "nvidia-ada", "nvidia"),
    ("Tesla T4", "NVIDIA Corporation", "", "nvidia-turing", "nvidia"),
    ("Tesla V100-SXM2-16GB", "NVIDIA Corporation", "", "nvidia-volta", "nvidia"),
    ("GeForce GTX 1080 Ti", "NVIDIA Corporation", "", "nvidia-pascal", "nvidia"),
    ("gfx1030", "Advanced Micro Devices, Inc.", "", "amd-rdna2", "amd"),
    ("gfx90a:sramecc+:xnack-", "Advanced Micro Devices, Inc.", "", "amd-cdna", "amd"),
    ("gfx90c:xnack-", "Advanced Micro Devices, Inc.", "", "amd-gcn", "amd"),
    ("AMD Radeon RX 7900 XTX (radeonsi, navi31, LLVM 17)", "AMD", "", "amd-rdna3", "amd"),
    ("AMD Ryzen 7 5800U with Radeon Graphics", "AMD", "", "amd", "amd"),
    ("Intel(R) Arc(TM) A770 Graphics", "Intel(R) Corporation", "", "intel-xe-hpg", "intel"),
    ("Intel(R) Arc(TM) B580 Graphics", "Intel(R) Corporation", "", "intel-xe2", "intel"),
    ("Intel(R) Iris(R) Xe Graphics", "Intel(R) Corporation", "", "intel-xe-lp", "intel"),
    ("Intel(R) UHD Graphics 630", "Intel(R) Corporation", "", "intel-gen9", "intel"),
    ("Intel(R) Data Center GPU Max 1550", "Intel(R) Corporation", "", "intel-xe-hpc", "intel"),
    ("PowerVR Rogue GE8320", "Imagination Technologies", "", "powervr-rogue", "imagination"),
    ("Apple M4 Pro", "Apple", "", "apple-9", "apple"),
    ("AMD Ryzen 7 5800H with Radeon Graphics", "Intel(R) Corporation", "", "cpu-intel-runtime", "amd"),
    ("TI Multicore C66 DSP", "", "", "ti-multicore-c66-dsp", "unknown"),
]


@pytest.mark.parametrize(("name", "vendor", "version", "family", "maker"), DEVICES)
def test_family_and_vendor(name: str, vendor: str, version: str, family: str, maker: str) -> None:
    tier = tier_of(name, 4, vendor, version)
    assert (tier.family, tier.vendor) == (family, maker)


@pytest.mark.parametrize("family", KNOWN)
def test_devices_of_a_family(family: str) -> None:
    assert {name: tier_of(name, 4).family for name in KNOWN[family]} == dict.fromkeys(KNOWN[family], family)


def test_devices_that_the_rules_were_not_made_for() -> None:
    """All of them: one that fails says that a rule fits too much."""
    assert len(UNSEEN) >= 20
    assert {name: tier_of(name, 4, vendor).family for name, vendor, _ in UNSEEN} == {
        name: family for name, _, family in UNSEEN
    }


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

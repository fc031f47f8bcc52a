"""Compute the device tier, which selects the cache file for a device's measurements and its context in a package.

The exact model and its compute units decide. Family (devices that mostly prefer the same configurations) and vendor
come from the rules below, in order, and are stored with each record. A device that no rule knows is its own family, so
it shares measurements with no other.
"""

import hashlib
import re
from dataclasses import dataclass, replace

SUFFIX = ".sqlite"
"""Of the name of a performance cache, which is its tier's otherwise."""

_MAXIMUM_SLUG = 120  # leaves room for the suffixes of a file name limited to 255 bytes


@dataclass(frozen=True)
class Tier:
    """Name a device and its kind. name: exact model and compute units as a file stem; family, vendor: short lower-case
    names."""

    name: str
    family: str
    vendor: str

    @property
    def file_name(self) -> str:
        """Return the performance cache file of this tier inside its folder."""
        return f"{self.name}{SUFFIX}"


@dataclass(frozen=True)
class _Rule:
    pattern: str  # searched in the model, ignoring case
    vendor: str
    family: str


# PoCL names a CPU device "pthread-MARCH-MODEL", since version 4 "cpu-MARCH-MODEL"; the march says which
# vectors it has.
_POCL = re.compile(r"^(?:pthread|basic|cpu-minimal|cpu)-(?=\w)")
_POCL_MARCHES = (
    (
        "cpu-avx512",
        r"skylake-avx512|skx|cascadelake|cooperlake|cannonlake|icelake|tigerlake|rocketlake"
        r"|sapphirerapids|emeraldrapids|graniterapids|znver[45]|knl|x86-64-v4",
    ),
    (
        "cpu-avx2",
        r"haswell|broadwell|skylake|alderlake|raptorlake|meteorlake|arrowlake|lunarlake|gracemont"
        r"|sierraforest|bdver4|znver[123]|x86-64-v3",
    ),
    ("cpu-neon", r"cortex|neoverse|apple|exynos|kryo|falkor|thunderx|a64fx|ampere"),
)
# Makers of CPUs; the first that is found in its name.
_CPU_VENDORS = (
    ("amd", r"\bAMD\b|EPYC|Ryzen|Threadripper|znver|bdver|btver"),
    ("intel", r"Intel|Xeon|Atom|Celeron|Pentium"),
    ("arm", r"\bARM\b|Cortex|Neoverse"),
    ("apple", r"\bApple\b"),
)
_GRAPHICS = r"Graphics|Radeon|\bGPU\b"
_INTEL_VENDOR, _INTEL_RUNS = r"^Intel", r"EPYC|Ryzen|Threadripper"
_CPU = r"\b(CPU|Xeon|EPYC|Ryzen|Threadripper|Atom|Celeron|Pentium)\b|\bCore\(TM\)|Cortex-[AX]"

_GPU_RULES = (
    _Rule(r"Adreno.*\b8\d\d\b", "qualcomm", "adreno-8xx"),
    _Rule(r"Adreno.*\b7\d\d\b", "qualcomm", "adreno-7xx"),
    _Rule(r"Adreno.*\b6\d\d\b", "qualcomm", "adreno-6xx"),
    _Rule(r"Adreno.*\b5\d\d\b", "qualcomm", "adreno-5xx"),
    _Rule(r"Adreno.*\b[34]\d\d\b", "qualcomm", "adreno-4xx"),
    _Rule(r"Adreno", "qualcomm", "adreno"),
    _Rule(r"Mali-T\d", "arm", "mali-midgard"),
    _Rule(r"Mali-G(31|51|52|71|72|76)\b", "arm", "mali-bifrost"),
    _Rule(r"Mali-G(57|68|77|78|310|510|610|615|710|715)|Immortalis-G715", "arm", "mali-valhall"),
    _Rule(r"(Mali|Immortalis)-G(1|620|625|720|725|925)\b", "arm", "mali-5th-generation"),
    _Rule(r"Mali|Immortalis", "arm", "mali"),
    _Rule(r"PowerVR SGX", "imagination", "powervr-sgx"),
    _Rule(r"PowerVR Rogue", "imagination", "powervr-rogue"),
    _Rule(r"PowerVR [A-E]-Series|PowerVR .*\b[A-D]X[ETMS]-|PowerVR Volcanic", "imagination", "powervr-volcanic"),
    _Rule(r"PowerVR", "imagination", "powervr"),
    _Rule(r"^Apple M1\b|^Apple A14\b", "apple", "apple-7"),
    _Rule(r"^Apple M2\b|^Apple A1[56]\b", "apple", "apple-8"),
    _Rule(r"^Apple M[34]\b|^Apple A1[78]\b", "apple", "apple-9"),
    _Rule(r"^Apple M\d|^Apple A\d", "apple", "apple-gpu"),
    _Rule(r"RTX\s?50\d\d|NVIDIA G?B[1-3]00\b|Blackwell", "nvidia", "nvidia-blackwell"),
    _Rule(r"NVIDIA G?H([128]00|20)\b", "nvidia", "nvidia-hopper"),
    _Rule(r"RTX\s?40\d\d|NVIDIA L(4|20|40S?)\b|\bAda Generation", "nvidia", "nvidia-ada"),
    _Rule(r"RTX\s?(30\d\d|2050)|RTX A\d{4}|(NVIDIA |^)A(2|10G?|16|30|40|100|800)\b", "nvidia", "nvidia-ampere"),
    _Rule(
        r"RTX\s?20[6-8]\d|GTX\s?16\d\d|(NVIDIA|Tesla) T4G?\b|TITAN RTX|Quadro (RTX|T\d)|MX450",
        "nvidia",
        "nvidia-turing",
    ),
    _Rule(r"Tesla V100|TITAN V\b|GV100", "nvidia", "nvidia-volta"),
    _Rule(
        r"GTX?\s?10\d\d|Tesla P(4|40|100)\b|Quadro P\d|(?<!GTX )TITAN Xp?\b|MX[123]\d0\b", "nvidia", "nvidia-pascal"
    ),
    _Rule(r"GTX (9\d\d|750|TITAN X)|9\d0MX?\b|Tesla M(4|40|60)\b|Quadro M\d", "nvidia", "nvidia-maxwell"),
    _Rule(r"GTX? [67]\d\d|GTX TITAN|Tesla K\d|GRID K\d|9\d0A\b|Quadro K\d", "nvidia", "nvidia-kepler"),
    _Rule(r"GTX? [45]\d\d|Tesla [CM]20\d\d", "nvidia", "nvidia-fermi"),
    _Rule(r"NVIDIA|GeForce|Quadro|Tesla|\bGRID\b", "nvidia", "nvidia"),
    _Rule(r"gfx(908|90a|94\d|950)|Instinct MI\d{3}|\bMI\d{3}X?\b", "amd", "amd-cdna"),
    _Rule(r"gfx12\d\d|Radeon.* RX 9\d{3}", "amd", "amd-rdna4"),
    _Rule(r"gfx11\d\d|Radeon.* RX 7\d{3}|PRO W7\d{3}|Radeon 7[4678]0M", "amd", "amd-rdna3"),
    _Rule(r"gfx103\d|Radeon.* RX 6\d{3}|PRO W6\d{3}|Radeon 6[68]0M", "amd", "amd-rdna2"),
    _Rule(r"gfx101\d|Radeon.* RX 5\d{3}\b", "amd", "amd-rdna1"),
    _Rule(r"Radeon HD [456]\d{3}|\b(Turks|Caicos|Barts|Cayman)\b", "amd", "amd-terascale"),
    _Rule(
        r"gfx[6-9]|Vega|Instinct MI\d\d\b|Radeon.* RX ?[45]\d\d\b|Radeon (Pro )?[45]\d\d\b|FirePro"
        r"|Radeon (R[579]|HD [78]\d{3}|VII)\b"
        r"|\b(Ellesmere|Baffin|Hawaii|Fiji|Tonga|Tahiti|Pitcairn|Oland|Bonaire|Capeverde)\b",
        "amd",
        "amd-gcn",
    ),
    _Rule(r"\bAMD\b|Radeon|Advanced Micro", "amd", "amd"),
    _Rule(r"Data Center GPU Max|Ponte Vecchio", "intel", "intel-xe-hpc"),
    _Rule(r"\bArc\b.* B\d{2,3}\b", "intel", "intel-xe2"),
    _Rule(r"\bArc\b|Data Center GPU Flex", "intel", "intel-xe-hpg"),
    _Rule(r"Iris.*Xe|UHD Graphics 7\d\d", "intel", "intel-xe-lp"),
    _Rule(r"Gen11|Iris.*Plus.* (G4|G7)\b", "intel", "intel-gen11"),
    _Rule(r"U?HD Graphics P?[56]\d\d\b|Iris.* (5|6)\d\d\b|Gen9|Skylake|Kaby ?Lake", "intel", "intel-gen9"),
    _Rule(r"BroadWell|HD Graphics [56]\d{3}\b|Gen8|Iris.* 6\d{3}\b", "intel", "intel-gen8"),
    _Rule(r"Haswell|Ivy ?Bridge|HD Graphics 4\d{3}\b|Gen7|Iris.* 5\d{3}\b|^Iris( Pro)?$", "intel", "intel-gen7"),
    _Rule(r"RaptorLake|AlderLake|TigerLake|RocketLake", "intel", "intel-xe-lp"),
    _Rule(r"Intel.*Graphics|\bU?HD Graphics\b|^Intel.*\bGraphics\b", "intel", "intel-gpu"),
)  # fmt: skip


def named(tier: Tier, name: str) -> Tier:
    """Return the tier under another name: measurements of devices that the user knows to be alike share a file.
    ValueError for what is no file name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}", name):
        raise ValueError(f"{name!r} is not a tier name: use letters, digits, dots, dashes and underscores")
    return replace(tier, name=name)


def tier_of(name: str, compute_units: int, vendor: str = "", device_version: str = "") -> Tier:
    """Return the tier of a device from its CL_DEVICE_NAME, _MAX_COMPUTE_UNITS, _VENDOR and _VERSION."""
    model = " ".join(name.split())
    adreno = re.search(r"Adreno\S*\s+\S+", device_version)
    if adreno and "adreno" in model.lower():  # its name has no number, its version has
        model = adreno.group()
    family, maker = _family(model, vendor)
    slug = _slug(model, "device")
    return Tier(
        name=f"{slug}-cu{compute_units}",
        family=family or slug,
        vendor=maker or _slug(vendor, "unknown"),
    )


def _family(model: str, vendor: str) -> tuple[str, str]:
    """Return (family, vendor); empty where no rule knows."""
    pocl = _POCL.match(model)
    if pocl:
        rest = model[pocl.end() :]
        family = next((f for f, marches in _POCL_MARCHES if re.match(marches, rest, re.IGNORECASE)), "cpu")
        return family, _cpu_vendor(rest)
    if re.search(_INTEL_VENDOR, vendor) and re.search(_INTEL_RUNS, model):  # it may have graphics, too
        return "cpu-intel-runtime", _cpu_vendor(model)
    for rule in _GPU_RULES:
        if re.search(rule.pattern, model, re.IGNORECASE) and not _is_cpu(model):
            return rule.family, rule.vendor
    if _is_cpu(model):  # Intel's runtime for CPUs: it chooses a vector width, which the name does not tell
        return "cpu-intel-runtime", _cpu_vendor(model)
    return "", ""


def _is_cpu(model: str) -> bool:
    return bool(re.search(_CPU, model, re.IGNORECASE)) and not re.search(_GRAPHICS, model)


def _cpu_vendor(model: str) -> str:
    return next((v for v, words in _CPU_VENDORS if re.search(words, model, re.IGNORECASE)), "")


def _slug(text: str, otherwise: str) -> str:
    """Return lower-case letters, digits and dashes; what a file name cannot hold is cut and told apart by a hash."""
    without_marks = re.sub(r"\((R|TM|C)\)", " ", text, flags=re.IGNORECASE)
    slug = re.sub(r"[^a-z0-9]+", "-", without_marks.lower()).strip("-")
    if slug and len(slug) <= _MAXIMUM_SLUG and text.isascii():
        return slug
    if not text:
        return otherwise
    short = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{slug[:_MAXIMUM_SLUG].strip('-') or otherwise}-{short}"

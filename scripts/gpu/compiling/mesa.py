"""Read what Mesa's drivers for Adreno and Mali print of a kernel that they compile.

They print a kernel once for each variant; the last one is the one that would run. Mali's driver counts the cycles that
each of a core's pipes takes for the whole kernel, with a loop counted once.
"""

import re

from gpu.compiling.listing import Dialect, Facts, Line, counted, listed

_SAID = re.compile(r"(?m)^MESA: info: (.*)$")
_LABEL = re.compile(r"^l(\d+):")
_INSTRUCTION = re.compile(r"^(?:\([a-z0-9]+\)\s*)*([a-z][\w.]*)(.*)")
_TARGET = re.compile(r"#l(\d+)")
_FULL = re.compile(r"\b(\d+) full,")
_MEMORY = re.compile(r"\b(ldp|stp)\.")
_PIPES = re.compile(r"SHADER-DB: .*")
_LOADS = re.compile(r"([\d.]+) (?:ls|ldst),")
_ARITHMETIC = re.compile(r"([\d.]+) (?:fma|arith),")
_SPILLS = re.compile(r"(\d+):(\d+) spills:fills")
REGISTER_BYTES = 4


def read_adreno(said: str) -> Facts | None:
    """Return what became of the kernel of which a driver said all this; None if it did not come that far. registers
    are vectors of 4."""
    lines = [line.strip() for line in _SAID.findall(said)]
    sizes = [found[1] for line in lines if (found := _FULL.search(line))]
    ends = [place for place, line in enumerate(lines) if line == "}"]
    if not sizes or not ends:
        return None
    text = "\n".join(_repeated(line) for line in lines[ends[-1] + 1 :])
    fields = counted(*listed(text, _LABEL, _INSTRUCTION, _line), ADRENO)
    private = sum(bool(_MEMORY.search(line)) for line in lines[ends[-1] + 1 :])
    return Facts(int(sizes[-1]), REGISTER_BYTES * private, **fields)


def read_mali(said: str) -> Facts | None:
    """Return what became of the kernel of which a driver said all this; None if it did not come that far."""
    if not (found := _PIPES.findall(said)):
        return None
    loads, arithmetic, spills = (pattern.search(found[-1]) for pattern in (_LOADS, _ARITHMETIC, _SPILLS))
    assert loads and arithmetic and spills, found[-1]
    ratio = float(loads[1]) / max(float(arithmetic[1]), 1e-9)
    return Facts(spills=REGISTER_BYTES * (int(spills[1]) + int(spills[2])), load_cycles=ratio)


def _repeated(line: str) -> str:
    """Return an instruction as often as it takes an issue slot."""
    found = re.search(r"\(rpt(\d)\)", line)
    return "\n".join([line] * (1 + int(found[1]) if found else 1))


def _line(instruction: re.Match[str]) -> Line:
    name, operands = instruction.groups()
    kind = name.partition(".")[0]
    target = _TARGET.search(operands) if kind in ("br", "jump", "bany", "ball", "brao", "braa") else None
    return Line(name, target[1] if target else "", kind not in ("jump", "end"))


def _loads(name: str) -> bool:
    return name.startswith(("ldg", "ldl", "ldp", "isam"))


def _global_bytes(name: str) -> int:
    """Widths stand among operands, and compilers choose them."""
    return 0


ADRENO = Dialect(lambda name: int(name.startswith("mad.f32")), _loads, _global_bytes)

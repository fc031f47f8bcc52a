"""Read what ptxas says of kernels and what nvdisasm writes of them."""

import re
from collections import Counter
from collections.abc import Iterator

from gpu.compiling.listing import Dialect, Facts, Line, counted, listed
from gputune.runtime.devices.resources import ptxas_resources

_SECTION = re.compile(r"(?m)^//-+ \.text\.(\S+)")
_LABEL = re.compile(r"^(\.L_\w+):")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?);")
_TARGET = re.compile(r"\((\.L_\w+)\)")
_ORDERING = re.compile(r"(?m)^\s*(?:@%p\d+\s+)?((?:membar|fence|ld\.global\.nc)[\w.]*)")
_WIDTH = re.compile(r"\.(?:[US]?(8|16)|(64|128))(?:\.|$)")


def read(ptx: str, said: str, sass: str) -> dict[str, Facts]:
    """Return what became of each kernel. Fences and reads that are not coherent are counted as PTX names them."""
    listings = {name: counted(*listed(text, _LABEL, _INSTRUCTION, _line), DIALECT) for name, text in _sections(sass)}
    ordering = Counter(_ORDERING.findall(ptx))
    found: dict[str, Facts] = {}
    for name, own in ptxas_resources(said).items():
        if own.registers is not None:  # else it is a function that kernels call
            fields = dict(listings[name])
            fields["instructions"] = {**fields["instructions"], **ordering}
            found[name] = Facts(own.registers, own.spilled_bytes, own.private_bytes, own.local_bytes, **fields)
    return found


def _sections(sass: str) -> Iterator[tuple[str, str]]:
    _, *rest = _SECTION.split(sass)
    return zip(rest[::2], rest[1::2], strict=True)


def _line(instruction: re.Match[str]) -> Line:
    condition, name, operands = instruction.groups()
    kind = name.partition(".")[0]
    if kind == "HFMA2" and "-RZ" in operands:
        name = kind = "MOV"  # how ptxas writes a constant into a register
    target = _TARGET.search(operands) if kind == "BRA" else None
    conditional = condition or operands.startswith(("P", "!P", "UP", "!UP"))  # BRA.U UP0, (label)
    goes_on = bool(conditional) or kind not in ("BRA", "EXIT", "RET")
    return Line(name, target[1] if target else "", goes_on)


def _multiply_adds(name: str) -> int:
    kind = name.partition(".")[0]
    return {"FFMA": 1, "FFMA2": 2, "HFMA2": 2, "DFMA": 1}.get(kind, 0)


def _loads(name: str) -> bool:
    return name.partition(".")[0] in ("LDG", "LDS", "LDL", "LD", "LDSM", "LDGSTS")


def _global_bytes(name: str) -> int:
    if name.partition(".")[0] not in ("LDG", "STG", "LD", "ST", "LDGSTS"):
        return 0
    bits = _WIDTH.search(name)
    return int(bits[1] or bits[2]) // 8 if bits else 4


DIALECT = Dialect(_multiply_adds, _loads, _global_bytes)

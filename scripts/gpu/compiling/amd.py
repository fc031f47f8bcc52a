"""Read the assembler's text that clang writes for AMD's GPUs."""

import re

from gpu.compiling.listing import Dialect, Facts, Line, counted, listed

REGISTER_BYTES = 4
_BODY = r"(?ms)^{name}:.*?^\.Lfunc_end"
_LABEL = re.compile(r"^(\.?L?BB\d+_\d+):")
_INSTRUCTION = re.compile(r"^\t([a-z]\w+)\b(.*)")
_TARGET = re.compile(r"(\.?L?BB\d+_\d+)")
_MOVES = re.compile(r"(?:global|flat)_(?:load|store)_(.*)")
_BYTES = {"dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}


def read(assembly: str) -> dict[str, Facts]:
    """Return what became of each kernel."""
    metadata = assembly.partition("amdhsa.kernels:")[2].partition("amdhsa.target:")[0]
    found: dict[str, Facts] = {}
    for block in re.split(r"(?m)^  - ", metadata)[1:]:
        fields = dict(re.findall(r"(?m)^    \.(\w+): +(\S+)$", block))
        body = re.search(_BODY.format(name=re.escape(fields["name"])), assembly)
        assert body is not None, fields["name"]
        found[fields["name"]] = Facts(
            int(fields["vgpr_count"]),
            REGISTER_BYTES * int(fields["vgpr_spill_count"]),
            int(fields["private_segment_fixed_size"]),
            int(fields["group_segment_fixed_size"]),
            **counted(*listed(body[0], _LABEL, _INSTRUCTION, _line), DIALECT),
        )
    return found


def _line(instruction: re.Match[str]) -> Line:
    name, operands = instruction.groups()
    target = _TARGET.search(operands) if "branch" in name else None
    goes_on = name not in ("s_branch", "s_endpgm", "s_setpc_b64")
    return Line(name, target[1] if target else "", goes_on)


def _multiply_adds(name: str) -> int:
    if name.startswith(("v_pk_fma", "v_pk_fmac")):
        return 2
    return int(name.startswith(("v_fma", "v_mad_f", "v_mac_f")))


def _loads(name: str) -> bool:
    """Scalar loads, which a whole wavefront shares, do not count."""
    return name.startswith(("global_load", "flat_load", "ds_read", "buffer_load"))


def _global_bytes(name: str) -> int:
    """Buffers are private memory here."""
    moves = _MOVES.match(name)
    if moves is None:
        return 0
    kind = moves[1]
    return _BYTES.get(kind, 1 if "byte" in kind else 2)


DIALECT = Dialect(_multiply_adds, _loads, _global_bytes)

"""Define the inline assembly that sources may hold: a closed list of statements, and the device feature of each.

A compiler gives inline assembly to an assembler, whose directives read files, and an instruction that the device lacks
may do anything. So a source may hold only statements of INSTRUCTIONS, each spelled out in one place:

    __asm__ volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));

The text, the constraints and their order are the list's. Only the operands between the inner parentheses are free. The
body of a macro may hold a statement, and `volatile` may be missing.

The compiler sees the statements as they are written. Next to them a source has no other text in quotes, nothing that
makes texts, no macro `volatile`, and in each macro parentheses that match. So a macro can move or repeat a whole
statement and change its operands, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gputune.core.errors import BuildFailed


@dataclass(frozen=True)
class Instruction:
    """Describe the statements of one instruction.

    text: # in it stands for one of `numbers`. outputs, inputs: the constraints of its operands. memory: whether the
    statement has to declare that it changes memory; every other statement may.
    """

    name: str
    feature: str
    text: str
    outputs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    numbers: Collection[int] = ()
    memory: bool = False

    def texts(self) -> Iterator[str]:
        """Return its text with each number."""
        return (self.text.replace("#", str(number)) for number in self.numbers or (0,))

    def statements(self) -> Iterator[str]:
        """Return what may stand in the parentheses, without white space and operands: "text":"=r"():"f"()."""
        operands = [",".join(f'"{constraint}"()' for constraint in each) for each in (self.outputs, self.inputs)]
        for text in self.texts():
            for changed in ('"memory"',) if self.memory else ('"memory"', ""):
                yield ":".join([f'"{text}"', *operands, changed]).rstrip(":")


def _mma(shape: str, kind: str) -> Instruction:
    text = f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 {{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, "
    return Instruction(f"mma.{shape}.{kind}", f"ptx.mma.{kind}", text + "{%0,%1,%2,%3};", ("+f",) * 4, ("r",) * 6)


def _ldmatrix(form: str) -> Instruction:
    text = f"ldmatrix.sync.aligned.m8n8.{form}.shared.b16 {{%0,%1,%2,%3}}, [%4];"
    return Instruction(f"ldmatrix.{form}", "ptx.ldmatrix", text, ("=r",) * 4, ("r",))


def _shfl(name: str, lane: str, numbers: Collection[int], inputs: tuple[str, ...] = ("r",)) -> Instruction:
    text = f"shfl.sync.{name.split('.')[1]}.b32 %0, %1, {lane}, 0x1f, 0xffffffff;"
    return Instruction(name, "ptx.shfl", text, ("=r",), inputs, numbers)


INSTRUCTIONS = (
    _mma("m16n8k8", "tf32"),
    _mma("m16n8k16", "f16"),
    _mma("m16n8k16", "bf16"),
    _ldmatrix("x4"),
    _ldmatrix("x4.trans"),
    Instruction("cp.async", "ptx.cp_async", "cp.async.cg.shared.global [%0], [%1], 16;", (), ("r", "l"), memory=True),
    Instruction("cp.async.commit_group", "ptx.cp_async", "cp.async.commit_group;", memory=True),
    Instruction("cp.async.wait_group", "ptx.cp_async", "cp.async.wait_group #;", numbers=range(8), memory=True),
    Instruction("cvt.rna.tf32", "ptx.cvt", "cvt.rna.tf32.f32 %0, %1;", ("=r",), ("f",)),
    Instruction("fence.acq_rel", "ptx.fence", "fence.acq_rel.gpu;", memory=True),
    Instruction("ld.relaxed", "ptx.fence", "ld.relaxed.gpu.global.u32 %0, [%1];", ("=r",), ("l",), memory=True),
    _shfl("shfl.bfly", "#", (1, 2, 4, 8, 16)),
    _shfl("shfl.idx", "#", range(32)),
    _shfl("shfl.idx.lane", "%2", (), ("r", "r")),
    Instruction("dp4a", "ptx.dp4a", "dp4a.s32.s32 %0, %1, %2, 0;", ("=r",), ("r", "r")),
    Instruction("dp4a.add", "ptx.dp4a", "dp4a.s32.s32 %0, %1, %2, %3;", ("=r",), ("r", "r", "r")),
    # x86's sums of four products of uint8 (%1) and int8 (%2), as AT&T writes it: the result is last
    Instruction("vpdpbusd", "x86.vpdpbusd", "vpdpbusd %2, %1, %0", ("+v",), ("v", "v")),
)

STATEMENTS: Mapping[str, Instruction] = MappingProxyType(
    {statement: each for each in INSTRUCTIONS for statement in each.statements()}
)
"""The instruction of each statement, which is written as Instruction.statements says."""

_WORD = re.compile(r"\b(?:asm|__asm|__asm__)\b")
_BEGIN = re.compile(r"\b(?:asm|__asm__)\s*(?:\b(?:volatile|__volatile__)\s*)?\(")
_PIECE = re.compile(r"\"[^\"\n]*\"?|[()]|[^\"()]+")
_UNCLEAR = re.compile(r"[^\t\n -~]|[$]|\?\?|%:|<%|%>|\\")  # what compilers read differently, or not as it is written
_UNREAD = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"[^\"\n]*\"?", re.DOTALL)
_DIRECTIVE = re.compile(r"^([ \t]*#[^\n]*)", re.MULTILINE)
_MACRO_KEPT = re.compile(r"#pragma (?:push|pop)_macro\(\"\w+\"\)")
_REDEFINED = re.compile(r"#[ \t]*define[ \t]+(?:\w+\([^)]*)?\b_*volatile_*\b")  # the name of a macro or a parameter
# other texts, what makes texts, and words that begin no statement
_LEFT = re.compile(rf"[\"']|(?<!#)#(?!#)|###|{_WORD.pattern}")


def has_assembly(source: str) -> bool:
    """Return whether a word that begins inline assembly stands anywhere in a source."""
    return _WORD.search(source) is not None


def without_assembly(source: str, options: str = "") -> tuple[str, set[Instruction]]:
    """Return a source without comments and inline assembly, but with the operands, and the instructions that it has.

    Raise BuildFailed for statements that are not in the list, and for anything that could make or change a statement.
    """
    defined = [f"#define {each[2:].replace('=', ' ', 1)}\n" for each in options.split() if each.startswith("-D")]
    text = "".join(defined) + source.replace("\\\n", "")
    _refuse(_UNCLEAR.search(text))
    text = _UNREAD.sub(lambda unread: " " if unread[0].startswith("/") else unread[0], text)
    instructions: set[Instruction] = set()
    # Directives are read apart, so that no statement has one inside, or begins in a macro and ends after it.
    return "".join(_read(part, instructions) for part in _DIRECTIVE.split(text)), instructions


def check_features(instructions: Collection[Instruction], features: Collection[str]) -> None:
    """Raise BuildFailed for an instruction that needs a feature which the device has not proven."""
    for each in sorted(instructions, key=lambda each: each.name):
        if each.feature not in features:
            raise BuildFailed(
                f"inline assembly {each.name} needs the feature {each.feature}, which this device has not proven"
            )


def _read(part: str, instructions: set[Instruction]) -> str:
    """Return a directive, or what stands between two, without its statements; adds their instructions."""
    if _MACRO_KEPT.fullmatch(part):
        return ""
    directive = part.lstrip(" \t")
    _refuse(_REDEFINED.match(directive))
    if directive.startswith("#") and not _balanced(directive):
        raise BuildFailed(f"{directive[:40]!r} is not allowed next to inline assembly: its parentheses do not match")
    rest: list[str] = []
    place = 0
    while begin := _BEGIN.search(part, place):
        statement, operands, end = _statement(part, begin.end())
        if statement not in STATEMENTS:
            shown = " ".join(part[begin.start() : begin.start() + 100].split())
            raise BuildFailed(f"the inline assembly {shown!r} is not allowed: it is not in the list of gputune")
        instructions.add(STATEMENTS[statement])
        rest += part[place : begin.start()], f" {operands} "
        place = end
    rest.append(part[place:])
    left = "".join(rest)
    _refuse(_LEFT.search(left, part.index("#") + 1 if directive.startswith("#") else 0))
    return left


def _statement(text: str, begin: int) -> tuple[str, str, int]:
    """Return what stands from here to the closing parenthesis, without white space and operands, then the operands, and
    where it ends."""
    statement: list[str] = []
    operands: list[str] = []
    depth = 1
    for piece in _PIECE.finditer(text, begin):
        depth -= piece[0] == ")"
        if depth == 0:
            return "".join(statement), " ".join(operands), piece.end()
        if piece[0].startswith('"'):
            statement.append(piece[0])
        elif depth == 1:
            statement += piece[0].split()
        else:
            operands.append(piece[0])
        depth += piece[0] == "("
    return "", "", len(text)


def _balanced(text: str) -> bool:
    depth = 0
    for sign in re.findall(r"[()]", text):
        depth += 1 if sign == "(" else -1
        if depth < 0:
            return False
    return depth == 0


def _refuse(found: re.Match[str] | None) -> None:
    if found:
        raise BuildFailed(
            f"{found[0][:40]!r} is not allowed next to inline assembly: such a source has no other texts in quotes, "
            "and nothing that makes texts or that compilers could read differently"
        )

"""Test the list of inline assembly: what it holds, and which sources are read as holding it."""

import re
import time
from contextlib import suppress

import pytest

from gputune.core.assembly import INSTRUCTIONS, STATEMENTS, has_assembly, without_assembly
from gputune.core.errors import BuildFailed
from tests.core.statements import CONVERT, FENCE, KERNEL, written


def test_each_text_is_plain_names_all_operands_and_holds_no_directive() -> None:
    for each in INSTRUCTIONS:
        operands = {f"%{place}" for place in range(len(each.outputs) + len(each.inputs))}
        for text in each.texts():
            assert set(re.findall(r"%\d+", text)) == operands
            assert re.fullmatch(r"[a-z][a-z0-9._]*(?: [\w%{}\[\], ]+)?;?", text), text


def test_a_statement_belongs_to_one_instruction_and_is_no_label() -> None:
    assert len(STATEMENTS) == sum(len(list(each.statements())) for each in INSTRUCTIONS)
    assert all(":" in statement for statement in STATEMENTS)  # a label of a variable would have only a text
    assert len({each.name for each in INSTRUCTIONS}) == len(INSTRUCTIONS)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_each_statement_is_read_in_a_function_and_in_a_macro(statement: str) -> None:
    for source in (f"void f() {{ {written(statement)}; }}", f"#define F(x) \\\n  {written(statement)}\n"):
        assert has_assembly(source)
        rest, instructions = without_assembly(KERNEL + source)
        assert instructions == {STATEMENTS[statement]} and not has_assembly(rest) and '"' not in rest


@pytest.mark.parametrize(
    "source",
    [
        CONVERT.replace("__asm__", "asm"),
        CONVERT.replace("volatile", "__volatile__"),
        CONVERT.replace(" volatile", ""),
        CONVERT.replace(" ", "\n").replace('"cvt.rna.tf32.f32\n%0,\n%1;"', '"cvt.rna.tf32.f32 %0, %1;"'),
        CONVERT.replace("(x)", "(a[(i + 1) * f(2, g(3))] /* why \" ' # asm */)"),
        f'// don\'t "asm"\n{CONVERT}',
        f'#pragma push_macro("A")\n#define A(a, b) a##b\n{CONVERT}\n#pragma pop_macro("A")',
        f"#define FENCE {FENCE}\n{CONVERT}; FENCE;",
    ],
)
def test_what_does_not_change_a_statement_is_free(source: str) -> None:
    _, instructions = without_assembly(source)
    assert {each.name for each in instructions} <= {"cvt.rna.tf32", "fence.acq_rel"}


@pytest.mark.parametrize(
    "source",
    [
        'asm("");',
        'asm(".incbin x");',
        '__asm__ volatile(".incbin x" ::: "memory");',
        CONVERT.replace("cvt", "\\x63vt"),
        CONVERT.replace("cvt", "cvt /* */"),
        CONVERT.replace("%1;", "%1;;"),
        CONVERT.replace("%1;", '%1;" "'),
        CONVERT.replace("%1;", '" "%1;'),
        CONVERT.replace('"cvt', 'L"cvt'),
        CONVERT.replace('"cvt', 'X "cvt'),
        CONVERT.replace(';"', ';" X'),
        CONVERT.replace("=r", "=m"),
        CONVERT.replace('"f"', '"i"'),
        CONVERT.replace('"=r"(r)', '[r] "=r"(r)'),
        CONVERT.replace('"=r"(r)', '"=r"(r), "=r"(s)'),
        CONVERT.replace("(x)", '(x) : "cc"'),
        CONVERT.replace("(x)", "(x) :"),
        CONVERT.replace("(x)", '("x")'),
        CONVERT.replace("(x)", "('x')"),
        CONVERT.replace("(x)", f"(({{ {FENCE}; 1; }}))"),
        CONVERT.replace("(x)", "(asm)"),
        CONVERT.replace("(x)", "(x\n#if 0\n)\n#endif\n"),
        CONVERT.replace("(x)", "(x"),
        CONVERT.replace("volatile", "goto"),
        CONVERT.replace("volatile", "volatile volatile"),
        CONVERT.replace("volatile", "X"),
        CONVERT.replace("__asm__", "__asm"),
        CONVERT.replace("%0, %1", "%0,??/\n %1"),
        CONVERT.replace("%0, %1", "%0,\\ \n %1"),
        f"#define volatile goto\n{CONVERT}",
        f"#define volatile(x, ...) (x)\n{CONVERT}",
        f"#define F(x, volatile) {CONVERT}",
        f"#define/**/F(x, __volatile__)/**/{CONVERT}",
        f"#define F )\n{CONVERT}",
        f"#define F(x) x) + ((x\n{CONVERT}",
        f"#define F(x) #x\n{CONVERT}",
        f"#define F(x, y) x###y\n{CONVERT}",
        f"#define F {CONVERT.replace(';', '', 1)}".replace('"f"', '\n"f"'),
        f"#define F(x) {CONVERT[:-3]}\n)",
        f"#define F asm\n{CONVERT}",
        f"{CONVERT}; asm X;",
        f"#pragma GCC diagnostic ignored \"x\"\n{CONVERT}",
        f"constant char *t = \"x\"; {CONVERT}",
        f"constant char t = '\"'; {CONVERT}",
        f"%:define F(x) %:x\n{CONVERT}",
        f"/#pragma push_macro(\"A\")*\nasm(\"x\");\n*/{CONVERT}",
        f"int a$b; {CONVERT}",
        f"int \u00e4; {CONVERT}",
    ],
)  # fmt: skip
def test_what_could_be_other_assembly_is_refused(source: str) -> None:
    without_assembly(CONVERT)
    with pytest.raises(BuildFailed, match="is not allowed") as caught:
        without_assembly(source)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "piece",
    ["asm", "asm(", f"{CONVERT};", f"#define F {CONVERT}\n", "#define a(", "asm volatile(((", '"', "/*", "asm /", "#"],
)
def test_a_hostile_source_is_looked_through_in_little_time(piece: str) -> None:
    began = time.process_time()
    with suppress(BuildFailed):
        without_assembly(CONVERT + piece * ((1 << 18) // len(piece)))
    assert time.process_time() - began < 2.0

"""Test several launches in one text: each copy means what its source means alone; uncertain sources are left alone."""

import random
import re
import time
from dataclasses import replace
from typing import Any

import pytest

from gputune.core.launches import Launch, Stage
from gputune.kernels.catalogue import family_of
from gputune.runtime.backends.merging import LAUNCHES_AT_MOST, TEXT_CHARACTERS, built_alone, groups, merged
from tests.kernels.problems import CASE_NAMES, CASES, CPU

PLAIN = "__kernel void run(__global float *x) { x[get_global_id(0)] = SIZE; }"


def launch(source: str = PLAIN, options: str = "-DSIZE=1", entry: str = "run", local: int = 1) -> Launch:
    return Launch(source, entry, options, (64,), (local,), ("x",))


def lines(source: str, *options: str) -> list[str]:
    text = merged([launch(source, each) for each in options or ("-DSIZE=1", "-DSIZE=2")])
    assert text is not None
    return text.source.splitlines()


def test_each_copy_has_its_options_and_its_names_and_leaves_no_macro() -> None:
    source = "#define TWICE(x) \\\n  (2 * x)\n" + PLAIN
    text = merged(
        [launch(source, "-cl-fast-relaxed-math -DSIZE=4 -DFLAG"), launch(source, "-DSIZE=8 -cl-fast-relaxed-math")]
    )
    assert text is not None
    assert text.options == "-cl-fast-relaxed-math" and len(set(text.prefixes)) == 2
    found = text.source.splitlines()
    assert found.count(PLAIN) == 2
    first, second = found[: found.index(PLAIN)], found[found.index(PLAIN) + 1 :]
    assert {"#define SIZE 4", "#define FLAG 1", f"#define run {text.prefixes[0]}run"} <= set(first)
    assert {"#define SIZE 8", f"#define run {text.prefixes[1]}run"} <= set(second)
    assert "#define FLAG 1" not in second
    for name in ("SIZE", "FLAG", "TWICE", "run"):
        assert first.count(f'#pragma push_macro("{name}")') == 1
        assert second.count(f'#pragma pop_macro("{name}")') == 1 + (name != "FLAG")


def test_a_program_enables_once_what_its_texts_begin_with() -> None:
    half = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
    text = merged([launch(half + PLAIN), launch("#pragma OPENCL EXTENSION cl_khr_subgroups:enable\n" + half + PLAIN)])
    assert text is not None
    found = text.source.splitlines()
    assert found[:2] == [f"#pragma OPENCL EXTENSION {name} : enable" for name in ("cl_khr_fp16", "cl_khr_subgroups")]
    assert not any("EXTENSION" in line for line in found[2:]) and found.count(PLAIN) == 2


@pytest.mark.parametrize(
    ("source", "options", "reason"),
    [
        (PLAIN, "-DSIZE=1", ""),
        ("#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n" + PLAIN, "", ""),
        ("#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" + PLAIN, "", "it enables cl_khr_fp64, which changes other"),
        ("#pragma OPENCL EXTENSION cl_khr_fp16 : disable\n" + PLAIN, "", "it has a pragma that may last beyond"),
        (PLAIN + "\n#pragma OPENCL EXTENSION cl_khr_fp16 : enable", "", "it has a pragma that may last beyond"),
        (PLAIN + "int w = __LINE__;", "", "it has a name that differs from place to place: '__LINE__'"),
        (PLAIN + "// \u00e4", "", "it has a character that compilers read differently"),
        (PLAIN, "-Dsize=1", "its option -Dsize=1 cannot become a line of text"),
        (PLAIN.replace("run", "other"), "", "it does not declare the kernel in a form that can be copied"),
    ],
)
def test_what_is_built_alone_has_a_reason(source: str, options: str, reason: str) -> None:
    found = built_alone(launch(source, options))
    assert found.startswith(reason) and bool(found) == bool(reason)


@pytest.mark.parametrize(
    ("declaration", "name"),
    [
        ("float helper(float a) { return a; }", "helper"),
        ("static inline float4 helper (float4 a, int b)\n{ return a; }", "helper"),
        ("__constant float table[] = {1, 2, 3};", "table"),
        ("__constant int one = 1, two = 2;", "two"),
        ("typedef struct { float a; } pair;", "pair"),
        ("struct pair { float helper; };", "pair"),
        ("#if SIZE\ntypedef float2 vec;\n#endif", "vec"),
        ("/* float not_this(int a) { */ float helper(int a); // not_this(", "helper"),
        ('#define TEXT "helper(" /* \n not_this( */\n__constant int helper = 0;', "helper"),
        ("__attribute__((always_inline)) float helper(void);", "helper"),
    ],
)
def test_what_a_source_declares_has_another_name_in_each_copy(declaration: str, name: str) -> None:
    found = lines(f"{declaration}\n{PLAIN}")
    defined = [line.split()[1] for line in found if re.search("gputune_.*_0_", line) and line.startswith("#define")]
    assert name in defined and "run" in defined
    assert not {"not_this", "__attribute__", "struct", "a", "b"} & set(defined)


@pytest.mark.parametrize(
    "source",
    [
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" + PLAIN,
        '#pragma push_macro("SIZE")\n' + PLAIN,
        "/* */ # pragma OPENCL FP_CONTRACT OFF\n" + PLAIN,
        "#pr\\\nagma OPENCL FP_CONTRACT OFF\n" + PLAIN,
        "#define/* */SIZE 3\n" + PLAIN,
        "#define \\\n/* */ SIZE 3\n" + PLAIN,
        "%: define SIZE 3\n" + PLAIN,
        "??=define SIZE 3\n" + PLAIN,
        "#define\vSIZE 3\n" + PLAIN,
        "#define gr\u00f6\u00dfe 3\n" + PLAIN,
        "__constant int line = __LINE__;\n" + PLAIN,
        "__constant int next = __COUNTER__;\n" + PLAIN,
        "float __attribute__((overloadable)) f(float a);\n" + PLAIN,
        "int g(void) __attribute__((__weak__));\n" + PLAIN,
        "#define run(x) run(x)\n" + PLAIN,
        "#define gputune_0_run 1\n" + PLAIN,
        "#define KERNEL __kernel void run(\nKERNEL __global float *x) {}",
        "// " + "x" * (TEXT_CHARACTERS // 2) + "\n" + PLAIN,
    ],
)
def test_a_source_that_may_mean_something_else_beside_itself_is_left_alone(source: str) -> None:
    assert merged([launch(source, "-DSIZE=1"), launch(source, "-DSIZE=2")]) is None


@pytest.mark.parametrize(
    "options",
    [
        "-DSIZE=2 -cl-fast-relaxed-math",
        "-Dsize=2",  # a header of the driver's may have such a name
        "-D_SIZE=2",
        "-DSIZE=2 -DSIZE=3",
        "-DSIZE=a//b",
        "-DSIZE=/*",
        "-D SIZE=2",
        "-DF(x)=x",
    ],
)
def test_options_that_a_text_cannot_give_are_left_to_the_compiler(options: str) -> None:
    assert merged([launch(options="-DSIZE=1"), launch(options=options)]) is None


def test_variants_of_different_sources_are_no_group_and_an_entry_must_be_there() -> None:
    other = PLAIN.replace("run", "other")
    assert merged([launch(entry="absent"), launch(options="-DSIZE=2")]) is None
    assert groups([launch(), launch(other, entry="other"), launch(PLAIN + "\n")]) == []


def test_launches_of_different_sources_are_one_launch_and_are_found_again() -> None:
    other = "#define WIDTH SIZE\n" + PLAIN.replace("run", "other").replace("SIZE", "WIDTH")
    stage = Stage("first", (8,), (1,), ("x", 3))
    staged = replace(
        launch(other + "\n__kernel void first(__global float *x, int n) {}", entry="other"), stages=(stage,)
    )
    launches = [launch(), staged, launch(options="-DSIZE=2")]
    text = merged(launches)
    assert text is not None
    a, b, c = text.prefixes
    one = text.as_one(launches)
    assert (one.source, one.options) == (text.source, text.options)
    assert [kernel.entry for kernel in one.sequence] == [a + "run", b + "first", b + "other", c + "run"]
    assert [kernel.arguments for kernel in one.sequence] == [(a + "x",), (b + "x", 3), (b + "x",), (c + "x",)]


def test_groups_are_of_about_equal_size_and_hold_each_launch_once() -> None:
    launches = [launch(options=f"-DSIZE={n}") for n in range(LAUNCHES_AT_MOST + 1)]
    found = groups([*launches, launches[0], launch("// alone\n" + PLAIN)])
    assert sorted(map(len, found)) == [LAUNCHES_AT_MOST // 2, LAUNCHES_AT_MOST // 2 + 1]
    assert sorted(each.options for group in found for each in group) == [each.options for each in launches]


@pytest.mark.parametrize("piece", ["/* ", '\\"', "'", "#define ", "/", "( ", "#/*", "?", "a"])
def test_no_source_takes_long_to_look_at(piece: str) -> None:
    source = piece * (TEXT_CHARACTERS // len(piece) // 2 - 100) + "\n" + PLAIN
    began = time.process_time()
    merged([launch(source, "-DSIZE=1"), launch(source, "-DSIZE=2")])
    assert time.process_time() - began < 10


@pytest.mark.parametrize(("op", "name", "problem"), CASES, ids=CASE_NAMES)
def test_every_template_of_the_catalogue_can_be_shared(op: str, name: str, problem: Any) -> None:
    family = family_of(op)
    configurations = random.Random(name).sample(list(family.space(problem, CPU).configurations()), 2)
    launches = [family.render(problem, configuration).main for configuration in configurations]
    assert len(groups(launches)) == 1
    assert merged(launches) is not None

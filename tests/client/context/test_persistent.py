"""Test which launches become a persistent kernel, and how many."""

import re
from dataclasses import replace

import pytest

from gputune.client.context import persistent
from gputune.client.context.persistent import Persistent
from gputune.client.context.resuming import Access
from gputune.core.launches import ALONE, Needs
from gputune.core.quirks import DEVICE_FENCE, POCL, Fence
from gputune.kernels.template import template
from gputune.runtime.context.records import BufferRef, LaunchRecord, ProgramRecord

PLAIN = "__kernel void run(__global float *x) { x[get_global_id(0)] += BY; }"
TOGETHER = "__kernel void run(__global float *x) { x[get_global_id(0)] += BY; barrier(CLK_LOCAL_MEM_FENCE); }"
EITHER = "#if BY > 1\n" + TOGETHER + "\n#else\n" + PLAIN + "\n#endif"
HELPED = "int where() { return get_global_id(0); }\n" + PLAIN.replace("get_global_id(0)", "where()")
SHARES = template("vectors.cl") + PLAIN.replace("{ ", "{ LOCAL(float, kept, 4); ")
SAID = "// no barrier( here, and no __local\n" + PLAIN


def launch(name: str, program: int = 0, local: int = 1, size: int = 8, arena: int = 0) -> LaunchRecord:
    return LaunchRecord(name, "", program, "run", (size,), (local,), (BufferRef("arena", arena, 0, 4 * size),))


def programs(*sources: str, options: str = "-cl-std=CL1.2 -DBY=1") -> list[ProgramRecord]:
    return [ProgramRecord(b"", source, options) for source in sources]


def in_fewer_launches(
    launches: list[LaunchRecord],
    programs: list[ProgramRecord],
    groups: int,
    needs: Needs | None = None,
    fence: Fence | None = POCL.fence,
) -> list[LaunchRecord | Persistent]:
    """As far as it does not matter what is written where."""
    assert fence is not None
    accesses = [Access((), (), needs)] * len(launches)
    return persistent.in_fewer_launches(launches, programs, groups, accesses, fence)


def shape(found: list[LaunchRecord | Persistent]) -> list[str]:
    """The names of launches, those of a persistent kernel together."""
    return ["".join(each.operation for each in getattr(one, "launches", [one])) for one in found]


def test_all_that_go_together_are_one() -> None:
    launches = [launch("a"), launch("b", arena=2), launch("c", program=1, size=16)]
    (kernel,) = in_fewer_launches(launches, programs(PLAIN, PLAIN.replace("+=", "*=")), 4)
    assert isinstance(kernel, Persistent)
    assert kernel.launches == tuple(launches)
    assert kernel.options == "-cl-std=CL1.2"
    assert kernel.buffers == (("arena", 0), ("arena", 2))
    assert kernel.source.count("] += BY") == 1, "two launches of a program that are alike share its copy"
    assert in_fewer_launches(launches, programs(PLAIN, PLAIN.replace("+=", "*=")), 4) == [kernel]


def test_a_text_without_needs_shares_local_memory_only_if_its_kernel_does() -> None:
    launches = [launch("a", local=4), launch("b", local=4)]
    options = "-cl-std=CL1.2 -DBY=1 -DVW=4"
    assert shape(in_fewer_launches(launches, programs(template("vectors.cl") + PLAIN, options=options), 2)) == ["ab"]
    assert shape(in_fewer_launches(launches, programs(SHARES, options=options), 2)) == ["a", "b"]


def test_what_a_family_declares_decides_and_not_the_words_of_a_text() -> None:
    launches = [launch("a", local=4), launch("b", local=4)]
    assert shape(in_fewer_launches(launches, programs(EITHER), 2)) == ["a", "b"]
    assert shape(in_fewer_launches(launches, programs(EITHER), 2, ALONE)) == ["ab"]
    assert shape(in_fewer_launches(launches, programs(PLAIN), 2, Needs(cooperates=True))) == ["a", "b"]


def test_a_kernel_enables_what_its_parts_enable() -> None:
    half = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n" + PLAIN
    (kernel,) = in_fewer_launches([launch("a"), launch("b", program=1)], programs(PLAIN, half), 2)
    assert isinstance(kernel, Persistent)
    assert kernel.source.startswith("#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n")
    assert kernel.source.count("EXTENSION") == 1


def test_launches_that_are_alike_share_the_function_that_the_kernel_calls() -> None:
    """The kernel itself has three lines for each launch, however long a copy is: what makes a compiler slow is the
    length of one function."""

    def kernel_of(launches: list[LaunchRecord]) -> tuple[int, list[str]]:
        (kernel,) = in_fewer_launches(launches, programs(PLAIN), 4)
        assert isinstance(kernel, Persistent)
        functions, body = (
            kernel.source.count("__attribute__((noinline)) void\n"),
            kernel.source.rpartition("__kernel ")[2],
        )
        return functions, [line for line in body.splitlines() if "0share(" in line]

    alike = [launch(str(number), arena=number, local=2) for number in range(50)]
    functions, calls = kernel_of(alike)
    assert (functions, len(calls)) == (1, 50)
    assert [f"arena_{number} + 0L" in call for number, call in enumerate(calls)] == [True] * 50
    other = replace(alike[0], arguments=(*alike[0].arguments, 7))
    assert kernel_of([*alike, launch("larger", size=16), other])[0] == 3, "sizes and numbers are part of the function"


def test_names_differ_where_anything_does() -> None:
    def entry(launches: list[LaunchRecord], source: str = PLAIN, options: str = "-DBY=1") -> str:
        (kernel,) = in_fewer_launches(launches, programs(source, options=options), 2)
        assert isinstance(kernel, Persistent)
        return kernel.entry

    two = [launch("a"), launch("b")]
    others = [
        entry(two, PLAIN + " "), entry(two, options="-DBY=2"), entry([*two, launch("c")]),
        entry([launch("a"), launch("b", size=16)]),
    ]  # fmt: skip
    assert len({entry(two), *others}) == 5


@pytest.mark.parametrize(
    ("sources", "launches", "expected"),
    [
        ([PLAIN], [launch("a")], ["a"]),
        ([SAID], [launch("a", local=4), launch("b", local=4)], ["ab"]),
        ([PLAIN, TOGETHER], [launch("a"), launch("b", 1, local=4), launch("c"), launch("d")], ["a", "b", "cd"]),
        ([PLAIN, TOGETHER], [launch("a"), launch("b", 1), launch("c")], ["abc"]),
        ([EITHER, PLAIN], [launch("a", local=4), launch("b", 1)], ["a", "b"]),
        ([EITHER, PLAIN], [launch("a"), launch("b", 1)], ["ab"]),
        ([PLAIN, PLAIN + " // __LINE__"], [launch("a"), launch("b", 1)], ["ab"]),
        ([PLAIN, PLAIN + "int w() { return __LINE__; }"], [launch("a"), launch("b", 1), launch("c")], ["a", "b", "c"]),
        ([PLAIN, HELPED], [launch("a"), launch("b", 1), launch("c"), launch("d")], ["a", "b", "cd"]),
        ([PLAIN, PLAIN.replace("run", "other")], [launch("a"), launch("b", 1)], ["a", "b"]),
    ],
)  # fmt: skip
def test_what_cannot_be_a_part_stays_a_launch(
    sources: list[str], launches: list[LaunchRecord], expected: list[str]
) -> None:
    assert shape(in_fewer_launches(launches, programs(*sources), 2)) == expected


def test_other_options_of_the_compiler_make_another_kernel() -> None:
    different = [*programs(PLAIN), *programs(PLAIN, options="-cl-fast-relaxed-math -DBY=1")]
    launches = [launch("a"), launch("b"), launch("c", 1), launch("d", 1)]
    assert shape(in_fewer_launches(launches, different, 2)) == ["ab", "cd"]


def test_a_program_does_not_become_too_long_for_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = [launch(name, size=8 * number) for number, name in enumerate("abcde", 1)]
    (kernel,) = in_fewer_launches(launches[:2], programs(PLAIN), 2)
    assert isinstance(kernel, Persistent)
    copies = kernel.source[len(persistent.FUNCTIONS + persistent.MARKS) : kernel.source.rindex("__kernel ")]
    monkeypatch.setattr(persistent, "CHARACTERS_AT_MOST", len(copies))
    assert shape(in_fewer_launches(launches, programs(PLAIN), 2)) == ["ab", "cd", "e"]


def test_a_text_has_the_fence_of_its_device_and_is_built_as_that_needs() -> None:
    launches = [launch("a"), launch("b")]
    (plain,) = in_fewer_launches(launches, programs(PLAIN), 2)
    (fenced,) = in_fewer_launches(launches, programs(PLAIN), 2, fence=DEVICE_FENCE)
    assert isinstance(plain, Persistent) and isinstance(fenced, Persistent)
    assert plain.options == "-cl-std=CL1.2" and fenced.options == "-cl-std=CL3.0"
    assert plain.source.splitlines()[0] == "#define GPUTUNE_FENCE mem_fence(CLK_GLOBAL_MEM_FENCE)"
    assert fenced.source.count("atomic_work_item_fence(") == 1 and "mem_fence(" not in fenced.source


@pytest.mark.parametrize("groups", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 8, 28])
def test_each_group_of_a_launch_is_in_the_range_of_one_owner(size: int, groups: int) -> None:
    """Whatever is left over by an equal share; and each owner counts in a line of its own."""
    launches = [launch("a", size=size), launch("b", size=size)]
    (kernel,) = in_fewer_launches(launches, programs(PLAIN), groups)
    assert isinstance(kernel, Persistent)
    (text,) = re.findall(r"const int begin = (.+), count = (.+);", kernel.source)
    ranges: list[int] = []
    for owner in range(groups):
        begin, count = (eval(formula, {"owner": owner, "min": min}) for formula in text)
        ranges += range(begin, begin + count)
    assert ranges == list(range(size))
    counted = re.findall(r"counters \+ \((\d+) \+ (\w+)\) \* (\d+)", kernel.source)
    lines = [int(first) + (groups - 1 if owner == "owner" else 0) for first, owner, _ in counted]
    assert (max(lines) + 1) * 4 * int(counted[0][2]) == kernel.counter_bytes

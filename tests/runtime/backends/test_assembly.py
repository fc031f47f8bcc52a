"""Test which devices may build inline assembly: those that have proven the feature of each statement."""

import re
from collections.abc import Collection

import pytest

from gputune.core.assembly import INSTRUCTIONS, Instruction, without_assembly
from gputune.core.errors import BuildFailed
from gputune.core.launches import Launch
from gputune.runtime.backends import open_backend
from gputune.runtime.backends.merging import merged
from gputune.runtime.backends.sources import Prove, refuse_files
from gputune.runtime.devices.discovery import NULL_REPORT
from tests.core.statements import CONVERT, FENCE, KERNEL, written

EVERY_FEATURE = {each.feature for each in INSTRUCTIONS}


def proving(features: Collection[str]) -> Prove:
    """Return what a device says that proves these features alone."""
    return lambda names: {name: "" if name in features else "no" for name in names}


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda each: each.name)
def test_an_instruction_needs_its_feature(instruction: Instruction) -> None:
    source = KERNEL + f"void g() {{ {written(next(instruction.statements()))}; }}"
    refuse_files(source, "-DN=1", proving({instruction.feature}))
    needed = (
        f"assembly {re.escape(instruction.name)} needs the feature {instruction.feature}, which this device has not"
    )
    with pytest.raises(BuildFailed, match=needed):
        refuse_files(source, "-DN=1", proving(EVERY_FEATURE - {instruction.feature}))


def test_no_device_has_proven_a_feature_yet() -> None:
    with pytest.raises(BuildFailed, match=r"cvt\.rna\.tf32 needs the feature ptx\.cvt"):
        open_backend(NULL_REPORT).build(f"{KERNEL} void g() {{ {CONVERT}; }}", "")


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (CONVERT, "-Dvolatile=goto"),
        (CONVERT, "-D__volatile__=goto"),
        (CONVERT, "-DF=asm"),
        (CONVERT, "-DF=)"),
        (f'{CONVERT}; _Pragma("x")', ""),
        (f"#define P(a, b) a##b\n{CONVERT}; P(as, m)", ""),
        (f"#define P(a, b) a##b\n{FENCE}; P(__has_, include)", ""),
        (f"#define P(a, b) a##b\nP({CONVERT}__as, m)", ""),
        (f'#include "x"\n{CONVERT}', ""),
        (f'#pragma GCC dependency "x"\n{CONVERT}', ""),
    ],
)
def test_next_to_assembly_nothing_else_is_allowed(source: str, options: str) -> None:
    refuse_files(CONVERT, "", proving(EVERY_FEATURE))
    with pytest.raises(BuildFailed, match="not allowed"):
        refuse_files(source, options, proving(EVERY_FEATURE))


def test_a_program_for_a_gpu_holds_only_what_is_listed() -> None:
    features = {"ptx.cvt", "ptx.cp_async", "ptx.mma.tf32"}
    listed = [written(next(each.statements())) for each in INSTRUCTIONS if each.feature in features]
    macro = "#define ALL " + "; \\\n".join(listed)
    source = f"{KERNEL}\n#if SIZE == 16\n{macro}\n#endif\nvoid g() {{ {listed[0]}; ALL; }}"
    assert {each.feature for each in without_assembly(source)[1]} == features
    refuse_files(source, "", proving(features))


def test_assembly_is_merged_as_it_is() -> None:
    source = f"""
    #define ORDER {FENCE}
    uint cvt(float x) {{ uint r; {CONVERT}; return r; }}
    __kernel void memory(__global float *x) {{ x[SIZE] = as_float(cvt(x[0])); ORDER; }}
    """
    launches = [Launch(source, "memory", f"-DSIZE={size}", (64,), (1,), ("x",)) for size in (1, 2)]
    both = merged(launches)
    assert both is not None
    assert both.source.count(CONVERT) == both.source.count(FENCE) == 2
    assert without_assembly(both.source)[1] == without_assembly(source)[1]
    refuse_files(both.source, both.options, proving({"ptx.cvt", "ptx.fence"}))
    with pytest.raises(BuildFailed, match="has not proven"):
        refuse_files(both.source, both.options)

"""Test sources and options that could make a compiler use a file of this machine."""

import time
from contextlib import suppress

import pytest

from gputune.core.errors import BuildFailed
from gputune.runtime.backends import open_backend
from gputune.runtime.backends.sources import refuse_files
from gputune.runtime.devices.discovery import NULL_REPORT

KERNEL = "__kernel void f(__global float *y) { y[0] = 1.0f; }\n"


@pytest.mark.parametrize(
    "line",
    [
        '#include "/etc/passwd"',
        "  #  include </etc/passwd>",
        '#include_next "/etc/passwd"',
        '#import "/etc/passwd"',
        '#embed "/etc/passwd"',
        '#__include_macros "/etc/passwd"',
        '%:include "/etc/passwd"',
        '??=include "/etc/passwd"',
        '#inc\\\nlude "/etc/passwd"',
        '#inc\\ \t\r\nlude "/etc/passwd"',
        '#inc??/\nlude "/etc/passwd"',
        '#\\\n\\\ninclude "/etc/passwd"',
        '#/* */include "/etc/passwd"',
        '#\0include "/etc/passwd"',
        'constant char *t = "/*";\n#include "/etc/passwd"\n// */',
        '#if __has_include("/etc/passwd")\n#endif',
        '#pragma GCC dependency "/etc/passwd"',
        "#pragma clang module import x",
        '#pragma/**/GCC dependency "/etc/passwd"',
        '#pragma/**/GCC/**/dependency "/etc/passwd"',
        '#pragma GCC/**/dependency "/etc/passwd"',
        "#pragma GCC system_header",
        '#pragma /* \n */ GCC dependency "/etc/passwd"',
        '#pragma/\\\n**/GCC dependency "/etc/passwd"',
        '#pragma//\\\n/**/ GCC dependency "/etc/passwd"',
        '%:pragma/**/include_alias("a", "b")',
        '#pragma include_alias("a", "b")',
        "#pragma/**/clang __debug dump f",
        '#\u180epragma GCC dependency "/etc/passwd"',
        '#\u180einclude "/etc/passwd"',
        '_Pragma/**/("GCC dependency \\"/etc/passwd\\"")',
        '_Pra\\\ngma("GCC dependency \\"/etc/passwd\\"")',
        '#define P(a, b) a##b\nP(_Pra, gma)("GCC dependency \\"/etc/passwd\\"")',
        '#define P(a, b) a%:%:b\n#if P(__has_, include)("/etc/passwd")\n#endif',
        '#define P(x, y) x??=??=y\nP(as, m)(".incbin \\"/etc/passwd\\"");',
        "#define P(x, y) x##y\n#define S(x) #x\nP(as, m)(S(.incbin x));",
        '#define P(x, y) x##y\nconstant char *t = "??/";\nP(as, m)("x"); // " as m',
        '#if 0\n/#pragma push_macro("A")*\n#endif\n#define P(a, b) a##b\nP(as, m)(".incbin x");\n#if 0\n*/\n#endif',
        '_Pragma("GCC dependency \\"/etc/passwd\\"")',
        '__asm__(".incbin \\"/etc/passwd\\"");',
    ],
)
def test_a_source_that_names_a_file_is_not_built(line: str) -> None:
    with pytest.raises(BuildFailed, match="not allowed") as caught:
        open_backend(NULL_REPORT).build(f"{KERNEL}{line}\n{KERNEL}", "")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "option",
    [
        "-I/etc",
        "@/etc/passwd",
        "-include",
        "/etc/passwd",
        "-o",
        "-fplugin=x.so",
        "-save-temps",
        "-D",
        "-D=1",
        "-cl-",
        "-MD",
    ],
)
def test_options_that_use_files_are_not_passed_on(option: str) -> None:
    with pytest.raises(BuildFailed, match=r"the build option .* is not allowed"):
        open_backend(NULL_REPORT).build(KERNEL, f"-DN=4 {option}")


@pytest.mark.parametrize(
    ("line", "options"),
    [("F(x)", "-DF=_Pragma"), ('#define P(a, b) a##b\nP(FIRST, gma)("x")', "-DFIRST=_Pra"), ("F(x);", "-DF=__asm__")],
)
def test_options_bring_no_operators_into_a_source(line: str, options: str) -> None:
    with pytest.raises(BuildFailed, match="not allowed"):
        refuse_files(f"{KERNEL}{line}\n", options)


def test_what_kernels_need_is_allowed() -> None:
    text = "#pragma unroll\n#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n#define CAT(a, b) a##b\n#define S(x) #x\n"
    pragmas = (
        "#pragma clang loop unroll(full)\n# pragma GCC ivdep // why\n#pragma\tunroll 4 /* or */\n"
        "#if N\n#endif\n// included, imported, as much as m allows: a, s and m\n"
        '#pragma push_macro("A")\nfloat a, m; /* "as */\n#pragma pop_macro("A")\n'
    )
    refuse_files(text + pragmas + KERNEL, "-cl-std=CL1.2 -DN=4 -DRUN -DF=-1.5e3f -w -Werror -cl-mad-enable")


@pytest.mark.parametrize(
    "piece",
    [
        "#",
        "#/",
        "# ",
        "??/\n",
        "#pragma GCC ",
        "#a",
        "%:",
        "##/*",
        '##"\\',
        "#pragma ",
        "#" + "include" * 3,
        "\\ ",
    ],
)
def test_a_hostile_source_is_looked_through_in_little_time(piece: str) -> None:
    began = time.process_time()
    with suppress(BuildFailed):
        refuse_files(piece * ((1 << 20) // len(piece)), "")
    assert time.process_time() - began < 2.0

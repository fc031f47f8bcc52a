"""Test scripts/gpu/compiling: what compilers for GPUs write is read rightly, and their tools are brought."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpu.compiling import amd, mesa, nvidia, tools
from gpu.compiling.compilers import COMPILERS, Compiler, Intel, NotCompiled
from gpu.compiling.listing import LOOP_WEIGHT, Dialect, Line, counted
from gpu.compiling.tools import Tools

PLAIN = Dialect(lambda name: int(name == "fma"), lambda name: name == "load", lambda name: 4 * (name == "load"))


def listed(text: str) -> dict[str, Any]:
    """What is counted of a made-up listing: names, `name>label` for jumps, `!` where the next one cannot follow."""
    lines: list[Line] = []
    labels: dict[str, int] = {}
    for word in text.split():
        if word.endswith(":"):
            labels[word[:-1]] = len(lines)
        else:
            name, _, jump = word.rstrip("!").partition(">")
            lines.append(Line(name, jump, not word.endswith("!")))
    return counted(lines, labels, PLAIN)


def test_what_is_in_loops_weighs_more() -> None:
    found = listed("load outer: load inner: load fma fma jump>inner load jump>outer end!")
    assert found["widths"] == {"4": 4 * (1 + 2 * LOOP_WEIGHT + LOOP_WEIGHT**2)}
    assert (found["multiply_adds"], found["loads"]) == (2, 1)
    assert found["instructions"] == {"load": 4, "fma": 2, "jump": 2, "end": 1}


def test_the_hottest_loop_has_most_multiply_adds_of_its_own() -> None:
    found = listed("outer: fma fma fma fma load load inner: load jump>inner jump>outer fma end!")
    assert (found["multiply_adds"], found["loads"]) == (4, 2)
    found = listed("a: fma jump>a b: fma fma load jump>b")
    assert (found["multiply_adds"], found["loads"]) == (2, 1)
    found = listed("fma fma fma a: fma load jump>a")
    assert (found["multiply_adds"], found["loads"]) == (1, 1)
    assert listed("fma load end!")["loads"] == 1
    assert listed("")["widths"] == {}


def test_a_jump_back_to_where_ways_meet_is_no_loop() -> None:
    """Compilers put rare ways behind the rest, from where they jump back."""
    found = listed("jump>rare meet: load end! rare: load jump>meet!")
    assert found["widths"] == {"4": 8}
    found = listed("head: jump>rare meet: load jump>head end! rare: load jump>meet!")
    assert found["widths"] == {"4": 8 * LOOP_WEIGHT}


SAID = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'run' for 'sm_90'
ptxas info    : Function properties for run
    16 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads
ptxas info    : Function properties for helper
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 52 registers, used 1 barriers, 16 bytes cumulative stack size, 1088 bytes smem
"""
SASS = """
//--------------------- .text.run          --------------------------
\t.section\t.text.run,"ax",@progbits
run:
.text.run:
        /*0000*/                   LDG.E.128.CONSTANT R4, desc[UR4][R10.64] ;
.L_x_0:
        /*0010*/                   LDG.E.64 R6, desc[UR4][R8.64] ;
        /*0020*/                   LDS.128 R12, [R3] ;
        /*0030*/                   FFMA R0, R4, R6, R0 ;
        /*0038*/                   HFMA2.MMA R1, -RZ, RZ, 0, 0 ;
        /*0040*/               @P0 BRA `(.L_x_0) ;
        /*0050*/              @!P1 STG.E.U8 desc[UR4][R8.64], R0 ;
        /*0060*/                   STG.E desc[UR4][R8.64], R0 ;
        /*0070*/                   EXIT ;
.L_x_1:
        /*0080*/                   BRA `(.L_x_1);
"""


def test_what_nvidia_writes_is_read() -> None:
    found = nvidia.read("\t@%p3 ld.global.nc.f32 %f1, [%rd1];\n\tmembar.cta;\n", SAID, SASS)["run"]
    assert (found.registers, found.spills, found.stack_bytes, found.local_bytes) == (52, 64, 16, 1088)
    assert found.widths == {"16": 16, "8": 8 * LOOP_WEIGHT, "1": 1, "4": 4}
    assert (found.multiply_adds, found.loads, found.ratio) == (1, 2, 0.5)
    assert found.instructions["MOV"] == 1
    assert found.instructions["membar.cta"] == found.instructions["ld.global.nc.f32"] == 1
    assert found.wide_share == pytest.approx(80 / 85)


ASSEMBLY = """
run:                                    ; @run
; %bb.0:
\tglobal_load_dwordx4 v[0:3], v4, s[0:1]
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
\tds_read_b128 v[4:7], v8
\ts_load_dwordx2 s[0:1], s[2:3], 0x0
\tv_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[0:1]
\tv_fmac_f32_e32 v0, v1, v2
\ts_cbranch_scc0 .LBB0_1
\tglobal_store_dword v0, v1, s[0:1]
\ts_endpgm
.Lfunc_end0:
amdhsa.kernels:
  - .args:
      - .name:           x
        .size:           8
    .group_segment_fixed_size: 512
    .name:           run
    .private_segment_fixed_size: 20
    .symbol:         run.kd
    .vgpr_count:     74
    .vgpr_spill_count: 3
amdhsa.target:   amdgcn-unknown-amdhsa--gfx90a
amdhsa.version:
  - 1
  - 1
"""


def test_what_clang_writes_for_amd_is_read() -> None:
    found = amd.read(ASSEMBLY)["run"]
    assert (found.registers, found.spills, found.stack_bytes, found.local_bytes) == (74, 12, 20, 512)
    assert found.widths == {"16": 16, "4": 4}
    assert (found.multiply_adds, found.loads) == (3, 1)


class Said(Tools):
    """Tools whose programs say a text."""

    text = ""

    def program(self, name: str) -> Path | None:
        return Path(__file__)

    def run(self, command: Any, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, self.text, "")


def test_what_intel_says_of_spills_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void a(int x) {}\n__kernel void b() {}"
    said = "warning: kernel b  compiled SIMD8 allocated 128 regs and spilled around 1835\n"
    monkeypatch.setattr(Said, "text", said + "Build succeeded.\n")
    found = Intel(Said()).compile(text, "", "dg2")
    assert {name: facts.spills for name, facts in found.items()} == {"a": 0, "b": 1835}
    monkeypatch.setattr(Said, "text", "error: no such thing")
    with pytest.raises(NotCompiled, match="no such thing"):
        Intel(Said()).compile(text, "", "dg2")


ADRENO = """built
MESA: info: NIR (final form) for CL shader (null):
MESA: info: }
MESA: info: mov.f32f32 r0.x, c0.x
MESA: info: l1:
MESA: info: (sy)(rpt1)mad.f32 r2.y, r0.w, (r)r7.w, (r)r2.y
MESA: info: ldg.u32 r3.y, g[r7.y], 4
MESA: info: add.u r1.x, r1.x, 1
MESA: info: br p0.y, #l9
MESA: info: jump #l1
MESA: info: l9:
MESA: info: stp.u32 p[r1.x], r3.y, 1
MESA: info: end
MESA: info: ; CL prog 2/1: 0 last-baryf, 0 last-helper, 0 half, 16 full, 12 constlen
"""
MALI = """SHADER-DB: shader: 961 inst, 47.0 cycles, 2.0 fma, 8.4 cvt, 47.0 ls, 1 threads, 3 loops, 1:2 spills:fills
SHADER-DB: shader: 306 inst, 13.0 cycles, 2.0 fma, 2.5 cvt, 13.0 ls, 1 threads, 1 loops, 0:0 spills:fills
"""
BIFROST = "SHADER-DB: shader: 391 inst, 12.5 arith, 0.0 texture, 25.0 ldst, 1 threads, 1 loops, 3:20 spills:fills"


def test_what_mesa_prints_for_phones_is_read() -> None:
    """Of the last variant. What is repeated takes an issue slot each time, and private memory is a spill."""
    found = mesa.read_adreno(ADRENO)
    assert found is not None
    assert (found.registers, found.spills, found.multiply_adds, found.slots, found.loads) == (16, 4, 2, 6, 1)
    said = [mesa.read_mali(text) for text in (MALI, BIFROST)]
    assert [(each.spills, each.load_cycles) for each in said if each] == [(0, 6.5), (92, 2.0)]
    assert mesa.read_adreno("built\n") is None and mesa.read_mali("MESA: error\n") is None


def test_tools_are_brought_once_and_what_cannot_be_had_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "DEBIAN", {"clang-15": "15", "oclgrind": "21"})
    monkeypatch.setattr(tools, "PYPI", {"nvidia-cuda-nvcc": "13"})
    monkeypatch.setattr(tools, "ARM64", {})
    monkeypatch.setattr(tools, "_installed", lambda name: "15" if name == "clang-15" else "")
    monkeypatch.setattr(tools, "_from_debian", lambda folder, name, version: "there is no such version")
    monkeypatch.setattr(tools, "_from_pypi", lambda folder, name, version: "")
    said: list[str] = []
    missing = tools.bring(tmp_path, said.append)
    assert missing == ["oclgrind 21 could not be had from Debian: there is no such version"]
    assert said == ["bringing oclgrind 21 from Debian", "bringing nvidia-cuda-nvcc 13 from PyPI"]
    said.clear()
    tools.bring(tmp_path, said.append)
    assert said == ["bringing oclgrind 21 from Debian"]


def test_programs_of_the_folder_come_before_the_machines(tmp_path: Path) -> None:
    assert Tools(tmp_path).program("no-such-program") is None
    own = Tools(tmp_path).program("sh")
    assert own is not None
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / "sh").symlink_to(own)
    assert Tools(tmp_path).program("sh") == tmp_path / "usr" / "bin" / "sh"


def test_setup_brings_the_tools_where_checks_look_for_them() -> None:
    program = "source scripts/setup; python=echo; gpu_tools"
    done = subprocess.run(["bash", "-c", program], cwd=tools.ROOT, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == Path(tools.__file__)


def compiler_of(maker: str) -> Compiler:
    """The compiler of a maker; the test is skipped where there is none."""
    compiler = COMPILERS[maker](Tools())
    if compiler.missing:
        pytest.skip(f"there is no {', '.join(compiler.missing)}; scripts/setup --gpu-tools brings it")
    return compiler


WIDE = "__kernel void run(__global float4 *x) { x[get_global_id(0)] *= 2; }"
NARROW = "__kernel void run(__global float *x) { x[get_global_id(0)] *= 2; }"
PRIVATE = """__kernel void run(__global float *x, int n) {
    float all[99];
    for (int i = 0; i < 99; ++i) all[i] = x[i];
    for (int i = 0; i < n; ++i) all[i * 7 % 99] += all[i * 5 % 99];
    for (int i = 0; i < 99; ++i) x[i] = all[i];
}"""
SHARED = """__kernel void run(__global float *x) {
    __local float all[256];
    all[get_local_id(0)] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] = all[255 - get_local_id(0)];
}"""


@pytest.mark.slow
@pytest.mark.parametrize(("maker", "architecture"), [("nvidia", "sm_90"), ("amd", "gfx90a")])
def test_compilers_show_what_rules_are_about(maker: str, architecture: str) -> None:
    compiler = compiler_of(maker)
    wide, narrow, private, shared = (
        compiler.compile(text, "-cl-std=CL1.2", architecture)["run"] for text in (WIDE, NARROW, PRIVATE, SHARED)
    )
    assert (wide.wide_share, narrow.wide_share) == (1, 0)
    assert (private.stack_bytes or 0) >= 396
    assert (wide.stack_bytes, wide.spills, wide.local_bytes) == (0, 0, 0)
    assert shared.local_bytes == 1024
    with pytest.raises(NotCompiled, match="error"):
        compiler.compile("__kernel void run(", "", architecture)


@pytest.mark.slow
def test_intels_compiler_shows_spills() -> None:
    compiler = compiler_of("intel")
    names = [f"v{i}" for i in range(300)]
    lines = [f"float8 {name} = vload8({i}, x);" for i, name in enumerate(names)]
    text = f"__kernel void run(__global float *x) {{ {''.join(lines)} barrier(CLK_GLOBAL_MEM_FENCE); "
    text += "".join(f"vstore8({name} * v{299 - i}, {i}, x);" for i, name in enumerate(names))
    assert (compiler.compile(text + "}", "", "dg2")["run"].spills or 0) > 0
    assert compiler.compile(NARROW, "", "dg2")["run"].spills == 0

"""Compile OpenCL C for GPUs that are not there, and read what became of each kernel."""

import hashlib
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from subprocess import CompletedProcess
from types import MappingProxyType

from gpu.compiling import amd, mesa, nvidia
from gpu.compiling.listing import Facts
from gpu.compiling.tools import Tools
from gputune.core.quirks import NVIDIA

Found = Mapping[str, Facts]
"""By the names of kernels."""


class NotCompiled(Exception):
    """A compiler refused a text; the message is what it said."""


class Compiler(ABC):
    """A compiler for the devices of one maker."""

    programs: tuple[str, ...]
    files: tuple[str, ...] = ()

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    @property
    def missing(self) -> list[str]:
        """What it needs and cannot be found."""
        programs = [name for name in self.programs if self._tools.program(name) is None]
        return programs + [name for name in self.files if self._tools.file(name) is None]

    @cached_property
    def version(self) -> str:
        """What tells it from another compiler whose results may differ: the versions of programs, the sizes of all."""
        asked = (self._tools.run([self._program(name), "--version"]) for name in self.programs)
        said = (done.stdout for done in asked if done.returncode == 0)
        found = [*map(self._program, self.programs), *map(self._file, self.files)]
        return "\n".join([*said, *(f"{path.name} {path.resolve().stat().st_size}" for path in found)])

    def compile(self, source: str, options: str, architecture: str) -> Found:
        """Return what becomes of each kernel of a text. Raises NotCompiled."""
        with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
            text = Path(folder) / "text.cl"
            text.write_text(source, encoding="utf-8")
            return self._compile(text, options.split(), architecture)

    @abstractmethod
    def _compile(self, text: Path, options: list[str], architecture: str) -> Found:
        """As `compile`, in the text's folder."""

    def _program(self, name: str) -> Path:
        path = self._tools.program(name)
        assert path is not None, f"{name} is missing"
        return path

    def _file(self, name: str) -> Path:
        path = self._tools.file(name)
        assert path is not None, f"{name} is missing"
        return path

    def _run(self, folder: Path, name: str, *arguments: str | Path) -> str:
        """Runs a program; returns all that it says. Raises NotCompiled."""
        done = self._tools.run([self._program(name), *arguments], folder)
        said = done.stdout + done.stderr
        if done.returncode:
            faults = [line for line in said.splitlines() if "error" in line.lower()]
            raise NotCompiled(f"{name}: {(faults or said.splitlines() or ['it failed'])[0].strip()}")
        return said

    def _clang(self, text: Path, options: list[str], library: str, *target: str) -> str:
        """Compiles to an assembler's text, with the functions of OpenCL C in it."""
        linked = ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(self._file(library))]
        common = ["-x", "cl", "-Xclang", "-finclude-default-header", *linked, "-w", "-nogpulib", "-O3", "-S"]
        self._run(text.parent, "clang-15", *common, *options, *target, "-o", "text.s", text.name)
        return (text.parent / "text.s").read_text(encoding="utf-8")


class Nvidia(Compiler):
    """clang to PTX, ptxas, and nvdisasm: what NVIDIA's own driver does with its own front end."""

    programs = ("clang-15", "ptxas", "nvdisasm")
    files = ("usr/lib/clc/nvptx64--nvidiacl.bc",)
    TARGET = ("-target", "nvptx64-nvidia-nvidiacl", "-Xclang", "-target-cpu", "-Xclang", "sm_80")
    FEATURES = ("-Xclang", "-target-feature", "-Xclang", "+ptx75")
    # The library lacks this function, which kernels call for the whole device only (core/quirks.py).
    FENCE = '-Datomic_work_item_fence(flags,order,scope)=__asm__ volatile("fence.acq_rel.gpu;" ::: "memory")'

    def _compile(self, text: Path, options: list[str], architecture: str) -> Found:
        caps = [each for each in options if each.startswith(NVIDIA.register_cap)]
        kept = [each for each in options if each not in caps]
        ptx = self._clang(text, [*kept, self.FENCE], self.files[0], *self.TARGET, *self.FEATURES)
        ptx = re.sub(r"(?m)^\.target sm_80.*", ".target sm_80", ptx)  # clang adds a mode of textures that ptxas refuses
        (text.parent / "text.ptx").write_text(ptx, encoding="utf-8")
        bounds = [each.replace(NVIDIA.register_cap, "-maxrregcount=") for each in caps]
        how = (f"-arch={architecture}", "-O3", "-v", *bounds, "-o", "text.cubin")
        said = self._run(text.parent, "ptxas", *how, "text.ptx")
        return nvidia.read(ptx, said, self._run(text.parent, "nvdisasm", "-c", "text.cubin"))


class Amd(Compiler):
    """clang's own back end, which is the compiler of AMD's drivers, too."""

    programs = ("clang-15",)
    files = ("usr/lib/clc/amdgcn--amdhsa.bc",)

    def _compile(self, text: Path, options: list[str], architecture: str) -> Found:
        target = ("-target", "amdgcn--amdhsa", f"-mcpu={architecture}")
        return amd.read(self._clang(text, options, self.files[0], *target))


class Intel(Compiler):
    """Intel's offline compiler, which says of kernels only that registers were spilled."""

    programs = ("ocloc",)
    files = ("usr/lib/x86_64-linux-gnu/libigc.so.1",)
    SPILLED = re.compile(r"kernel (\w+)\s+compiled SIMD\d+ allocated \d+ regs and spilled around (\d+)")
    KERNEL = re.compile(r"\b__kernel\b[^{;]*?void\s+(\w+)\s*\(")

    def _compile(self, text: Path, options: list[str], architecture: str) -> Found:
        arguments = ("-file", text.name, "-device", architecture, "-options", " ".join(options))
        said = self._run(text.parent, "ocloc", "compile", *arguments, "-output", "text", "-out_dir", ".")
        if "Build succeeded" not in said:
            raise NotCompiled(f"ocloc: {said.strip()[:500]}")
        spills = {name: int(number) for name, number in self.SPILLED.findall(said)}
        names = self.KERNEL.findall(text.read_text(encoding="utf-8"))
        return {name: Facts(spills=spills.get(name, 0)) for name in {*names, *spills}}


class Mesa(Compiler):
    """Mesa's compiler for GPUs of phones: its OpenCL for arm64, run by qemu over kernel drivers that do nothing.

    It is not the makers' own compiler. It proves what a kernel takes of registers and instructions, and no time; it has
    no half. A kernel that is enqueued there was compiled and printed before the driver fails.
    """

    programs = ("qemu-aarch64-static",)
    files = ("mesa/build_kernels", "mesa/shim/freedreno.so", "mesa/shim/panfrost.so")
    NAME = re.compile(r"(?m)^kernel (\w+)$")
    PRINTS: Mapping[str, str]
    DRIVER: str

    def _compile(self, text: Path, options: list[str], architecture: str) -> Found:
        kept = self._file(self.files[0]).parent / "cache"
        names = self._build(text, options, architecture, kept)
        if names.returncode:
            faults = [line for line in names.stderr.splitlines() if "error" in line.lower()]
            raise NotCompiled(f"mesa: {(faults or names.stderr.splitlines() or ['it failed'])[0].strip()}")
        found: dict[str, Facts] = {}
        for name in self.NAME.findall(names.stdout):
            # Of an equal kernel that was kept nothing is printed. Without what is kept a kernel takes 40 s.
            caches = (kept, text.parent / "cache")
            ended = (self._build(text, options, architecture, cache, name) for cache in caches)
            facts = next(filter(None, (self._read(done.stdout + done.stderr) for done in ended)), None)
            if facts is None:
                raise NotCompiled(f"mesa printed nothing of {name}")
            found[name] = facts
        return found

    def _build(
        self, text: Path, options: list[str], architecture: str, cache: Path, *kernel: str
    ) -> CompletedProcess[str]:
        """Build a text, with the folder in which the driver keeps what it compiled, and enqueue a kernel of it."""
        builder = self._file(self.files[0])
        folder = builder.parent
        variables = {
            "LD_PRELOAD": f"{folder}/shim/{self.DRIVER}.so",
            "LD_LIBRARY_PATH": f"{folder}/root/usr/lib/aarch64-linux-gnu",
            "OCL_ICD_VENDORS": f"{folder}/vendors",
            "RUSTICL_ENABLE": self.DRIVER,
            "MESA_SHADER_CACHE_DIR": str(cache),
            "HOME": str(text.parent),
            **{name: value.format(architecture) for name, value in self.PRINTS.items()},
        }
        given = [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
        command: list[str | Path] = [self._program(self.programs[0]), "-L", folder / "root", *given]
        command += [builder, text, " ".join(options)]
        return self._tools.run([*command, *kernel], text.parent)

    @abstractmethod
    def _read(self, said: str) -> Facts | None:
        """Return what became of a kernel, by what the driver said."""


class Adreno(Mesa):
    """Architectures are the numbers of GPUs."""

    DRIVER = "freedreno"
    PRINTS = MappingProxyType({"FD_GPU_ID": "{}", "IR3_SHADER_DEBUG": "cs"})

    def _read(self, said: str) -> Facts | None:
        return mesa.read_adreno(said)


class Mali(Mesa):
    """Architectures are product numbers: 7212 of a G52, 9093 of a G57."""

    DRIVER = "panfrost"
    PRINTS = MappingProxyType({"PAN_GPU_ID": "{}", "BIFROST_MESA_DEBUG": "shaders:shaderdb"})

    def _read(self, said: str) -> Facts | None:
        return mesa.read_mali(said)


COMPILERS: Mapping[str, type[Compiler]] = {
    "nvidia": Nvidia, "amd": Amd, "intel": Intel, "adreno": Adreno, "mali": Mali
}  # fmt: skip


def readers() -> str:
    """The digest of the code that reads what compilers write: with other code a kept result is no answer."""
    files = (path for path in Path(__file__).parent.glob("*.py") if path.name != "tools.py")
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()

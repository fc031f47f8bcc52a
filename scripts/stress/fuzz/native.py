"""Read changed context binaries, packages and ONNX files in C.

    scripts/fuzz native [--seed N] [--count 10000] [--case NUMBER] [--executions 1000000]

First changed files under right checksums are read by Python and by the C runtime, which must refuse them with the same
name of error or read the same. Then the C reader runs on inputs that libFuzzer changes where clang is installed, guided
by what they reach; each lies in memory of exactly its size. AddressSanitizer and UndefinedBehaviorSanitizer watch both,
for leaks, too, and memory is bounded. What the fuzzer has kept is read by both readers in the end. The inflater runs as
often on compressed bytes alone, of which both readers read what was kept as the program of a context.
"""

import argparse
import functools
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from gputune.runtime import native
from stress.fuzz import cases
from stress.fuzz.cases import Broken
from stress.native import files
from stress.native.reading import DUMP, SOURCES, NativeReader, read_by_python
from tests.strategies.files.contexts import with_section

FUZZER, INFLATER = DUMP.with_name("fuzzer.c"), DUMP.with_name("inflater.c")
FLAGS = ("-std=c99", "-O2", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", "-DPOOL_BLOCK_BYTES=0",
         f"-I{native.FOLDER / 'include'}")  # fmt: skip
"""Without blocks each piece of memory is one that AddressSanitizer knows."""
LARGEST_INPUT_BYTES = 1 << 15
LARGEST_DEFLATE_BYTES, INFLATER_INPUTS = 1 << 12, 200
MOST_MIB = 512
SLOWEST_S = 10
WORDS = (
    "graphs programs weights sections device tier configuration versions computes name inputs outputs launches shape "
    "arena_bytes persistent counter_bytes arena_bound_bytes dtype memory_type operation task program entry arguments "
    "global_size local_size kind index offset nbytes binary source options length sha256 inflated alignment contexts "
    "head requires compressed_sections float32 int64 bool raw memhandle input output arena counters status gputune "
    "EPContext com.microsoft main_context embed_mode ep_cache_context partition_name max_size notes ep_sdk_version "
    "states pairs axis tokens capacity token_inputs token_outputs whole keys cell ids logits GPUTUNE GPUTPKG"
)
"""Which the fuzzer puts into inputs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `scripts/fuzz native`."""
    cases.add_arguments(parser, 10_000)
    parser.add_argument("--executions", type=int, default=1_000_000, help="of the fuzzer (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Runs the cases and the fuzzer, and returns the exit code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = built("cc", folder / "dump", (DUMP, *SOURCES), "address,undefined")
        with NativeReader(program) as reader:
            originals = files.originals(folder)
            code = cases.explore("native", options, functools.partial(examine, folder=folder, reader=reader))
            if options.case is None:
                code = fuzz(options, folder, originals) or compare(folder / "corpus", reader) or code
                code = fuzz_inflater(options, folder / "inflater") or compare(folder / "inflater/named", reader) or code
    return code


def examine(chance: random.Random, folder: Path, reader: NativeReader) -> str:
    """How one changed file ends. Raises Broken where the readers disagree."""
    path = files.changed(folder, chance)
    return _compared(path, reader)


def built(compiler: str, program: Path, sources: Sequence[Path], sanitizers: str, more: Sequence[str] = ()) -> Path:
    """Return a program that is built from sources, by more flags than FLAGS. Raises RuntimeError with what the compiler
    says."""
    command = [compiler, *FLAGS, f"-fsanitize={sanitizers}", *more, *map(str, sources), "-pthread", "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{compiler}: {done.stderr}")
    return program


def fuzz(options: argparse.Namespace, folder: Path, originals: list[Path]) -> int:
    """Runs libFuzzer on good files, and returns the exit code. What it keeps is in the folder `corpus`."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for path in originals:
        shutil.copy(path, corpus)
    words = folder / "words"
    words.write_text("".join(f'"{word}"\n' for word in WORDS.split()), encoding="ascii")
    return guided((FUZZER, *SOURCES), corpus, options, (f"-dict={words}", f"-max_len={LARGEST_INPUT_BYTES}"))


def fuzz_inflater(options: argparse.Namespace, folder: Path) -> int:
    """Run libFuzzer on compressed bytes, and return the exit code. Contexts of what it keeps are in `named`."""
    corpus, named = folder / "corpus", folder / "named"
    for made in (corpus, named):
        made.mkdir(parents=True)
    for number, (stored, nbytes) in enumerate(files.deflates(random.Random(options.seed), INFLATER_INPUTS)):
        (corpus / str(number)).write_bytes(nbytes.to_bytes(2, "little") + stored)
    code = guided((INFLATER, *SOURCES), corpus, options, (f"-max_len={LARGEST_DEFLATE_BYTES}",))
    for path in corpus.iterdir():
        kept = path.read_bytes()
        if nbytes := int.from_bytes(kept[:2], "little"):
            (named / path.name).write_bytes(with_section(files.rich(), 0, kept[2:], nbytes))
    return code


def guided(
    sources: Sequence[Path],
    corpus: Path,
    options: argparse.Namespace,
    limits: Sequence[str],
    more: Sequence[str] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Run libFuzzer on what is in a folder, which then has what it keeps, and return the exit code; 0 without clang.

    limits: options of libFuzzer; more: flags of the compiler; variables: of the fuzzer's environment.
    """
    clang = shutil.which("clang")
    if clang is None:
        print("clang is not installed: only the cases above were read, and nothing is guided by coverage")
        return 0
    program = built(clang, corpus.with_name("fuzzer"), sources, "fuzzer,address,undefined", more)
    command = [str(program), f"-runs={options.executions}", f"-seed={options.seed % 2**32 or 1}", *limits]
    command += [f"-rss_limit_mb={MOST_MIB}", f"-timeout={SLOWEST_S}", "-verbosity=0"]
    command += ["-print_final_stats=1", f"-artifact_prefix={Path.cwd()}/", str(corpus)]
    environment = {**os.environ, **variables, "ASAN_OPTIONS": "detect_leaks=1:max_allocation_size_mb=256"}
    done = subprocess.run(command, env=environment, text=True, stderr=subprocess.PIPE)
    print(done.stderr[-20_000:] if done.returncode else _statistics(done.stderr), flush=True)
    return 1 if done.returncode else 0


def compare(corpus: Path, reader: NativeReader) -> int:
    """Reads what the fuzzer has kept with both readers, and returns the exit code."""
    kept = sorted(corpus.iterdir())
    broken = 0
    for path in kept:
        is_onnx = not path.read_bytes().startswith(b"GPU")
        named = path.rename(path.with_name(f"kept{'.onnx' if is_onnx else '.bin'}"))
        try:
            _compared(named, reader)
        except Broken as error:
            broken += 1
            print(f"{path.name}: {error}")
    print(f"{len(kept)} inputs that the fuzzer has kept, {broken} of which the readers disagree about")
    return 1 if broken else 0


def _compared(path: Path, reader: NativeReader) -> str:
    by_python, by_native = read_by_python(path), reader.read(path)
    if by_python != by_native:
        raise Broken(
            f"Python says {by_python.error} ({by_python.message}), C says {by_native.error} ({by_native.message})"
        )
    if set(by_native.message) & {"\n", "\x1b"}:
        raise Broken(f"the message is not one line: {by_native.message!r}")
    return by_native.error


def _statistics(said: str) -> str:
    """What libFuzzer says in the end."""
    lines = [line.removeprefix("stat::") for line in said.splitlines() if line.startswith("stat::")]
    return "\n".join(" ".join(line.split()) for line in lines)

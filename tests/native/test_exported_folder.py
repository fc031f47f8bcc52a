"""Test that an exported folder builds with only a compiler, and that its program runs the context on files."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from gputune.client.export.contents import read_contents
from gputune.client.export.exporting import export
from gputune.client.input_lists import read_input_list
from gputune.client.outputs import file_stems
from gputune.client.run.net_run import mostly_by_launches
from gputune.core.whole_file import locked_folder
from gputune.runtime.executor import Executor, Runs
from gputune.runtime.native.binding import Native
from tests.client.evil_names import EVIL
from tests.conftest import folder_of_the_run
from tests.native.compiling import INCLUDE, OPTIMISED, SOURCES, compiled, environment, sanitizers
from tests.native.fake import ELEMENTS, HERE, STAGES, doubling_context, fake_library, named_context
from tests.native.stateful import LATER, stateful_context

MAKE = ["make", "-j2", "CFLAGS=-O0"]
PLUGIN, PLUGIN_NAMES = "build/libgputune_onnxruntime.so", {"CreateEpFactories", "ReleaseEpFactory"}
X = np.arange(ELEMENTS, dtype=np.float32)
FIXED, FEWER, GROWING = {"fixed": 0}, {"of 8": 1, "of 4": 1, "two of 8": 2}, ["twice_the_length", "y"]


def bare(command: Sequence[str | Path], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command with no variable but PATH, and these."""
    environment |= {"PATH": os.environ["PATH"]}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def build(app: Path, command: Sequence[str]) -> None:
    """Build in an exported folder, with no warning."""
    built = bare(command, app)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "warning" not in built.stderr


def exported(folder: Path) -> Path:
    """An exported folder with a context that the made-up device runs."""
    context = doubling_context(folder / "model.bin", ("main", "other"))
    export(read_contents(context), folder / "app")
    return folder / "app"


MODEL = ("--context_binary", "model.bin")


@pytest.fixture(scope="module")
def app(native: Native, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one that make has built, once for all processes of this run."""
    shared = folder_of_the_run(tmp_path_factory, "exported")
    with locked_folder(shared):
        if not (shared / "built").exists():
            build(app := exported(tmp_path_factory.mktemp("exported")), MAKE)
            app.rename(shared / "built")
    return shutil.copytree(shared / "built", tmp_path_factory.mktemp("exported") / "app")


def run(app: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return bare(["build/gputune-run", *arguments], app, GPUTUNE_OPENCL_LIBRARY=str(fake_library()))


def result(folder: Path, number: int) -> np.ndarray:
    return np.fromfile(folder / f"Result_{number}" / "y.raw", np.float32)


def test_the_example_runs(app: Path) -> None:
    ran = run(app, *MODEL, "--input_list", "input_list.txt", "--num_inferences", "5")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("5 inferences on Fake GPU: load ")
    assert ran.stderr == ""
    given = np.fromfile(app / "inputs" / "x.raw", np.float32)
    np.testing.assert_array_equal(result(app / "output", 0), given * 2**STAGES)
    assert [path.name for path in (app / "output").iterdir()] == ["Result_0"]


@pytest.mark.parametrize(
    ("graphs", "words", "found", "names"),
    [
        (FIXED, ["--input_list", "steps"], [{0}, {0}, {LATER}, {0}], ["y"]),
        (FIXED, ["--input_list", "steps", "--num_inferences", "7"], [{0}, {0}, {LATER}, {0}], ["y"]),
        (FIXED, ["--num_inferences", "3", "3.raw"], [{0}], ["y"]),
        (FIXED, ["--input_list", "whole"], [{8}, {8}], ["next_a", "next_b", "y"]),
        (FIXED, ["1.raw", "2.raw", "4.raw"], [{8}], ["next_a", "next_b", "y"]),
        (FEWER, ["--input_list", "long"], [{0}, {0}, {LATER}, {2 * LATER}, {0, 3 * LATER}, {0, 4 * LATER}], GROWING),
        (FEWER, ["--input_list", "long", "--graph", "of 8"], [{0}, {0}, *({LATER * x} for x in (1, 2, 3, 4))], GROWING),
    ],
)
def test_lines_are_steps_of_a_state_unless_they_have_files_for_it(
    app: Path, tmp_path: Path, graphs: dict[str, int], words: list[str], found: list[set[int]], names: list[str]
) -> None:
    """An empty line begins anew, and so does a list that starts over. What is moved to more rows fills half of y."""
    context = stateful_context(tmp_path / "a.bin", graphs, axis=1)
    for number in range(1, 5):
        np.full(ELEMENTS, number, np.float32).tofile(tmp_path / f"{number}.raw")
    lines = [f"x:={tmp_path / str(number)}.raw\n" for number in range(1, 5)]
    (tmp_path / "steps").write_text(f"{lines[0]}# x\n{lines[1]}{lines[2]}\n \n{lines[3]}")
    (tmp_path / "long").write_text("".join([*lines, *lines[:2]]))
    state = f"a:={tmp_path}/4.raw b:={tmp_path}/4.raw "
    (tmp_path / "whole").write_text(f"{state}{lines[0]}{state}{lines[1]}")
    words = [str(tmp_path / word) if (tmp_path / word).exists() else word for word in words]
    ran = run(app, "--context_binary", str(context), "--output_dir", str(tmp_path / "out"), *words)
    assert ran.returncode == 0, ran.stderr
    assert [set(result(tmp_path / "out", number)) for number in range(len(found))] == found
    assert len(list((tmp_path / "out").iterdir())) == len(found)
    assert sorted(path.stem for path in (tmp_path / "out" / "Result_0").iterdir()) == names


@pytest.mark.parametrize(
    ("count", "begin", "told"),
    [(1, "1 inference on", []), (9, "9 inferences on", ["median"]), (10, "10 ", ["p50", "p90", "p99", "p99.9"])],
)
def test_few_inferences_have_no_percentiles(app: Path, count: int, begin: str, told: list[str]) -> None:
    ran = run(app, "--retrieve_context", MODEL[1], "--num_inferences", str(count), "inputs/x.raw")
    assert ran.stdout.startswith(begin), ran.stdout + ran.stderr
    assert [part.split()[0] for part in ran.stdout.split(", ")[2:]] == told


def test_each_line_is_an_inference(app: Path, tmp_path: Path) -> None:
    for number in range(3):
        (X + number).tofile(tmp_path / f"{number}.raw")
    lines = [f"# comment\n\nx:={tmp_path}/0.raw", f"{tmp_path}/1.raw", f"  x:={tmp_path}/2.raw "]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    arguments = [*MODEL, "--input_list", str(tmp_path / "list.txt"), "--output_dir", str(tmp_path)]
    ran = run(app, *arguments, "--num_inferences", "7", "--graph", "other", "--strict", "--one_by_one")
    assert ran.returncode == 0, ran.stderr
    for number in range(3):
        np.testing.assert_array_equal(result(tmp_path, number), (X + number) * 2**STAGES)
    assert not (tmp_path / "Result_3").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ([], 2, "--context_binary names what to run"),
        (["--context_binary"], 2, "lacks a value"),
        (["--contxt", "model.bin"], 2, "there is no option --contxt"),
        ([*MODEL], 2, "--input_list is missing: each line has x:=FILE; or name a file"),
        ([*MODEL, "inputs/x.raw", "inputs/x.raw"], 2, "takes 1 file, not 2"),
        ([*MODEL, "--num_inferences", "many", "inputs/x.raw"], 2, "error: --num_inferences: 'many' is no number"),
        ([*MODEL, "--duration", "long", "inputs/x.raw"], 2, "error: --duration: 'long' is no number"),
        ([*MODEL, "--num_inferences", "1", "--duration", "1", "a"], 2, "give one of them"),
        ([*MODEL, "README.md"], 2, "does not have the 256 bytes"),
        ([*MODEL, "--input_list", "no.txt"], 2, "no.txt cannot be read: No such file"),
        ([*MODEL, "--input_list", "README.md"], 2, "README.md:3: give NAME:=FILE once"),
        ([*MODEL, "--output_dir", "main.c", "inputs/x.raw"], 6, "cannot be made: Not a directory"),
        (["--context_binary", "README.md", "inputs/x.raw"], 8, "[not_a_context]"),
        (["--context_binary", "no.bin", "inputs/x.raw"], 8, "[io_error]"),
        (
            [*MODEL, "--graph", "none", "inputs/x.raw"],
            2,
            "there is no graph 'none'; the graphs are 'main', 'other': name",
        ),
        ([*MODEL, "--device", "Mali", "inputs/x.raw"], 8, "[device_not_found]"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(app: Path, arguments: list[str], code: int, line: str) -> None:
    ran = run(app, *arguments)
    assert ran.returncode == code, ran.stderr
    (said,) = ran.stderr.splitlines()
    assert said.startswith("error: ")
    assert line in said


def test_outputs_have_the_files_that_net_run_gives_them(app: Path, tmp_path: Path) -> None:
    """However alike their names are, none is written over another one."""
    names = ["a/b", "a_b", "A_B", "a_b.2", ".x", "_x", "..", "a b", "größe", "plain-1.raw", *EVIL]
    names = list(dict.fromkeys(names))
    context = named_context(tmp_path / "named.bin", names)
    X.tofile(tmp_path / "x.raw")
    ran = run(app, "--context_binary", str(context), "--output_dir", str(tmp_path / "out"), str(tmp_path / "x.raw"))
    assert ran.returncode == 0, ran.stderr
    stems = file_stems(names)
    assert {path.stem for path in (tmp_path / "out" / "Result_0").iterdir()} == set(stems.values())
    for place, name in enumerate(names):
        found = np.fromfile(tmp_path / "out" / "Result_0" / f"{stems[name]}.raw", np.float32)
        np.testing.assert_array_equal(found, X * 2 ** (place + 1))


def test_a_list_of_evil_names_is_read_as_python_reads_it(app: Path, tmp_path: Path) -> None:
    """The list that an export writes names each input so that both readers find it."""
    context = named_context(tmp_path / "named.bin", ["y"], inputs=EVIL)
    contents = read_contents(context)
    export(contents, tmp_path / "app")
    ran = subprocess.run(
        [app / "build" / "gputune-run", "--context_binary", "named.bin", "--input_list", "input_list.txt"],
        cwd=tmp_path / "app", env={"GPUTUNE_OPENCL_LIBRARY": str(fake_library())}, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    (line,) = read_input_list(tmp_path / "app" / "input_list.txt", contents.graphs[0].inputs)
    first = np.fromfile(tmp_path / "app" / line.files[EVIL[0]], np.float32)
    np.testing.assert_array_equal(result(tmp_path / "app" / "output", 0), 2 * first)


@pytest.mark.parametrize("spelled", ["itself", "a link", "a hard link"])
def test_no_output_of_the_program_replaces_what_it_reads(app: Path, tmp_path: Path, spelled: str) -> None:
    """A log over context, list and input; a result over them."""
    X.tofile(tmp_path / "x.raw")
    shutil.copy(app / "model.bin", tmp_path / "model.bin")
    (tmp_path / "list.txt").write_text(f"x:={tmp_path}/x.raw")
    read = [tmp_path / name for name in ("model.bin", "list.txt", "x.raw")]
    before = [path.read_bytes() for path in read]
    arguments = ["--context_binary", str(read[0]), "--input_list", str(read[1])]
    (tmp_path / "Result_0").mkdir()
    for path in read:
        other = path
        if spelled != "itself":
            other = tmp_path / "other"
            other.unlink(missing_ok=True)
            (other.symlink_to if spelled == "a link" else other.hardlink_to)(path)
        ran = run(app, *arguments, "--profile", str(other), "--output_dir", str(tmp_path / "new"))
        assert (ran.returncode, "--profile would overwrite" in ran.stderr) == (2, True), ran.stderr
        result_file = tmp_path / "Result_0" / "y.raw"
        result_file.unlink(missing_ok=True)
        (result_file.symlink_to if spelled == "a link" else result_file.hardlink_to)(path)
        ran = run(app, *arguments, "--output_dir", str(tmp_path))
        assert (ran.returncode, "--output_dir would overwrite" in ran.stderr) == (2, True), ran.stderr
        assert [path.read_bytes() for path in read] == before
    profile = tmp_path / "new" / "Result_0" / "y.raw"
    ran = run(app, *arguments, "--output_dir", str(tmp_path / "new"), "--profile", str(profile))
    assert (ran.returncode, "are both" in ran.stderr) == (2, True), ran.stderr
    assert not (tmp_path / "new").exists()


def test_a_log_replaces_no_context(app: Path, tmp_path: Path) -> None:
    """One that the program does not know to be read, too."""
    other = shutil.copy(app / "model.bin", tmp_path / "other.bin")
    ran = run(app, *MODEL, "--profile", str(other), "--output_dir", str(tmp_path), "inputs/x.raw")
    assert (ran.returncode, "a log would overwrite a context binary" in ran.stderr) == (2, True), ran.stderr
    assert Path(other).read_bytes() == (app / "model.bin").read_bytes()


def test_words_of_a_list_may_be_quoted(app: Path, tmp_path: Path) -> None:
    X.tofile(tmp_path / "my x.raw")
    listed = tmp_path / "list.txt"
    for text in (f'x:="{tmp_path}/my x.raw"', f'"x:={tmp_path}/my x.raw"', f'"{tmp_path}/my x.raw"'):
        listed.write_text(text)
        ran = run(app, *MODEL, "--input_list", str(listed), "--output_dir", str(tmp_path))
        assert ran.returncode == 0, ran.stderr
        np.testing.assert_array_equal(result(tmp_path, 0), X * 2**STAGES)
    listed.write_text('x:="a')
    ran = run(app, *MODEL, "--input_list", str(listed))
    assert (ran.returncode, "list.txt:1: a quote is not closed" in ran.stderr) == (2, True)


@pytest.mark.parametrize("what", ["context", "list", "input", "folder"])
def test_what_is_no_file_is_refused_at_once(app: Path, tmp_path: Path, what: str) -> None:
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    arguments = {
        "context": ["--context_binary", pipe, "inputs/x.raw"],
        "list": [*MODEL, "--input_list", pipe],
        "input": [*MODEL, pipe],
        "folder": [*MODEL, str(tmp_path)],
    }[what]
    ran = run(app, *arguments)
    assert ran.returncode == (8 if what == "context" else 2), ran.stderr
    words = {"context": "a named pipe, and no file", "folder": "Is a directory"}.get(what, "it is no file")
    assert words in ran.stderr and len(ran.stderr.splitlines()) == 1


def test_it_warns_of_launches_as_net_run_does(native: Native, tmp_path: Path) -> None:
    """Of inferences that are made up."""
    X.tofile(tmp_path / "x.raw")
    files = [HERE / "drivers" / "counted.c", INCLUDE.parent / "main.c", *SOURCES]
    program = compiled("counted", files, (*OPTIMISED, "-Wl,--wrap=gputune_counters_of", *sanitizers()))
    context = doubling_context(tmp_path / "a.bin")
    command: list[str | Path] = [program, "--context_binary", context, "--output_dir", tmp_path, tmp_path / "x.raw"]
    for persistent, aborted, launches in ((1, 1, 3), (0, 2, 0), (3, 1, 2), (0, 0, 5), (9, 0, 0)):
        variables = {"COUNTED": f"{persistent} {aborted} {launches}", "GPUTUNE_OPENCL_LIBRARY": str(fake_library())}
        ran = subprocess.run(command, env=environment() | variables, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr
        executor = Mock(spec=Executor, runs=Runs(persistent, aborted, launches) if persistent + aborted else None)
        wanted = mostly_by_launches(executor)
        assert ran.stderr == (f"warning: {wanted}\n" if wanted else "")


def test_the_help_names_every_option(app: Path) -> None:
    ran = run(app, "--help")
    assert ran.returncode == 0
    source = (app / "main.c").read_text()
    options = source.split("options[] = {", 1)[1].split("};", 1)[0]
    for option in options.replace('"--help"', "").split('"--')[1:]:
        assert f"--{option.split(chr(34))[0]}" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 80


@pytest.mark.slow
def test_classes_of_cpp_run_it(app: Path, tmp_path: Path) -> None:
    flags: list[str | Path] = [
        "-std=c++11",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{INCLUDE}",
        HERE / "drivers" / "classes.cpp",
    ]
    built = bare(["c++", *flags, str(app / "build" / "libgputune.a"), "-ldl", "-lm", "-pthread"], tmp_path)
    assert built.returncode == 0, built.stderr
    ran = bare(["./a.out", app / "model.bin"], tmp_path, GPUTUNE_OPENCL_LIBRARY=str(fake_library()))
    assert ran.returncode == 0, ran.stderr
    doubled, taken, refused = ran.stdout.splitlines()
    assert taken == "1 1"
    assert doubled == f"{4 * 2**STAGES}"
    assert refused.startswith("invalid_argument: ")


def exported_names(app: Path, library: str, *options: str) -> set[str]:
    """What the names begin with that a library defines for others."""
    listed = bare(["nm", "--extern-only", "--defined-only", *options, library], app)
    assert listed.returncode == 0, listed.stderr
    return {words[2].partition("_")[0] for line in listed.stdout.splitlines() if len(words := line.split()) == 3}


def test_only_its_own_names_are_exported(app: Path) -> None:
    """So that it can be linked beside anything."""
    assert exported_names(app, "build/libgputune.a") == {"gputune"}
    assert exported_names(app, "build/libgputune.so", "-D") == {"gputune"}


@pytest.mark.slow
def test_the_plugin_for_onnxruntime_is_built_too(app: Path) -> None:
    build(app, [*MAKE, "onnxruntime"])
    assert exported_names(app, PLUGIN, "-D") == PLUGIN_NAMES


@pytest.mark.night
@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
def test_cmake_builds_it_and_the_plugin(native: Native, tmp_path: Path) -> None:
    app = exported(tmp_path)
    build(app, ["cmake", "-B", "build", "-DCMAKE_BUILD_TYPE=Debug", "-DGPUTUNE_ONNXRUNTIME=ON"])
    build(app, ["cmake", "--build", "build", "-j2"])
    assert run(app, *MODEL, "inputs/x.raw").returncode == 0
    assert exported_names(app, "build/libgputune.a") == {"gputune"}
    assert exported_names(app, PLUGIN, "-D") == PLUGIN_NAMES

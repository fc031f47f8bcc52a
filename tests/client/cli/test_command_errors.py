"""Test that every command ends with one line on standard error and the right exit code."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputune.client.cli import main as command_line
from gputune.client.errors import ConfigError, OutputError
from gputune.client.generation.config import read_config
from tests.client.commands import Gputune, config_file
from tests.client.contexts import small_context
from tests.client.models import build, save

GPUTUNE = [sys.executable, "-m", "gputune.client.cli.main"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(build("(float[2] x) => (float[2] y)", "y = Relu(x)"), tmp_path)


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(command_line.cli, "main", fail)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("it\x1b[2K"), "unexpected KeyError: 'it\\x1b[2K'; "),
        (ValueError("one\ntwo\r\x1b[31mthree"), "unexpected ValueError: one two ?[31mthree; "),
        (RecursionError(), "unexpected RecursionError; "),
        (MemoryError(), "unexpected MemoryError; "),
        (OSError(errno.ENOSPC, "No space", "cache.db"), "unexpected OSError: [Errno 28] No space: 'cache.db'; "),
    ],
)
def test_whatever_is_raised_is_one_line(
    gputune: Gputune, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    failing(monkeypatch, error)
    ran = gputune("devices")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"error: {said}GPUTUNE_TRACEBACK=1 shows where it comes from\n"


def test_where_an_error_comes_from_is_shown_on_request(gputune: Gputune, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyError("it"))
    monkeypatch.setenv("GPUTUNE_TRACEBACK", "1")
    ran = gputune("devices")
    assert "Traceback" in ran.err and ran.last_line.startswith("error: unexpected KeyError")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize(
    ("arguments", "stream", "code"),
    [
        (["context-binary-utility", "--context_binary", "{context}"], "stdout", 6),
        (["model-check", "missing.onnx"], "stderr", 3),
    ],
)
def test_full_streams(tmp_path: Path, arguments: list[str], stream: str, code: int) -> None:
    context = small_context(tmp_path / "context.bin") if "{context}" in arguments else ""
    command = [*GPUTUNE, *(argument.format(context=context) for argument in arguments)]
    with Path("/dev/full").open("w") as full:
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: full}
        done = subprocess.run(command, **streams, text=True, cwd=tmp_path)
    assert done.returncode == code
    if stream == "stdout":
        assert done.stderr == "error: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("code", "of_streams"),
    [
        *((code, True) for code in (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)),
        *((code, False) for code in (errno.EACCES, errno.ENOENT, errno.ENOMEM, errno.EPERM)),
    ],
)
def test_errors_of_streams_are_told_from_others(monkeypatch: pytest.MonkeyPatch, code: int, of_streams: bool) -> None:
    """Those of a file have its name, and are no error of a stream, whatever their reason."""

    def fail(**_: object) -> None:
        raise OSError(code, os.strerror(code), *names)

    names: tuple[str, ...] = ()
    monkeypatch.setattr(command_line.cli, "main", fail)
    monkeypatch.setattr(os, "dup2", lambda old, new: new)
    with pytest.raises(OutputError if of_streams else OSError, match=os.strerror(code)):
        command_line._run([])
    names = ("FILE",)
    with pytest.raises(OSError, match="FILE"):
        command_line._run([])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are always texts")
def test_names_of_files_that_are_no_text_here(model: Path, tmp_path: Path) -> None:
    """The bytes of an e with an accent in UTF-8, where names are ASCII."""
    named = os.fsencode(tmp_path) + b"/\xc3\xa9.onnx"
    model.rename(os.fsdecode(named))
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([*GPUTUNE, "model-check", named], capture_output=True, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("text", "why"), [("a\0b", "no path may hold"), ("\ud800", "surrogates not allowed"), ("~no such user/a", "home")]
)
def test_paths_that_are_none(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"performance_cache_dir: .* is no path: .*{why}"):
        read_config(config_file(tmp_path, performance_cache_dir=text))


@pytest.mark.parametrize("name", ["", ".bin", "folder/", "..", "folder/.."])
def test_a_context_binary_has_a_name(gputune: Gputune, model: Path, name: str) -> None:
    ran = gputune("context-binary-generator", "--model", model, "--binary_file", name)
    assert (ran.code, ran.last_line) == (2, f"error: --binary_file {name!r} names no file")


@pytest.mark.slow
def test_a_context_that_is_not_valid_is_an_output_that_cannot_be_written(
    gputune: Gputune, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no check at import has seen."""
    monkeypatch.setattr("gputune.runtime.context.records.LARGEST_TENSOR_BYTES", 0)
    command = ["context-binary-generator", "--model", model, "--binary_file", "m", "--output_dir", tmp_path]
    ran = gputune(*command, "--tuning_effort", "none", "--device", "null")
    assert ran.code == 6
    assert "cannot be written: tensor 'x'" in ran.last_line
    assert not (tmp_path / "m.bin").exists()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("--nope", "gputune: there is no option --nope; `gputune --help` lists them"),
        ("net-rum", "gputune: there is no command net-rum; did you mean net-run?"),
        ("power zzz", "gputune power: there is no command zzz; `gputune power --help` lists them"),
        ("net-run --grph x", "gputune net-run: there is no option --grph; did you mean --graph?"),
        ("net-run", "gputune net-run: --retrieve_context is missing; see `gputune net-run --help`"),
        ("net-run --graph", "option '--graph' requires an argument"),
        ("net-run --retrieve_context c --warmup many", "--warmup: 'many' is no whole number"),
        ("compare --model m --compare_seconds 0", "--compare_seconds: 0.0 is not more than 0"),
        ("model-check m --peak_gflops 0", "--peak_gflops: 0.0 is not more than 0"),
        ("net-run --retrieve_context c --profiling_level all", "--profiling_level: 'all' is not one of "),
        ("performance-cache prune", "gputune performance-cache prune: FILE_OR_TIER is missing; see "),
        ("model-check a b", "gputune model-check: got unexpected extra argument (b); see `gputune model-check --help`"),
        ("power check --root /no/such", "--root: directory '/no/such' does not exist"),
        ("tuning-report --output r.html --peak_gflops 0", "--peak_gflops: 0 is not a device's peak"),
        ("performance-cache prune f", "nothing to prune: give --older_than"),
        ("target-status --target here", "--target: 'here' is not HOST:PORT"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line_in_the_style_of_all_errors(gputune: Gputune, call: str, said: str) -> None:
    ran = gputune(*call.split())
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
    assert ran.err.startswith(f"error: {said}")


def test_a_value_that_is_near_a_legal_one_is_told(gputune: Gputune) -> None:
    ran = gputune("context-binary-generator", "--model", "m.onnx", "--tuning_effort", "quik")
    assert ran.err.endswith("'full'; did you mean 'quick'?\n")


def test_a_model_whose_name_is_near_that_of_one_is_told(gputune: Gputune, model: Path) -> None:
    wrong = model.with_suffix(".onx")
    ran = gputune("model-check", wrong)
    assert (ran.code, ran.last_line) == (3, f"error: model {wrong} does not exist; did you mean {model.name!r}?")


@pytest.mark.parametrize("group", ["performance-cache", "power"])
def test_groups_tell_all_of_what_their_commands_do(gputune: Gputune, group: str) -> None:
    assert "..." not in gputune(group, "--help").out.partition("Commands:")[2]


def test_a_group_alone_shows_its_commands(gputune: Gputune) -> None:
    ran = gputune("performance-cache")
    assert (ran.code, ran.out) == (2, "")
    assert "explain" in ran.err and "error" not in ran.err


def test_a_graph_that_a_context_does_not_have_is_an_option(gputune: Gputune, tmp_path: Path) -> None:
    context = small_context(tmp_path / "context.bin")
    ran = gputune("net-run", "--retrieve_context", context, "--device", "null", "--graph", "other")
    assert ran.code == 2, ran.err
    assert ran.last_line.startswith(f"error: {context}: there is no graph 'other'; the graphs are ")


@pytest.mark.slow
def test_no_device_is_the_code_of_devices(gputune: Gputune, model: Path, tmp_path: Path) -> None:
    command = ["context-binary-generator", "--model", model, "--binary_file", "m", "--output_dir", tmp_path]
    ran = gputune(*command, "--device", "no such device")
    assert ran.code == 8
    assert ran.last_line.startswith("error: no ") and ran.last_line.count("error") == 1
    assert ran.last_line.endswith("[no_device]")


@pytest.mark.parametrize("name", ["model.onnx", "renamed.bin"])
@pytest.mark.parametrize(
    "command",
    [
        ("tuning-report", "--json", "--context_binary"),
        ("memory-report", "--json", "--context_binary"),
        ("context-binary-utility", "--context_binary"),
        ("net-run", "--context_binary"),
        ("export", "--output_dir", "app", "--context_binary"),
        ("package", "--output", "m.gtpkg"),
    ],
)
def test_a_model_in_place_of_a_context_is_called_that(
    gputune: Gputune, model: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], name: str
) -> None:
    monkeypatch.chdir(model.parent)
    ran = gputune(*command, model.rename(model.with_name(name)))
    assert ran.code == 8 and "`gputune context-binary-generator`" in ran.last_line, ran.err


def test_a_file_that_is_no_export_and_a_missing_model_are_named_first(gputune: Gputune, model: Path) -> None:
    path = model.with_name("other.json")
    path.write_bytes(b"\x08\xff")
    ran = gputune("performance-cache", "import", path)
    assert ran.code == 7 and f"{path} is no export of a performance cache: it is no text;" in ran.last_line
    ran = gputune("compare", "--model", model.with_name("modl.onnx"))
    assert ran.code == 3 and ran.err.count("\n") == 1, ran.err
    assert "does not exist; did you mean 'model.onnx'?" in ran.last_line

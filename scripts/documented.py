"""Run every gputune command in README and docs/ with one installation, page by page, outside the checkout.

The null device computes nothing, so a page takes seconds. Each page has a folder of its own, with the files that its
commands read. Servers stay until another server replaces them or the page ends. SKIPPED says what is not run.
`_with_stand_ins` replaces other machines, ports that others use, and long times.
"""

import functools
import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

import tool
from tests.client.models import build

SKIPPED = {
    r"--adb\b": "needs a phone; tests/adb has one that is made up",
    r"--(device|target) agent:": "needs a gputune-agent; tests/opencl/server has one",
    r"192\.0\.2\.10": "is another machine",
    r"gputune export": "needs a context of a device that computes; run_export has it",
}
LIMIT_S = 180
READY = re.compile(r"listening|has joined")
CONTEXTS = ("model", "net", "phone", "tablet", "detector", "classifier", "recogniser", "a", "b")


@dataclass(frozen=True)
class Ended:
    """The exit code of a command, and what it said."""

    code: int
    said: str


Runner = Callable[[str, Path, Mapping[str, str]], Ended]
"""Run a command in a folder with these variables alone."""


@dataclass(frozen=True)
class Failure:
    """A command of a page that did not end with 0, and what it said."""

    page: str
    command: str
    said: str


@dataclass
class _Page:
    """A page's folder and environment. servers: by kind, those that run."""

    folder: Path
    environment: dict[str, str]
    server_port: int
    farm_port: int
    servers: dict[str, list[subprocess.Popen[bytes]]] = field(default_factory=dict)


def pages() -> list[Path]:
    """README and docs/, those that show a gputune command."""
    found = [tool.ROOT / "README.md", *sorted((tool.ROOT / "docs").glob("*.md"))]
    return [path for path in found if any(map(_is_gputune, commands(path)))]


def commands(page: Path) -> list[str]:
    """The lines of a page's shell blocks that make files or run gputune, in order, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines = [re.sub(r"\s+#.*", "", line) for line in lines]
    others = re.compile(r"python -c|echo |mkdir |openssl |ssh -N|\(umask ")
    return [line for line in lines if _is_gputune(line) or others.match(line)]


def in_a_shell(command: str, folder: Path, environment: Mapping[str, str]) -> Ended:
    """Run a command as a user does."""
    try:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired as error:
        return Ended(-1, f"{error}\n{(error.output or b'').decode(errors='replace')}")
    return Ended(done.returncode, done.stdout.decode(errors="replace"))


def run_page(page: Path, installation: Path, run: Runner = in_a_shell, folder: Path | None = None) -> list[Failure]:
    """Run a page's commands in order by the programs in the folder `installation`, such as .venv/bin.

    folder: an empty one, which keeps what the commands write.
    """
    with _prepared(page, installation, run, folder) as ready:
        return [failure for line in commands(page) if (failure := _run(page, line, ready, run)) is not None]


def run_export(installation: Path) -> list[Failure]:
    """Run the export of docs/native.md, with a context of the device of this machine."""
    page = tool.ROOT / "docs" / "native.md"
    asked = next(line for line in commands(page) if line.startswith("gputune export"))
    with _prepared(page, installation, in_a_shell, None) as ready:
        del ready.environment["GPUTUNE_DEVICE"]
        generate = "gputune context-binary-generator --model net.onnx --binary_file model --tuning_effort none"
        done = in_a_shell(f"{generate} && {asked} && make -C app", ready.folder, ready.environment)
    return [Failure(page.name, asked, done.said)] if done.code else []


def _is_gputune(line: str) -> bool:
    return line.startswith("gputune ")


def _run(page: Path, line: str, ready: _Page, run: Runner) -> Failure | None:
    if any(re.search(pattern, line) for pattern in SKIPPED):
        return None
    command = _with_stand_ins(line, ready)
    kind = _kind_of_server(command)
    if kind is not None:
        return _start(page.name, line, command, kind, ready)
    done = run(command, ready.folder, ready.environment)
    return Failure(page.name, line, f"exit code {done.code}\n{done.said}") if done.code else None


def _with_stand_ins(line: str, ready: _Page) -> str:
    replaced = line.removesuffix("&").replace("board.local", "localhost").replace("127.0.0.1:22598", "localhost:22598")
    replaced = replaced.replace("localhost:22598", f"localhost:{ready.server_port}")
    replaced = replaced.replace("127.0.0.1:8786", f"127.0.0.1:{ready.farm_port}").replace("--device 0", "--device null")
    replaced = replaced.replace("$XDG_RUNTIME_DIR/", "").replace("adreno-740-cu6", "waiting-cu1")
    replaced = re.sub(r"^ssh -N .*", "gputune target-server", replaced)
    replaced = re.sub(r"--duration \w+", "--duration 1s", replaced)
    replaced = re.sub(r" --fail_under [\d.]+", "", replaced)  # the null device records no gain
    if replaced.startswith("gputune compare ") and "--compare_seconds" not in replaced:
        replaced += " --compare_seconds 1"
    words = shlex.split(replaced)
    if words[:2] == ["gputune", "target-server"] and "--unix" not in words:
        replaced += f" --port {ready.server_port}"
    if words[:3] == ["gputune", "farm", "scheduler"]:
        replaced += f" --port {ready.farm_port}"
    elif words[:2] == ["gputune", "farm"] and words[2] in ("worker", "status", "drain", "stop"):
        replaced += f" --scheduler 127.0.0.1:{ready.farm_port}"
    return replaced


def _kind_of_server(command: str) -> str | None:
    """Under which name a server is kept; None of a command that ends by itself."""
    words = shlex.split(command)
    if words[:2] == ["gputune", "target-server"]:
        return "target-server"
    if words[:2] == ["gputune", "farm"] and words[2] in ("scheduler", "worker"):
        return "farm " + (words[words.index("--name") + 1] if "--name" in words else words[2])
    return None


def _start(page: str, line: str, command: str, kind: str, ready: _Page) -> Failure | None:
    """Starts a server in the place of an earlier one, and waits until it says that it is there."""
    _stop(ready.servers.pop(kind, []))
    said = ready.folder / f"{kind}.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            shlex.split(command), cwd=ready.folder, env=ready.environment, stdout=log, stderr=subprocess.STDOUT
        )
    ready.servers.setdefault(kind, []).append(process)
    end = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < end:
        if READY.search(said.read_text(encoding="utf-8", errors="replace")):
            return None
        time.sleep(0.1)
    return Failure(page, line, f"did not start\n{said.read_text(encoding='utf-8', errors='replace')}")


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _prepared(page: Path, installation: Path, run: Runner, folder: Path | None) -> Iterator[_Page]:
    """Fill a folder with what a page's commands read; it is the home of a new user. None: a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="gputune-page-") as temporary:
        home = (folder or Path(temporary)).resolve()
        ready = _Page(home, _environment(installation, home), tool.free_port(), tool.free_port())
        _make_files(page, home, _contexts(installation, run))
        try:
            yield ready
        finally:
            _stop([process for processes in reversed(ready.servers.values()) for process in processes])


def _make_files(page: Path, folder: Path, contexts: tuple[bytes, bytes]) -> None:
    fixed = not any("--input_dimensions" in line for line in commands(page))
    (folder / "models").mkdir()
    (folder / "output").mkdir()
    save_model(folder / "model.onnx", 1 if fixed else "n")
    save_model(folder / "net.onnx", 1)
    save_model(folder / "models" / "net.onnx", 1)
    np.ones((1, 3, 224, 224), np.float32).tofile(folder / "x.raw")
    for name in ("inputs.txt", "x.txt", "y.txt"):
        (folder / name).write_text("x:=x.raw\n", encoding="utf-8")
    (folder / "contexts.json").write_text('{"contexts": [{"path": "a.bin", "input_list": "x.txt"}]}', encoding="utf-8")
    null, waiting = contexts
    (folder / "board.bin").write_bytes(waiting)
    for name in CONTEXTS:
        (folder / f"{name}.bin").write_bytes(null)
        (folder / "output" / f"{name}.bin").write_bytes(null)
    token = folder / "gputune.token"
    token.write_text("a secret of these pages alone\n", encoding="utf-8")
    token.chmod(0o600)


@functools.cache
def _contexts(installation: Path, run: Runner) -> tuple[bytes, bytes]:
    """Return contexts of a model for the null device and for the waiting one, made once for all pages."""
    with tempfile.TemporaryDirectory(prefix="gputune-contexts-") as name:
        folder = Path(name)
        save_model(folder / "net.onnx", 1)
        generate = "gputune context-binary-generator --model net.onnx --log_level warn --binary_file"
        for arguments in ("null --tuning_effort quick", "waiting --tuning_effort none --device waiting"):
            done = run(f"{generate} {arguments}", folder, _environment(installation, folder))
            if done.code:
                raise RuntimeError(f"no context for the pages:\n{done.said}")
        null, waiting = ((folder / "output" / f"{device}.bin").read_bytes() for device in ("null", "waiting"))
        return null, waiting


def _environment(installation: Path, home: Path) -> dict[str, str]:
    """Variables of a new user, for the null device unless a command says another one."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("GPUTUNE_", "PYTHON"))}
    return own | {
        "PATH": f"{installation}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_RUNTIME_DIR": str(home),
        "GPUTUNE_DEVICE": "null",
        "GPUTUNE_TRUSTED_FOLDERS": str(installation.parent),
    }


def save_model(path: Path, batch: int | str) -> None:
    """A model with the input and the names that the pages talk about, and little work."""
    model = build(
        f"(float[{batch},3,224,224] x) => (float[{batch},4] y)",
        """["/head/conv"] conv1 = Conv<strides=[8,8]>(x, w)
           [relu] relu2 = Relu(conv1)
           [pool] c = GlobalAveragePool(relu2)
           [flatten] d = Flatten(c)
           [gemm] y = Gemm(d, v)""",
        {"w": (4, 3, 3, 3), "v": (4, 4)},
    )
    onnx.save(model, path)

"""Run the command line in this process for tests."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest

from gputune.client.cli.main import main
from gputune.runtime.context.format import read_header
from gputune.runtime.context.records import ContextHeader
from tests.client import models
from tests.client.summaries import problems


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.err.strip().splitlines()[-1]


class Gputune:
    """Calls `gputune ARGUMENTS` and captures what it prints."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: object) -> Ran:
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = self._capfd.readouterr()
        ran = Ran(int(ended.value.code or 0), out, err)
        if ran.code == 0:
            _check_summary([str(argument) for argument in arguments])
        return ran


@dataclass(frozen=True)
class Generated(Ran):
    """How a generation ended, its context, and its summary, which is None where none was written."""

    context: Path
    summary: Any

    @property
    def header(self) -> ContextHeader:
        assert self.code == 0, self.err
        return read_header(self.context)


class Generate:
    """Calls `gputune context-binary-generator` on a target, by default for a small model."""

    def __init__(self, gputune: Gputune, folder: Path, target: tuple[object, ...]) -> None:
        self.gputune, self.folder, self.target = gputune, folder, target
        self.model: Path | onnx.ModelProto = models.conv_relu_gemm()

    def __call__(
        self,
        *arguments: object,
        model: Path | onnx.ModelProto | None = None,
        effort: str = "none",
        output: str = "output",
        target: tuple[object, ...] | None = None,
        **keys: object,
    ) -> Generated:
        """Make output/small.bin in the folder. keys: of the config file, which names a cache where tuning is on."""
        model = self.model if model is None else model
        path = model if isinstance(model, Path) else models.save(model, self.folder)
        summary = self.folder.with_name(f"{self.folder.name} summary.json")  # where no test counts files
        summary.unlink(missing_ok=True)
        words: list[object] = ["--model", path, "--binary_file", "small", "--output_dir", self.folder / output]
        words += ["--tuning_effort", effort, "--summary_json", summary, *(self.target if target is None else target)]
        if effort != "none":
            words += ["--config_file", config_file(self.folder, **keys)]
        elif keys:
            (self.folder / "config.json").write_text(json.dumps(keys), encoding="utf-8")
            words += ["--config_file", self.folder / "config.json"]
        ran = self.gputune("context-binary-generator", *words, *arguments)
        told = read_json(summary) if summary.exists() else None
        return Generated(ran.code, ran.out, ran.err, self.folder / output / "small.bin", told)


def _check_summary(arguments: list[str]) -> None:
    """Check that the summary which a command has written is what its schema says."""
    if "--summary_json" in arguments:
        path = Path(arguments[arguments.index("--summary_json") + 1])
        if path.is_file():
            assert problems(arguments[0], read_json(path)) == []


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def config_file(folder: Path, **keys: object) -> Path:
    """A config file with tuning on and a performance cache inside the folder."""
    path = folder / "config.json"
    content = {"tuning_mode": True, "performance_cache_dir": str(folder / "cache"), **keys}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path

"""Run the command line in this process for tests."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gputune.client.cli.main import main
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

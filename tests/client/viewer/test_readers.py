"""Test which reader a name selects."""

import re
from pathlib import Path

import pytest

from gputune.client.errors import ConfigError
from gputune.client.options.viewer import Features
from gputune.client.progress import SILENT
from gputune.client.viewer.outputs import write_output
from gputune.client.viewer.readers import GROUP, reader_named
from tests.client.viewer.made_up_profiles import rich_profile

TEXT = """def read(profile, features, output, progress):
    output.write_text(str(len(profile.graphs)))
    return [output]
"""


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with the readers `counts`, and `broken`, which cannot be imported."""
    (folder / "installed_reader.py").write_text(TEXT, encoding="utf-8")
    metadata = folder / "installed_reader-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-reader\nVersion: 1\n", encoding="utf-8")
    points = f"[{GROUP}]\ncounts = installed_reader:read\nbroken = no_such_module:read\n"
    (metadata / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))


def test_an_installed_reader_makes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch)
    assert reader_named("optrace") is write_output
    output = tmp_path / "any.name"
    assert reader_named("counts")(rich_profile(), Features(), output, SILENT) == [output]
    assert output.read_text() == "1"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("optrce", "there is no reader 'optrce'; did you mean 'optrace'?"),
        ("count", "there is no reader 'count'; did you mean 'counts'?"),
        ("broken", "--reader broken cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("lib/libQnnHtpOptraceProfilingReader.so", "give --reader optrace, which is built in"),
        ("libQnnHtpOptraceProfilingReader.so", "give --reader optrace, which is built in"),
    ],
)
def test_any_other_name_is_answered(name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match=re.escape(said)):
        reader_named(name)

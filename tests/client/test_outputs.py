"""Slots for results: shown to be writable without leaving a trace, and one error otherwise."""

from pathlib import Path

import pytest

from gputune.client.errors import OutputError
from gputune.client.outputs import check_output, write_json

from .commands import Gputune, read_json


@pytest.mark.parametrize("folder", [True, False])
def test_a_writable_place_is_left_as_it_was(tmp_path: Path, folder: bool) -> None:
    check_output(tmp_path / "deep" / "down", folder)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("{}", encoding="utf-8")
    check_output(path)
    assert path.read_text(encoding="utf-8") == "{}"
    assert list(tmp_path.iterdir()) == [path]


def test_the_reason_is_given(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, folder, reason in (
        (tmp_path, False, "Is a directory"),
        (tmp_path / "file", True, "Not a directory"),
        (tmp_path / "file" / "below", True, "Not a directory"),
        (tmp_path / "file" / "below", False, "Not a directory"),
        (tmp_path / "new" / ("x" * 300), True, "File name too long"),
    ):
        with pytest.raises(OutputError, match=f"{path} cannot be written: {reason}"):
            check_output(path, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_json_is_written_into_a_new_folder_or_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "new" / "one.json", {"a": 1})
    assert read_json(tmp_path / "new" / "one.json") == {"a": 1}
    with pytest.raises(OutputError, match="Is a directory"):
        write_json(tmp_path / "new", {})


@pytest.mark.parametrize("option", ["--output_dir", "--summary_json"])
def test_net_run_checks_where_it_writes_before_it_reads(gputune: Gputune, tmp_path: Path, option: str) -> None:
    (tmp_path / "file").touch()
    missing = tmp_path / "missing"
    ran = gputune(
        "net-run", "--retrieve_context", missing, "--input_list", missing,
        "--output_dir", tmp_path / "out", option, tmp_path / "file" / "below",
    )  # fmt: skip
    assert ran.code == OutputError.exit_code
    assert "cannot be written: Not a directory" in ran.last_line

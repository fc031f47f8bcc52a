"""Test slots for results: never over an input, tested for writing without a trace, complete or not at all."""

import errno
import os
import stat
import tempfile
import threading
from functools import partial
from pathlib import Path

import pytest

from gputune.client.errors import OutputError, Overwrites
from gputune.client.outputs import Files, check_output, whole, write_json, write_summary, write_text, writing
from tests.client.commands import Generate, Gputune, read_json
from tests.client.contexts import small_context
from tests.disks import no_room


@pytest.mark.parametrize("folder", [True, False])
def test_a_writable_place_is_left_as_it_was(tmp_path: Path, folder: bool) -> None:
    check_output(tmp_path / "deep" / "down", folder)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_another_process_removes_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tempfile.TemporaryFile

    def taken(dir: Path) -> object:
        monkeypatch.setattr(tempfile, "TemporaryFile", made)
        dir.rmdir()
        return made(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", taken)
    check_output(tmp_path / "results", folder=True)
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


def test_files_are_known_whatever_leads_to_them(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real/inner")
    read = tmp_path / "real" / "x"
    files = Files()
    files.read(read, "--model")  # not there
    for same in (tmp_path / "link" / ".." / "x", tmp_path / "real" / "." / "x", Path(os.path.relpath(read))):
        with pytest.raises(Overwrites, match=r"^--output .* would overwrite --model .*; give it another name$"):
            files.write(same, "--output")
    files.write(tmp_path / "x", "--output")  # which "link/../x" is not


def test_an_output_that_comes_first_is_found_as_well(tmp_path: Path) -> None:
    files = Files()
    files.write(tmp_path / "a", "--output")
    files.write(tmp_path / "a", "--output")
    files.write_below(tmp_path, "--output_dir")
    files.read(tmp_path, "--models")  # a folder: its files are told one by one
    for tell in (files.read, files.change, files.write, files.write_below):
        with pytest.raises(Overwrites):
            tell(tmp_path / "a", "--other")
    files.change(tmp_path / "b", "--performance_cache_dir")
    files.read(tmp_path / "b", "--performance_cache_dir")


def test_names_that_no_file_can_have_are_left_to_those_who_open_it(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    files = Files()
    for name in ("x" * 300, "a\0b", "circle"):
        files.read(tmp_path / name, "--model")
        with pytest.raises(Overwrites):
            files.write(tmp_path / name, "--output")


def test_a_file_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    with pytest.raises(KeyError), whole(path) as unfinished:
        unfinished.write_text("half")
        raise KeyError
    assert not list(tmp_path.iterdir()), "nor does a folder that was made for it"
    path.parent.mkdir()
    path.write_text("old")
    with whole(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "link").symlink_to("kept")
    (tmp_path / "hard").hardlink_to(tmp_path / "kept")
    for name in ("link", "hard"):
        write_json(tmp_path / name, {})
        assert (tmp_path / "kept").read_text() == "kept"
        assert not (tmp_path / name).is_symlink() and read_json(tmp_path / name) == {}


def test_pipes_and_devices_are_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_json(tmp_path / "pipe", {"a": 1})
    reader.join()
    assert read == ['{\n "a": 1\n}\n']
    write_json(tmp_path / "null", {})
    assert (tmp_path / "null").is_symlink() and stat.S_ISCHR(Path("/dev/null").stat().st_mode)


REMEDY = "make room on its disk, or choose another folder"


def test_an_output_without_room_leaves_nothing_and_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "out"
    for write in (partial(write_text, path, "x" * 3000), partial(write_summary, path, {"a": "x" * 3000})):
        with no_room(2000), pytest.raises(OutputError, match=f"^{path} cannot be written: File too large; {REMEDY}$"):
            write()
        assert not list(tmp_path.iterdir())
    path.write_text("old")
    with no_room(2000), pytest.raises(OutputError, match=REMEDY):
        write_json(path, "x" * 3000)
    with no_room(2000), pytest.raises(OutputError, match=REMEDY):
        write_json(tmp_path / "new" / "folder" / "out", "x" * 3000)
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path, code: int) -> None:
    with pytest.raises(OutputError, match=f"{os.strerror(code)}; {REMEDY}$"), writing(tmp_path):
        raise OSError(code, os.strerror(code))


@pytest.mark.parametrize("embeds", [False, True])
def test_a_context_without_room_leaves_nothing(generate: Generate, embeds: bool) -> None:
    before = generate().context.read_bytes()
    path = generate.folder / ("m.onnx" if embeds else "new/folder/small.bin")
    more = ("--ep_context", path, "--ep_context_embed_mode", "1") if embeds else ()
    with no_room(len(before) + (100 if embeds else -100)):
        ran = generate(*more, output="output" if embeds else "new/folder")
    assert ran.code == OutputError.exit_code
    assert ran.last_line == f"error: {path} cannot be written: File too large; {REMEDY}"
    there = {
        one.name: one.read_bytes() for one in generate.folder.rglob("*") if one.suffix != ".onnx" and one.is_file()
    }
    assert there == {"small.bin": before} and not path.exists()


def test_a_report_without_room_leaves_nothing(gputune: Gputune, generate: Generate, tmp_path: Path) -> None:
    assert generate(effort="quick").code == 0
    page = tmp_path / "report.html"
    report = ("tuning-report", "--performance_cache_dir", tmp_path / "cache", "--output", page)
    assert gputune(*report).code == 0
    size = page.stat().st_size
    page.unlink()
    before = sorted(tmp_path.iterdir())
    with no_room(size - 1):
        ran = gputune(*report)
    assert (ran.code, REMEDY in ran.last_line) == (OutputError.exit_code, True), ran.err
    assert sorted(tmp_path.iterdir()) == before


def test_standard_output_may_be_a_file(gputune: Gputune, tmp_path: Path) -> None:
    context = small_context(tmp_path / "a.bin")
    ran = gputune("context-binary-utility", "--context_binary", context, "--json_file", "/dev/stdout")
    assert ran.code == 0 and Path("/dev/stdout").is_symlink(), ran.err
    assert '"max_spill_fill_size": 0' in ran.out

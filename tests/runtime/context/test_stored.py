"""Test files that are replaced in place while they are open: a read gives checked bytes, or an error."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from gputune.core.files import open_file, read_file
from gputune.runtime.context.format import ContextFile, open_context, read_header
from gputune.runtime.context.package import is_package, open_package
from gputune.runtime.context.stored import OpenFile
from stress.native import files
from stress.native.reading import OK, Reading, read_by_python

CHANGES = ("cut short", "zeros", "another")


def replace_in_place(path: Path, change: str, other: bytes) -> None:
    """Changes a file as `cp` does over it: it stays the same file."""
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.write(other if change == "another" else bytes(len(whole)) if change == "zeros" else b"")
        file.truncate({"cut short": 100, "zeros": len(whole), "another": len(other)}[change])


def changing_at(number: int, act: Callable[[], None], patch: pytest.MonkeyPatch) -> list[int]:
    """Has something happen just before the read of this number; how many reads there were."""
    plain, count = OpenFile.read, [0]

    def read(file: OpenFile, start: int, nbytes: int) -> bytes:
        if count[0] == number:
            act()
        count[0] += 1
        return plain(file, start, nbytes)

    patch.setattr(OpenFile, "read", read)
    patch.setattr(ContextFile, "stored", checked_section)
    return count


STORED = ContextFile.stored


def checked_section(file: ContextFile, index: int) -> memoryview:
    """A section, whose bytes are shown to be those that were written."""
    content = STORED(file, index)
    assert hashlib.sha256(content).hexdigest() == file.header.sections[index].sha256
    return content


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["rich.bin", "m.gtpkg", "0.onnx", "1.onnx"])
def test_at_every_moment_it_is_read_as_it_was_or_refused(tmp_path: Path, name: str, change: str) -> None:
    """A mapping would give other bytes than those that were checked, or SIGBUS."""
    paths = {path.name: path for path in files.originals(tmp_path)}
    path = paths[name]
    changed = path.with_name("context.bin") if name == "1.onnx" else path  # which that file names
    another = paths["small.bin" if name == "rich.bin" else "rich.bin"]
    whole, other, other_contexts = changed.read_bytes(), another.read_bytes(), read_by_python(another).contexts
    with pytest.MonkeyPatch.context() as patch:
        reads = changing_at(-1, lambda: None, patch)
        as_it_was, ended = read_by_python(path), Counter[str]()
    assert as_it_was.error == OK
    for number in range(reads[0]):
        changed.write_bytes(whole)
        os.utime(changed, (1, 1))  # so that a change is seen, however coarse the clock of the file system is
        with pytest.MonkeyPatch.context() as patch:
            changing_at(number, lambda: replace_in_place(changed, change, other), patch)
            found: Reading = read_by_python(path)
        assert found.error != OK or found == as_it_was or found.contexts == other_contexts  # of a file opened later
        assert found.error != "checksum_mismatch", "the file is not damaged, it was changed"
        ended[found.error] += 1
    assert ended["file_changed"]


def test_a_file_that_is_replaced_by_rename_stays_what_it_was(tmp_path: Path) -> None:
    (path,) = (path for path in files.originals(tmp_path) if path.name == "rich.bin")
    with open_context(path) as file:
        path.with_name("new").write_bytes(b"new")
        path.with_name("new").replace(path)
        assert [bytes(file.section(place)) for place in range(len(file.header.sections))]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("what", ["pipe", "folder", "device"])
@pytest.mark.parametrize("opens", [open_context, open_package, is_package, read_header, open_file, read_file])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, opens: Callable[[Path], object], what: str) -> None:
    path = {"pipe": tmp_path / "pipe", "folder": tmp_path, "device": Path("/dev/zero")}[what]
    if what == "pipe":
        os.mkfifo(path)
    words = {
        "pipe": "it is a named pipe and no file",
        "folder": "Is a directory",
        "device": "it is a device and no file",
    }
    with pytest.raises(OSError, match=words[what]) as refused:
        opens(path)
    assert refused.value.filename == str(path)

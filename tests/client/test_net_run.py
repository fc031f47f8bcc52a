"""Input lists and result files."""

from pathlib import Path

import numpy as np
import pytest

from gputune.client.errors import ConfigError
from gputune.client.net_run import file_stem, read_input_list, read_inputs, write_result
from gputune.runtime.context_records import TensorRecord

ONE = (TensorRecord("x", (2, 3)),)
TWO = (*ONE, TensorRecord("y", (4,)))


def listed(folder: Path, text: str) -> Path:
    path = folder / "inputs.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_lines_name_inputs_and_may_leave_out_a_single_name(tmp_path: Path) -> None:
    lines = read_input_list(listed(tmp_path, "# comment\n\nx:=a.raw\nb.raw\n"), ONE)
    assert [line.files["x"].name for line in lines] == ["a.raw", "b.raw"]
    (line,) = read_input_list(listed(tmp_path, "y:=b.raw x:=a.raw"), TWO)
    assert {name: file.name for name, file in line.files.items()} == {"x": "a.raw", "y": "b.raw"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no inputs"),
        ("z:=a.raw y:=b", r"inputs.txt:1: there is no input 'z'; the graph has \['x', 'y'\]"),
        ("x:=a.raw x:=b.raw", "input 'x' is given twice"),
        ("\nx:=a.raw", "inputs.txt:2: no file for input 'y'"),
        ("a.raw", "names no input; write NAME:=a.raw"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_input_list(listed(tmp_path, text), TWO)


def test_raw_and_npy_inputs_are_read_and_checked(tmp_path: Path) -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    (tmp_path / "a.raw").write_bytes(value.tobytes())
    np.save(tmp_path / "a.npy", value)
    np.save(tmp_path / "wide.npy", value.astype(np.float64))
    (tmp_path / "short.raw").write_bytes(b"1234")
    (tmp_path / "no.npy").write_bytes(b"not an array")
    text = "\n".join(str(tmp_path / name) for name in ("a.raw", "a.npy", "wide.npy", "short.raw", "no.npy", "gone.raw"))
    raw, npy, wide, short, no, gone = read_input_list(listed(tmp_path, text), ONE)
    np.testing.assert_array_equal(read_inputs(raw, ONE)["x"], value)
    np.testing.assert_array_equal(read_inputs(npy, ONE)["x"], value)
    for line, complaint in (
        (wide, r"holds float64\[2, 3\], input 'x' takes float32\[2, 3\]"),
        (short, "has 4 bytes, input 'x' takes 24"),
        (no, "is no array file"),
        (gone, "cannot be read: No such file"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            read_inputs(line, ONE)


def test_results_stay_in_their_folder(tmp_path: Path) -> None:
    value = np.ones((1, 2), dtype=np.float32)
    write_result(tmp_path / "Result_0", {"../a/b": value, "c": value}, npy=True)
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*")) == [
        "Result_0/_._a_b.npy", "Result_0/_._a_b.raw", "Result_0/c.npy", "Result_0/c.raw",
    ]  # fmt: skip
    assert file_stem("save_infer_model/scale_0.tmp_1") == "save_infer_model_scale_0.tmp_1"

"""Test what all commands' config files have in common: how a file is read, and how its mistakes are shown."""

import re
from pathlib import Path

import pytest

from gputune.client import strict_json
from gputune.client.errors import ConfigError
from gputune.client.strict_json import a_flag, a_number, a_path, a_text, one_of, read_keys, read_object

MOST_OF_A_MESSAGE = 400


def keys_of(folder: Path, written: bytes) -> dict[str, object]:
    path = folder / "f.json"
    path.write_bytes(written)
    known = {"flag": a_flag, "text": a_text, "path": a_path, "number": a_number(1, 9), "name": one_of("low", "high")}
    return read_keys(read_object(path), known, "f.json")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    assert keys_of(tmp_path, b'\xef\xbb\xbf{"flag": true, "number": 9}') == {"flag": True, "number": 9}


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        (b'{"text": "\xff"}', "is not JSON: it is no text in UTF-8, by its byte 10"),
        (b'{"number": NaN}', "is not JSON: NaN is no number of JSON"),
        (b"[" * 100_000, "is not JSON: "),
        (b'{"flag": {"%s": 1, "%s": 2}}' % (b"k" * 9000, b"k" * 9000), "occurs twice"),
        (b'{"%s": 1}' % (b"f" * 9000), "unknown key 'ffff"),
        (b'{"flag": "%s"}' % (b"x" * 9000), "flag must be true or false, not \"xxxx"),
        (b'{"flag": %s}' % (b"[" * 31 + b"]" * 31), f"flag must be true or false, not {'[' * 31}]"),
        (b'{"flag": %s}' % (b"[" * 900 + b"]" * 900), "is not JSON: it has more than 32 levels"),
        (b'{"text": "%s"}' % (b" " * 9000), "text is empty"),
        (b'{"path": "%s"}' % (b"\\u0000" * 9000), "no path may hold"),
        (b'{"number": true}', "number must be a whole number from 1 to 9, not true"),
        (b'{"name": ["low"]}', 'name must be one of low, high, not ["low"]'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_shown_however_long_it_is(tmp_path: Path, written: bytes, complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)) as caught:
        keys_of(tmp_path, written)
    assert len(str(caught.value).replace(str(tmp_path), "")) < MOST_OF_A_MESSAGE


def test_a_file_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "LARGEST_BYTES", 20)
    assert keys_of(tmp_path, b'{"number": 1}'.ljust(20)) == {"number": 1}
    with pytest.raises(ConfigError, match="has more than 20 bytes"):
        keys_of(tmp_path, b'{"number": 1}'.ljust(21))

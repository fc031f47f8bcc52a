"""Test what commands say about errors of contexts and devices."""

from pathlib import Path

import pytest

from gputune.client.device_errors import device_errors
from gputune.client.errors import GputuneError
from gputune.core import errors


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (FileNotFoundError(2, "No such file", "a.bin"), "a.bin cannot be read: No such file"),
        (OSError(5, "Input/output error"), "model.bin cannot be read: Input/output error"),
        (OSError("a.log: No space left"), "a.log: No space left"),  # as the C runtime says it
        (errors.UnknownGraph("no graph 'a'"), "no graph 'a'"),
        (errors.Truncated("a.bin: 3 of 4 bytes"), "a.bin: 3 of 4 bytes [truncated]"),
        (errors.LaunchFailed("lost"), "lost"),
    ],
)
def test_an_error_is_one_line(raised: Exception, said: str) -> None:
    with pytest.raises(GputuneError) as error, device_errors(Path("model.bin")):
        raise raised
    assert str(error.value) == said

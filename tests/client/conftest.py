import pytest

from .commands import Gputune


@pytest.fixture
def gputune(capfd: pytest.CaptureFixture[str]) -> Gputune:
    return Gputune(capfd)

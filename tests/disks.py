"""Make a disk look nearly full to this process."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_room(nbytes: int) -> Iterator[None]:
    """Let this process write no file that is larger, as on a disk that is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

"""Reserve ports on which nothing listens, and nothing will."""

import itertools
import os
import socket

# Below what the system gives to sockets that ask for any port (32768 and more), so that nothing else gets it meanwhile,
# and above the server's own port.
_FIRST, _COUNT = 23_000, 9_000
_offsets = itertools.count(os.getpid() * 61)


def unused_port() -> int:
    """Returns a port of 127.0.0.1 that nothing listens on; each call another one."""
    for offset in itertools.islice(_offsets, _COUNT):
        port = _FIRST + offset % _COUNT
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("all ports are in use")

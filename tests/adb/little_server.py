"""Replace the bundle in tests of its life on the device: shake hands and answer nothing else.

It takes the options of the target server, and writes them to server.json next to its token.
"""

import argparse
import json
import os
import socket
import sys
import threading
from pathlib import Path

from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.server.protocol.connection import Connection, State
from gputune.server.protocol.errors import RemoteProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Error, Welcome


def serve(client: socket.socket, token: bytes) -> None:
    connection = Connection("server", "little 1", token)

    def send(message: object) -> None:
        for part in connection.send(message):
            client.sendall(part)

    assert NULL_REPORT.identity is not None
    with client:
        while connection.state is not State.READY and (count := client.recv_into(connection.space())):
            try:
                connection.filled(count)
            except RemoteProtocolError as error:
                send(Error(error.name, error.message))
                return
            if connection.state is State.GREETED:
                send(connection.hello())
            elif connection.state is State.PROVEN:
                send(Welcome(Limits(), NULL_REPORT.identity.to_dict(), {}))


def end_with_the_input() -> None:
    while os.read(0, 100):
        pass
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=22598)
    parser.add_argument("--token_file", type=Path)
    parser.add_argument("--exit_with_parent", action="store_true")
    parser.add_argument("--fail", action="store_true")
    options = parser.parse_args()
    if options.fail:
        sys.exit("no device is usable")
    token = os.environ.get("GPUTUNE_TOKEN") or options.token_file.read_text()
    if options.exit_with_parent:
        threading.Thread(target=end_with_the_input, daemon=True).start()
        facts = {
            "pid": os.getpid(),
            "arguments": sys.argv,
            "token": token,
            "token_mode": options.token_file.stat().st_mode & 0o777,
            "folder_mode": options.token_file.parent.stat().st_mode & 0o777,
            "temporary": os.environ["TMPDIR"],
        }
        options.token_file.with_name("server.json").write_text(json.dumps(facts))
    with socket.create_server(("127.0.0.1", options.port)) as listener:
        print("using the little device")
        print(f"gputune target server listening on 127.0.0.1:{listener.getsockname()[1]} (device: little)", flush=True)
        while True:
            client, _ = listener.accept()
            threading.Thread(target=serve, args=(client, token.encode()), daemon=True).start()


if __name__ == "__main__":
    main()

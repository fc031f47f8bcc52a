"""Send hostile frames to the scheduler and a worker of a farm with certificates, and check that they keep serving.

    scripts/fuzz farm [--seed N] [--count 10000]

Strangers speak plain TCP, or TLS without a certificate or with one of another authority; what they send would make a
folder where it was executed, and is sent as it is, changed, or random. A member sends calls with changed fields and
frames. No stranger may be answered, no folder may be there, every call of the member must be answered with a frame or
refused, and in the end both processes must live and serve. That the folder is made for a member shows that it would be.
Needs the extra gputune[farm].
"""

import argparse
import asyncio
import os
import random
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

import tool
from farm_processes import SCHEDULER, TIER, Farm
from gputune.client.farm.certificates import Certificates, create
from gputune.client.farm.dask_engine import CALL, DaskEngine
from gputune.client.farm.engine import ORDERS
from gputune.client.farm.frames import to_bytes
from gputune.client.farm.pool import Pool
from gputune.core.version import software_version
from gputune.server.protocol.messages import PROTOCOL_VERSION, FreeBuffers, Hello
from tests.strategies.changes import mutated_bytes

FOLDER = tool.ROOT / "build" / "fuzz" / "farm"
WORKER = "worker"
SECONDS = 20.0
"""After which an answer or the end of a connection has not come."""
MEMBER_SHARE = 0.3

TLS_ALERT = b"\x15"

Address = tuple[str, int]
Contexts = Mapping[str, ssl.SSLContext | None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `scripts/fuzz farm`."""
    parser.add_argument("--count", type=int, default=10_000, help="frames (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Sends the frames and returns the exit code."""
    with closing(Farm(FOLDER, tls=True)) as farm:
        farm.start_scheduler()
        farm.start_worker(WORKER)
        made, marked = farm.folder / "executed", farm.folder / "executed by a member"
        with DaskEngine(farm.place) as engine:
            addresses = {SCHEDULER: ("127.0.0.1", farm.port), WORKER: asyncio.run(_worker_address(farm))}
            ended = Counter[str]()
            chance = random.Random(options.seed)
            _strangers(farm, addresses, round(options.count * (1 - MEMBER_SHARE)), made, chance, ended)
            asyncio.run(_calls(farm, addresses[WORKER], options.count - ended.total(), chance, ended))
            lives = all(farm.processes[name].poll() is None for name in addresses)
            with Pool(engine, "honest") as pool:
                pool.group(TIER).connect_all()[0].upload(np.arange(16, dtype=np.float32))
            for role, address in addresses.items():
                _sent(address, _trusted(farm), _greeting() + _exploit(role, marked / role))
    executed = made.exists()
    shows = sum(1 for _ in marked.glob("*")) if marked.exists() else 0
    print(f"{ended.total()} frames: {dict(sorted(ended.items()))}")
    print(f"executed for strangers: {executed}; for a member: {shows} of {len(addresses)}; processes live: {lives}")
    wrong = [what for what in ended if what.endswith(("answered a stranger", "no answer"))]
    return int(executed or not lives or bool(wrong))


# --- strangers ------------------------------------------------------------------------------------


def _strangers(
    farm: Farm, addresses: Mapping[str, Address], count: int, made: Path, chance: random.Random, ended: Counter[str]
) -> None:
    contexts: Contexts = {
        "plain TCP": None,
        "TLS without a certificate": _trusting(),
        "another authority's certificate": _other_authority(farm.folder / "others"),
    }
    for number in range(count):
        role, how = chance.choice(list(addresses)), list(contexts)[number % len(contexts)]
        answer = _sent(addresses[role], contexts[how], _payload(role, made, chance))
        ended[f"{how}, {'answered a stranger' if answer else 'refused'}"] += 1


def _payload(role: str, made: Path, chance: random.Random) -> bytes:
    """What a stranger sends: what a client would, changed, or random bytes."""
    whole = _greeting() + _exploit(role, made)
    kind = chance.randrange(3)
    if kind == 0:
        return whole
    return mutated_bytes(whole, chance) if kind == 1 else chance.randbytes(chance.randrange(1, 2000))


def _sent(address: Address, context: ssl.SSLContext | None, data: bytes) -> bytes:
    """What comes back for some bytes on a connection of their own, TLS's own alerts not counted."""
    plain = socket.create_connection(address, SECONDS)
    with plain, suppress(OSError), plain if context is None else context.wrap_socket(plain) as stream:
        stream.sendall(data)
        if context is None:
            stream.shutdown(socket.SHUT_WR)
        answer = stream.recv(1 << 16)
        return b"" if context is None and answer[:1] == TLS_ALERT else answer
    return b""


def _trusting() -> ssl.SSLContext:
    """Takes whatever certificate the other side has, and shows none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _other_authority(folder: Path) -> ssl.SSLContext:
    context, others = _trusting(), create(folder)
    context.load_cert_chain(others.member, others.key)
    return context


def _trusted(farm: Farm) -> ssl.SSLContext:
    context, members = _trusting(), Certificates(farm.farm_dir)
    context.load_cert_chain(members.member, members.key)
    return context


def _greeting() -> bytes:
    return _framed({"compression": None, "python": [3, 11], "pickle-protocol": 5})


def _exploit(role: str, made: Path) -> bytes:
    """A message that Dask itself would execute for a member: it makes a folder."""
    from distributed.protocol.pickle import dumps as pickled

    operation = "run_function" if role == SCHEDULER else "run"
    arguments = pickled((str(made),))
    return _framed({"op": operation, "function": pickled(os.makedirs), "args": arguments, "wait": True})


def _framed(message: object) -> bytes:
    from distributed.protocol import dumps
    from distributed.protocol.utils import pack_frames

    packed: bytes = pack_frames(dumps(message))
    return struct.pack("Q", len(packed)) + packed


# --- a member -------------------------------------------------------------------------------------


async def _calls(farm: Farm, address: Address, count: int, chance: random.Random, ended: Counter[str]) -> None:
    """Calls of a member, on one connection as long as it is there."""
    from distributed.core import connect

    arguments = farm.place.security.get_connection_args("client")
    comm: Any = None
    for _ in range(count):
        if comm is None or comm.closed():
            comm = await connect(f"tls://{address[0]}:{address[1]}", **arguments)
        await comm.write({"op": CALL, **_call(chance)})
        try:
            answer = await asyncio.wait_for(comm.read(), SECONDS)
        except (OSError, TimeoutError):
            ended["a member's call, no answer"] += 1
            comm.abort()
            continue
        served = isinstance(answer, Mapping) and isinstance(answer.get("answer"), bytes)
        ended[f"a member's call, {'answered' if served else 'refused'}"] += 1
    comm.abort()


def _call(chance: random.Random) -> dict[str, object]:
    """A call of the worker, most of it wrong."""
    hello = to_bytes(Hello(PROTOCOL_VERSION, software_version()), 1)
    frames: list[Callable[[], object]] = [
        lambda: mutated_bytes(hello, chance), lambda: mutated_bytes(to_bytes(FreeBuffers((1,)), 2), chance),
        lambda: chance.randbytes(chance.randrange(300)), lambda: hello, lambda: None, lambda: 7,
    ]  # fmt: skip
    orders: list[object] = [*(order for order in ORDERS if order != "drain"), "", "run", None, 5, "__class__"]
    names: list[object] = ["job", "honest", "", "../../x", "a" * 200, None, 3, ["job"]]
    call: dict[str, object] = {
        "order": chance.choice(orders),
        "job": chance.choice(names),
        "session": chance.choice(names),
    }
    devices: list[object] = [WORKER, WORKER, WORKER, "other", None, {}]
    call |= {"device": chance.choice(devices), "frame": chance.choice(frames)()}
    if chance.random() < 0.1:
        call.pop(chance.choice(list(call)))
    if chance.random() < 0.1:
        call[chance.choice(["tell", "function", "args", "call"])] = "x"
    return call


async def _worker_address(farm: Farm) -> Address:
    from distributed.core import rpc

    arguments = farm.place.security.get_connection_args("client")
    async with rpc(str(farm.place), connection_args=arguments) as scheduler:
        (address,) = (await scheduler.identity())["workers"]
    host, _, port = address.rpartition("://")[2].rpartition(":")
    return host, int(port)

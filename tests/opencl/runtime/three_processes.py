"""Run three programs on two descriptors: a producer writes frames, this process computes on them where they lie, and a
consumer reads results. No tensor crosses a process's border.

    python three_processes.py produce|consume DESCRIPTOR BYTES [FRAMES]
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputune.runtime.executor import Executor
from gputune.runtime.memory.handles import MemHandle

READY, TAKEN = b"r", b"t"


@dataclass(frozen=True)
class Passed:
    """What came of some frames: the hashes of all results as the consumer has seen them, and as inferences on arrays
    give them, and the bytes that gputune copied of the frames."""

    seen: str
    wanted: str
    copied_bytes: int


def frame_of(number: int, elements: int) -> npt.NDArray[np.float32]:
    """The values of a frame, the same in every process."""
    return np.random.default_rng(number).standard_normal(elements, np.float32)


def produce(memory: MemHandle, frames: int) -> None:
    """Writes frames into memory, each when the one before is not needed any more."""
    values = memory.view(np.float32, (memory.nbytes // 4,))
    for number in range(frames):
        values[:] = frame_of(number, values.size)
        os.write(1, READY)
        if os.read(0, 1) != TAKEN:
            sys.exit("the one who takes the frames is gone")


def consume(memory: MemHandle) -> None:
    """Reads results from memory until there are no more, and says the hash of all."""
    digest, results = hashlib.sha256(), memory.view(np.uint8, (memory.nbytes,))
    while os.read(0, 1):
        digest.update(results.data)
        os.write(1, TAKEN)
    os.write(1, digest.hexdigest().encode())


def pass_frames(executor: Executor, frames: int) -> Passed:
    """Has frames computed that a process of its own makes, and the results read by another one. executor: of a graph
    with one input and one output of float32."""
    (x,), (y,) = executor.graph.inputs, executor.graph.outputs
    wanted = hashlib.sha256()
    for number in range(frames):
        values = frame_of(number, x.nbytes // 4).reshape(x.shape)
        wanted.update(executor.run({x.name: values})[y.name].tobytes())
    copied = {name: counted.bytes_copied for name, counted in executor.counters.total.items()}
    with MemHandle.allocate(x.nbytes) as given, MemHandle.allocate(y.nbytes) as taken:
        executor.register(x.name, given)
        executor.register(y.name, taken)
        with _started("produce", given, frames) as producer, _started("consume", taken) as consumer:
            assert producer.stdin and producer.stdout and consumer.stdin and consumer.stdout
            for _ in range(frames):
                _expect(producer.stdout.fileno(), READY)
                executor.run()
                os.write(consumer.stdin.fileno(), READY)
                _expect(consumer.stdout.fileno(), TAKEN)
                os.write(producer.stdin.fileno(), TAKEN)
            consumer.stdin.close()
            seen = consumer.stdout.read().decode()
        executor.unregister(x.name)
        executor.unregister(y.name)
    now = {name: counted.bytes_copied for name, counted in executor.counters.total.items()}
    return Passed(seen, wanted.hexdigest(), sum(now.values()) - sum(copied.values()))


def _started(part: str, memory: MemHandle, *arguments: int) -> "subprocess.Popen[bytes]":
    fd = memory.fileno()
    command = [sys.executable, __file__, part, *map(str, (fd, memory.nbytes, *arguments))]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, pass_fds=[fd])


def _expect(fd: int, wanted: bytes) -> None:
    if os.read(fd, 1) != wanted:
        raise EOFError("a process that frames pass through has ended")


def main(arguments: Sequence[str]) -> None:
    """The producer's or the consumer's part."""
    part, fd, nbytes, *frames = arguments
    with MemHandle.from_fd(int(fd), 0, int(nbytes)) as memory:
        if part == "produce":
            produce(memory, int(frames[0]))
        else:
            consume(memory)


if __name__ == "__main__":
    main(sys.argv[1:])

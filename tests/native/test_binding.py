"""Test that the binding has the structures and functions of gputune.h, and that its objects close in any order."""

import ctypes
import gc
import itertools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from ctypes import POINTER, c_bool, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core.errors import ContextClosed, ForkedProcess
from gputune.runtime.native.binding import Device, File, Graph, Native
from gputune.runtime.native.closing import NativeObject
from gputune.runtime.native.declarations import CALLBACK, LINE, MESSAGE_BYTES, MOST_DIMENSIONS, SIGNATURES, STRUCTURES
from gputune.runtime.native.memory import address_of, values
from tests.native.compiling import INCLUDE, compiled, environment, library
from tests.native.fake import DEVICE, ELEMENTS, NBYTES, STAGES, Fake, doubling_context

HEADER = re.sub(r"/\*.*?\*/", "", (INCLUDE / "gputune.h").read_text(encoding="utf-8"), flags=re.DOTALL)
FUNCTION = re.compile(r"^([a-z][\w ]*?[ *]+)gputune_(\w+)\(([^;]*?)\);", re.MULTILINE | re.DOTALL)
STRUCTURE = re.compile(r"typedef struct gputune_\w+ \{(.*?)\} (gputune_\w+);", re.DOTALL)
FIELD = re.compile(r"(\w+)(?:\[\w+\])?\s*[,;]")
VALUES = np.arange(ELEMENTS, dtype=np.float32)
PLAIN = {
    "void": None,
    "int": c_int,
    "bool": c_bool,
    "size_t": c_size_t,
    "uint64_t": c_uint64,
    "void *": c_void_p,
    "char *": c_char_p,
    "gputune_code": c_int,
    "gputune_level": c_int,
    "gputune_callback": CALLBACK,
    "gputune_line": LINE,
    "gputune_phase": c_int,
}


def of_c(declared: str) -> Any:
    """Return the type of ctypes for a type of C."""
    name = " ".join(declared.replace("const", "").replace("*", " * ").split()).replace("* *", "**")
    if name in PLAIN:
        return PLAIN[name]
    bare = name.rstrip("* ")
    if bare in STRUCTURES:
        pointer = POINTER(STRUCTURES[bare])
        return POINTER(pointer) if name.endswith("**") else pointer
    return POINTER(c_void_p) if name.endswith("**") else c_void_p


def test_its_functions_take_and_return_what_the_header_says() -> None:
    found = {}
    for result, name, arguments in FUNCTION.findall(HEADER):
        given = [] if arguments == "void" else " ".join(arguments.split()).split(",")
        found[name] = of_c(result), [of_c(re.sub(r"\w+$", "", one.strip())) for one in given]
    assert found == {name: (result, list(arguments)) for name, (result, arguments) in SIGNATURES.items()}


def test_its_structures_have_the_headers_fields_in_order() -> None:
    found = {name: FIELD.findall(fields.replace("*", "")) for fields, name in STRUCTURE.findall(HEADER)}
    assert found == {name: [field for field, *_ in one._fields_] for name, one in STRUCTURES.items()}


def test_its_structures_lie_as_in_c(c_compiler: str, tmp_path: Path) -> None:
    lines, wanted = [], []
    for name, structure in STRUCTURES.items():
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        wanted.append(ctypes.sizeof(structure))
        for field, *_ in structure._fields_:
            lines.append(
                f'printf("%zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));',
            )
            place = getattr(structure, field)
            wanted += [place.offset, place.size]
    lines.append('printf("%d %d\\n", GPUTUNE_MESSAGE_BYTES, GPUTUNE_MOST_DIMENSIONS);')
    source = tmp_path / "sizes.c"
    source.write_text("#include <gputune.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(lines) + "\n}\n")
    program = compiled("sizes", [source], ("-O0",))
    told = subprocess.run([program], env=environment(), capture_output=True, text=True, check=True).stdout
    assert list(map(int, told.split())) == [*wanted, MESSAGE_BYTES, MOST_DIMENSIONS]


# --- objects ------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return doubling_context(tmp_path / "a.bin")


@pytest.fixture
def opened(native: Native, fake: Fake, path: Path) -> Iterator[list[NativeObject]]:
    """One object of each kind, in the order of opening."""
    objects = _one_of_each(native, fake, path)
    yield objects
    objects.clear()
    gc.collect()
    assert fake.alive == 0


def _one_of_each(native: Native, fake: Fake, path: Path) -> list[NativeObject]:
    file = native.open(path)
    device = native.device(file, opencl=str(fake.path))
    group = device.group([file])
    graph = device.load(file, group=group)
    return [file, device, group, graph, device.allocate(NBYTES), device.profile(path.with_suffix(".log"))]


def closed_in_order(objects: list[NativeObject], order: tuple[int, ...]) -> None:
    for place in order:
        objects[place].close()
        objects[place].close()
        assert objects[place].closed
        with pytest.raises(ContextClosed, match=r"this \w+ was closed"):
            _ = objects[place].pointer


@pytest.mark.parametrize("first", range(6))
def test_objects_close_in_any_order_and_twice(fake: Fake, opened: list[NativeObject], first: int) -> None:
    orders = [order for order in itertools.permutations(range(6)) if order[0] == first]
    closed_in_order(opened, orders[len(orders) // 2])
    assert fake.alive == 0


def test_what_stands_on_a_closed_device_goes_on(opened: list[NativeObject]) -> None:
    file, device, group, graph, *_ = opened
    for one in (device, file, group):
        one.close()
    assert isinstance(graph, Graph)
    assert graph.run({"x": VALUES})["y"].tobytes() == (VALUES * 2**STAGES).tobytes()
    closed_in_order(opened, (4, 5, 3))


ENDS: dict[str, Callable[[list[NativeObject]], None]] = {
    "by the collector": lambda objects: objects.clear(),
    "in another thread": lambda objects: _in_a_thread(lambda: closed_in_order(objects, tuple(range(6)))),
    "by the collector in another thread": lambda objects: _in_a_thread(objects.clear),
}


@pytest.mark.parametrize("end", ENDS)
def test_objects_end(fake: Fake, opened: list[NativeObject], end: str) -> None:
    assert fake.alive
    ENDS[end](opened)
    gc.collect()
    assert fake.alive == 0


def _in_a_thread(act: Callable[[], None]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


AT_EXIT = """
import os, sys
from pathlib import Path
from gputune.runtime.native.binding import Native
native = Native(Path(sys.argv[1]))
file = native.open(sys.argv[3])
device = native.device(file, opencl=sys.argv[2])
graph = device.load(file)
memory = device.allocate(256)
print("ends", flush=True)
"""


def test_objects_that_are_open_at_the_end_of_a_process_end_with_it(fake: Fake, path: Path) -> None:
    command: list[str | Path] = [sys.executable, "-c", AT_EXIT, library(), fake.path, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


def test_in_a_fork_objects_refuse_and_close(opened: list[NativeObject]) -> None:
    graph = opened[3]
    assert isinstance(graph, Graph)
    child = os.fork()
    if not child:
        try:
            graph.run({"x": VALUES})
        except ForkedProcess:
            closed_in_order(opened, (1, 0, 3, 2, 5, 4))
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert graph.run({"x": VALUES})["y"].tobytes() == (VALUES * 2**STAGES).tobytes()
    closed_in_order(opened, tuple(range(6)))


# --- arrays -------------------------------------------------------------------------------------------

WRONG = {
    "strided": (np.zeros(2 * ELEMENTS, np.float32)[::2], "not C-contiguous"),
    "short": (np.zeros(ELEMENTS - 1, np.float32), "has 256 bytes, the array for it 252"),
    "0-d": (np.zeros((), np.float32), "has 256 bytes, the array for it 4"),
    "zero-size": (np.zeros((0, ELEMENTS), np.float32), "needs either data or memory"),
}


@pytest.fixture
def graph(native: Native, fake: Fake, path: Path) -> Iterator[Graph]:
    with native.open(path) as file, native.device(file, opencl=str(fake.path)) as device, device.load(file) as loaded:
        yield loaded


@pytest.mark.parametrize("kind", WRONG)
def test_arrays_that_c_cannot_read_are_refused_by_name(graph: Graph, kind: str) -> None:
    array, why = WRONG[kind]
    with pytest.raises(ValueError, match=f"'x'.*{why}|{why}"):
        graph.run({"x": array})
    with pytest.raises(ValueError, match=f"'y'.*{why}|{why}"):
        graph.run({"x": VALUES}, {"y": array})


def test_arrays_are_read_where_they_lie(graph: Graph) -> None:
    """One that may only be read, too; bytes in the other order are the caller's matter, as C knows no types."""
    x = VALUES.copy()
    x.flags.writeable = False
    assert graph.run({"x": x})["y"].tobytes() == (VALUES * 2**STAGES).tobytes()
    empty = np.zeros((1, 0), np.float32)
    assert graph.run({"past": empty, "x": x})["y"].tobytes() == (VALUES * 2**STAGES).tobytes()


ADDRESSES: dict[str, Any] = {
    "own": VALUES,
    "read-only": np.frombuffer(bytes(range(8)), np.uint8),
    "in the middle of another": VALUES[3:7],
    "0-d": np.zeros(()),
    "in the other order": np.zeros(4, ">f4"),
    "of a class of its own": np.zeros(4).view(np.recarray),
}


@pytest.mark.parametrize("kind", ADDRESSES)
def test_the_address_of_an_array_is_what_numpy_says(kind: str) -> None:
    array = ADDRESSES[kind]
    assert address_of(array) == array.__array_interface__["data"][0]


def test_values_that_are_prepared_may_change_before_each_inference(graph: Graph) -> None:
    y, total = np.zeros(ELEMENTS, np.float32), graph.counted[0]
    x = VALUES, VALUES + 1
    inputs, outputs = values({"x": x[0]}), values({"y": y})
    run = graph.prepared(inputs, outputs)
    for number, given in enumerate(x):
        inputs[0].data = address_of(given)
        run()
        assert y.tobytes() == (given * 2**STAGES).tobytes()
        assert (total.inferences, graph.counted[1].inferences) == (number + 1, 1)
    assert total.warnings == len(graph.warnings)
    inputs[0].data = None
    with pytest.raises(ValueError, match="input 'x' needs either data or memory"):
        run()
    graph.close()
    with pytest.raises(ContextClosed, match="this graph was closed"):
        run()


def test_an_array_that_was_wrapped_lives_as_long_as_its_memory(native: Native, fake: Fake, path: Path) -> None:
    def wrapped(device: Device) -> Any:
        return device.wrap(VALUES.copy())

    with native.open(path) as file, native.device(file, opencl=str(fake.path)) as device, device.load(file) as graph:
        x = wrapped(device)
        gc.collect()
        assert isinstance(file, File)
        assert graph.run({"x": x})["y"].tobytes() == (VALUES * 2**STAGES).tobytes()
        x.close()


def test_a_device_is_described_as_its_driver_does(native: Native, fake: Fake, path: Path) -> None:
    with native.open(path) as file, native.device(file, opencl=str(fake.path)) as device:
        assert device.identity() == DEVICE
        assert device.identity("fake.icd").driver == "fake.icd"

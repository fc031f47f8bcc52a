"""Bind the C runtime of gputune.h: structures as they lie in C, and a class for each kind of object.

Objects may be closed in any order (closing.py). Calls release the interpreter lock, and C starts no Python.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_char_p, c_size_t, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gputune.core.errors import DeviceNotFound, error_named
from gputune.core.identity import DeviceIdentity
from gputune.runtime.context.records import TensorRecord
from gputune.runtime.native.building import runtime_library, why_no_runtime
from gputune.runtime.native.closing import NativeObject
from gputune.runtime.native.declarations import (
    IMPORTERS,
    MOST_DIMENSIONS,
    SIGNATURES,
    Counters,
    DeviceOptions,
    Error,
    GraphInfo,
    Importer,
    LoadOptions,
    Shape,
    Value,
)
from gputune.runtime.native.memory import Array, Memory, Tensors, address_of, check_arrays, values

LEVELS = "basic", "detailed", "qhas"
Bytes = bytes | bytearray | memoryview


class Info(NamedTuple):
    """Describe a graph of a file: its inputs and outputs with names, shapes and dtypes, and bytes of its arenas."""

    name: str
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    launch_count: int
    arena_bytes: int


class Native:
    """Call the library at `path`. Functions are bound when they are called first."""

    def __init__(self, path: Path) -> None:
        """Load it. Raises OSError."""
        self._library = ctypes.CDLL(str(path))
        self._functions: dict[str, Any] = {}

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function that cannot fail, named without its prefix; return its result."""
        if name not in self._functions:
            function = self._library[f"gputune_{name}"]
            function.restype, function.argtypes = SIGNATURES[name]
            self._functions[name] = function
        return self._functions[name](*arguments)

    def checked(self, name: str, *arguments: Any) -> None:
        """Call a function that can fail. Raises the error of core/errors.py that its code names."""
        error = Error()
        if code := self.call(name, *arguments, byref(error)):
            raise self.error(code, error)

    def untyped(self, name: str) -> Any:
        """Return a function that returns a code. Its arguments are objects of ctypes, which it takes without a
        check."""
        return self._library[f"gputune_{name}"]

    def error(self, code: int, error: Error) -> Exception:
        """Return the error of core/errors.py that a code names, with the text that C has written."""
        return error_named(self.code_name(code))(error.message.decode(errors="replace"))

    def give_back(self, name: str, pointer: int) -> None:
        """Call the function that closes an object. Raises as checked does."""
        (self.call if SIGNATURES[name][0] is None else self.checked)(name, pointer)

    def made(self, name: str, *arguments: Any) -> int:
        """Call a function that makes an object; return its address. Raises as checked does."""
        made = c_void_p()
        self.checked(name, *arguments, byref(made))
        assert made.value
        return made.value

    def code_name(self, code: int) -> str:
        """Return the name of a code, such as "checksum_mismatch"."""
        return str(self.call("code_name", code).decode())

    def open(self, path: Path | str) -> File:
        """Open a context binary, package or ONNX file with EPContext nodes. Raises ContextError, OSError."""
        return File(self, self.made("open", _path(path)))

    def open_bytes(self, data: Bytes) -> File:
        """Open the bytes of such a file. Raises ContextError."""
        view = np.frombuffer(data, np.uint8)
        return File(self, self.made("open_bytes", address_of(view), view.nbytes), view)

    def device(
        self,
        file: File | None = None,
        name: str | None = None,
        opencl: str | None = None,
        given: tuple[int, int] | None = None,
        platform: str | None = None,
        ordinal: int = 0,
    ) -> Device:
        """Open a device: that of a file, or the best whose name or platform has `name` in it. opencl: the library of
        OpenCL; given: addresses of an open cl_context and of its cl_device_id instead; platform: its whole name, of
        which the device with the number `ordinal` is meant, as DeviceReport.position has it. Raises DeviceNotFound,
        DeviceError, ValueError."""
        context, identifier = given or (None, None)
        of_file = None if file is None else file.pointer
        options = DeviceOptions(
            library=_text(opencl),
            device=_text(name),
            file=of_file,
            context=context,
            device_id=identifier,
            platform=_text(platform),
            ordinal=ordinal,
        )
        return Device(self, self.made("open_device", byref(options)))


@functools.cache
def library() -> Native:
    """Return the C runtime. Raises DeviceNotFound if it cannot be had here."""
    if why := why_no_runtime():
        raise DeviceNotFound(why)
    return Native(runtime_library())


class File(NativeObject):
    """Describe an open file: its contexts and their graphs."""

    close_by = "close"

    def __init__(self, native: Native, pointer: int, data: object = None) -> None:
        """Keep data, which the library reads until the file is closed."""
        super().__init__(native, pointer)
        self.keep(data)

    @property
    def contexts(self) -> list[tuple[str, str]]:
        """Return name and device of each context."""
        count = self.native.call("context_count", self.pointer)
        names = ("context_name", "context_device")
        found = [[self.native.call(name, self.pointer, place).decode() for name in names] for place in range(count)]
        return [(name, device) for name, device in found]

    def graphs(self, context: int = 0) -> list[Info]:
        """Return a description of each graph of a context. Raises ContextError."""
        count = self.native.call("graph_count", self.pointer, context)
        found = []
        for place in range(count):
            info = GraphInfo()
            self.native.checked("graph_info_of", self.pointer, context, place, byref(info))
            found.append(_described(info))
        return found


class Device(NativeObject):
    """Open memory, groups, graphs and profiles on a device."""

    close_by = "close_device"

    @property
    def name(self) -> str:
        """Return the device's name, as its driver has it."""
        return str(self.native.call("device_name", self.pointer).decode())

    def identity(self, driver: str = "") -> DeviceIdentity:
        """Return what its driver says of it. driver: the name of the driver's .icd file, which C does not know."""
        found = self.native.call("device_identity", self.pointer).contents
        fields = {name: _plain(getattr(found, name)) for name, *_ in found._fields_}
        names = found.extensions[: fields.pop("extension_count")]
        fields |= {"extensions": tuple(map(_plain, names)), "driver": driver}
        return DeviceIdentity(**fields)

    @property
    def context(self) -> int:
        """Return its cl_context as a number."""
        return self.native.call("device_context", self.pointer) or 0

    @property
    def lost(self) -> bool:
        """Return whether the device has stopped working in this process; it is asked, which waits for its turn."""
        return bool(self.native.call("is_lost", self.pointer))

    @property
    def nbytes(self) -> int:
        """Return the bytes of device memory that its graphs and groups hold now."""
        return int(self.native.call("device_bytes", self.pointer))

    def another(self) -> Device:
        """Open the same device once more, in the same cl_context with a queue of its own. Raises DeviceError."""
        options = DeviceOptions(beside=self.pointer)
        return Device(self.native, self.native.made("open_device", byref(options)))

    def touch(self) -> None:
        """Launch an empty kernel and wait for it, to keep the device awake. Raises DeviceError."""
        self.native.checked("touch", self.pointer)

    def allocate(self, nbytes: int) -> Memory:
        """Allocate memory that host and device share as well as they can. Raises DeviceError."""
        return Memory(self.native, self.native.made("allocate", self.pointer, nbytes), self)

    def wrap(self, array: Array) -> Memory:
        """Wrap the memory of a C-contiguous array, which the result keeps. Raises DeviceError."""
        made = Memory(self.native, self.native.made("wrap", self.pointer, address_of(array), array.nbytes), self)
        made.keep(array)
        return made

    def import_(self, descriptor: int, nbytes: int, offset: int = 0) -> Memory:
        """Import bytes from an offset on of a sealed memfd or a dma-buf; the descriptor is duplicated. Raises
        DeviceError."""
        return Memory(self.native, self.native.made("import", self.pointer, descriptor, offset, nbytes), self)

    def import_cl_mem(self, pointer: int, nbytes: int) -> Memory:
        """Import a cl_mem of the context that the device was given, by its pointer. Raises DeviceError."""
        return Memory(self.native, self.native.made("import_cl_mem", self.pointer, pointer, nbytes), self)

    def import_hardware_buffer(self, pointer: int, nbytes: int) -> Memory:
        """Import an AHardwareBuffer, which must outlive the result, by its pointer. Raises DeviceError."""
        return Memory(self.native, self.native.made("import_hardware_buffer", self.pointer, pointer, nbytes), self)

    def importers(self) -> list[tuple[str, str]]:
        """Return the name of each way to take memory, best first, and why the device cannot use it; "" if it can.
        Raises DeviceError."""
        found = (Importer * IMPORTERS)()
        self.native.checked("importers", self.pointer, found)
        return [(one.name.decode(), one.reason.decode(errors="replace")) for one in found]

    def group(self, files: Sequence[File], streams: int = 1) -> Group:
        """Allocate arenas for the graphs of these files. Raises ContextError, DeviceError."""
        pointers = (c_void_p * len(files))(*(file.pointer for file in files))
        return Group(self.native, self.native.made("open_group", self.pointer, pointers, len(files), streams), self)

    def load(
        self,
        file: File,
        graph: str | None = None,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        strict: bool = False,
        one_by_one: bool = False,
        group: Group | None = None,
        stream: int = 0,
        features: Sequence[str] = (),
    ) -> Graph:
        """Load a graph, as gputune_load; the file may be closed then. Raises ContextError, DeviceError, ValueError."""
        made = [
            Shape(name.encode(), len(shape), (c_size_t * MOST_DIMENSIONS)(*shape))
            for name, shape in (shapes or {}).items()
        ]
        wanted = LoadOptions(
            graph=_text(graph),
            shapes=(Shape * len(made))(*made),
            shape_count=len(made),
            strict=strict,
            one_by_one=one_by_one,
            group=None if group is None else group.pointer,
            stream=stream,
            features=(c_char_p * len(features))(*map(str.encode, features)),
            feature_count=len(features),
        )
        below = (self,) if group is None else (self, group)
        return Graph(self.native, self.native.made("load", self.pointer, file.pointer, byref(wanted)), *below)

    def profile(self, path: Path | None, level: str = "basic") -> Profile:
        """Open a profile log, whose records are kept without a path until they are taken. Raises DeviceError,
        OSError."""
        name, place = None if path is None else _path(path), LEVELS.index(level)
        return Profile(self.native, self.native.made("open_profile", self.pointer, name, place), self)


class Group(NativeObject):
    """Hold arenas that several graphs share."""

    close_by = "close_group"

    @property
    def nbytes(self) -> int:
        """Return the bytes of all arenas."""
        return int(self.native.call("group_bytes", self.pointer))

    @property
    def arenas(self) -> tuple[int, ...]:
        """Return the bytes of each arena of one stream."""
        found: list[int] = []
        while nbytes := self.native.call("group_arena", self.pointer, len(found)):
            found.append(nbytes)
        return tuple(found)

    @property
    def weights(self) -> int:
        """Return the bytes of the weights that its loaded graphs use."""
        return int(self.native.call("group_weights", self.pointer))

    def grow(self, file: File) -> None:
        """Make the arenas of all streams large enough for another file; if that fails, all stays as it was. Raises
        ContextError, DeviceError."""
        self.native.checked("grow", self.pointer, file.pointer)


class Profile(NativeObject):
    """Hold an open profile log."""

    close_by = "close_profile"

    def take(self) -> bytes:
        """Return the bytes of records that were made since the last call; the profile has no file. Raises DeviceError,
        ValueError."""
        nbytes = c_size_t()
        self.native.checked("profile_take", self.pointer, None, byref(nbytes))
        data = ctypes.create_string_buffer(nbytes.value)
        self.native.checked("profile_take", self.pointer, data, byref(nbytes))
        return data.raw[: nbytes.value]

    def write_marks(self) -> None:
        """Write the inferences with marks that are not written yet. Raises DeviceError, OSError."""
        self.native.checked("write_marks", self.pointer)


class Graph(NativeObject):
    """Run a loaded graph."""

    close_by = "unload"

    @functools.cached_property
    def info(self) -> Info:
        """Return its description."""
        return _described(self.native.call("info", self.pointer).contents)

    @property
    def warnings(self) -> list[str]:
        """Return each cause of unexpected cost so far."""
        found: list[str] = []
        while (line := self.warning(len(found))) is not None:
            found.append(line)
        return found

    def warning(self, number: int) -> str | None:
        """Return the cause of that number, None after the last one."""
        line = self.native.call("warning", self.pointer, number)
        return None if line is None else line.decode(errors="replace")

    @property
    def choice(self) -> str:
        """Return which context of a package was loaded and why; "" for other files."""
        return str(self.native.call("choice", self.pointer).decode())

    def set_one_by_one(self, on: bool) -> None:
        """Make inferences from now on run by launches; False lets persistent kernels run where they pay."""
        self.native.call("set_one_by_one", self.pointer, on)

    @property
    def has_persistent(self) -> bool:
        """Return whether inferences may run by persistent kernels here."""
        return bool(self.native.call("has_persistent", self.pointer))

    @property
    def last_form(self) -> str:
        """Return how the last inference ran, as Form of profiling/records.py."""
        return str(self.native.call("last_form", self.pointer).decode())

    def counters(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the counts of all inferences and of the last one, by name."""
        total, last = Counters(), Counters()
        self.native.call("counters_of", self.pointer, byref(total), byref(last))
        return total.as_dict(), last.as_dict()

    @functools.cached_property
    def counted(self) -> tuple[Counters, Counters]:
        """Return the counts of all inferences and of the last one where C has them. Do not read them while an inference
        runs, or once this is closed."""
        total, last = (ctypes.POINTER(Counters)() for _ in range(2))
        self.native.call("counters_at", self.pointer, byref(total), byref(last))
        return total.contents, last.contents

    def outputs(self) -> dict[str, Array]:
        """Return new arrays for its outputs, but for those that are linked to another graph."""
        free = [tensor for tensor in self.info.outputs if tensor.name not in self._linked]
        return {tensor.name: np.empty(tensor.shape, tensor.dtype) for tensor in free}

    def run(self, inputs: Tensors, outputs: Tensors | None = None) -> dict[str, Array]:
        """Run one inference, and return new arrays with its outputs unless `outputs` says where each is wanted. Raises
        DeviceError, ValueError."""
        made = self.outputs() if outputs is None else {}
        wanted = made if outputs is None else outputs
        for tensors, sizes in zip((inputs, wanted), self._sizes, strict=True):
            check_arrays(tensors, sizes)
        self.native.checked("run", self.pointer, values(inputs), len(inputs), values(wanted), len(wanted))
        return made

    def prepared(self, inputs: ctypes.Array[Value], outputs: ctypes.Array[Value]) -> Callable[[], None]:
        """Return what runs an inference on values, which may change before each. It is for one thread at a time, and
        takes a third of the time of `run`. It raises DeviceError, ValueError."""
        native, error = self.native, Error()
        function = native.untyped("run")
        arguments = c_void_p(self.pointer), inputs, c_size_t(len(inputs)), outputs, c_size_t(len(outputs)), byref(error)

        def once() -> None:
            if self._pointer is not None and not (code := function(*arguments)):
                return
            _ = self.pointer
            raise native.error(code, error)

        return once

    @functools.cached_property
    def _sizes(self) -> tuple[dict[str, int], dict[str, int]]:
        inputs, outputs = self.info.inputs, self.info.outputs
        return {one.name: one.nbytes for one in inputs}, {one.name: one.nbytes for one in outputs}

    def link(self, output: str, second: Graph, name: str) -> None:
        """Join an output and an input of another graph on the same stream in one buffer that only the device uses; from
        now on neither takes or returns it. Raises ValueError if they do not fit, DeviceError."""
        self.native.checked("link", self.pointer, _text(output), second.pointer, _text(name))
        self._linked.add(output)

    @functools.cached_property
    def _linked(self) -> set[str]:
        return set()

    def record(self, profile: Profile | None) -> None:
        """Record the inferences from now on; None ends that. Raises DeviceError."""
        self.native.checked("record", self.pointer, None if profile is None else profile.pointer)

    def record_marked(self, profile: Profile) -> None:
        """Run and record the inferences from now on as persistent kernels with marks. Raises CannotMark,
        DeviceError."""
        self.native.checked("record_marked", self.pointer, profile.pointer)


def _described(info: GraphInfo) -> Info:
    def tensors(first: Any, count: int) -> tuple[TensorRecord, ...]:
        return tuple(
            TensorRecord(one.name.decode(), tuple(one.shape[: one.rank]), one.dtype.decode()) for one in first[:count]
        )

    return Info(
        info.name.decode(),
        tensors(info.inputs, info.input_count),
        tensors(info.outputs, info.output_count),
        info.launch_count,
        info.arena_bytes,
    )


def _plain(value: Any) -> Any:
    """Return a field of a structure as Python has it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return tuple(value) if isinstance(value, ctypes.Array) else value


def _text(text: str | None) -> bytes | None:
    """Return a text for C. Raises ValueError for one with a zero, at which C would end it."""
    if text is not None and "\0" in text:
        raise ValueError(f"{text!r} has a zero character")
    return None if text is None else text.encode()


def _path(path: Path | str) -> bytes:
    return _text(str(path)) or b""

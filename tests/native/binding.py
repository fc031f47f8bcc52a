"""Bind gputune.h in Python for the tests: structures as they lie in C, and a class for each kind of object."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, Structure, byref, c_bool, c_char, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_DIMENSIONS = 16
MESSAGE_BYTES = 512
Array = npt.NDArray[Any]
Bytes = bytes | ctypes.Array[c_char]


class Error(Structure):
    _fields_ = (("code", c_int), ("message", c_char * MESSAGE_BYTES))


class Tensor(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("rank", c_size_t),
        ("shape", c_size_t * MOST_DIMENSIONS),
        ("nbytes", c_size_t),
    )


class GraphInfo(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("inputs", POINTER(Tensor)),
        ("input_count", c_size_t),
        ("outputs", POINTER(Tensor)),
        ("output_count", c_size_t),
        ("launch_count", c_size_t),
        ("arena_bytes", c_size_t),
    )


class DeviceOptions(Structure):
    _fields_ = (("library", c_char_p), ("device", c_char_p), ("file", c_void_p))


class Shape(Structure):
    _fields_ = (("input", c_char_p), ("rank", c_size_t), ("shape", c_size_t * MOST_DIMENSIONS))


class LoadOptions(Structure):
    _fields_ = (
        ("graph", c_char_p),
        ("shapes", POINTER(Shape)),
        ("shape_count", c_size_t),
        ("strict", c_bool),
        ("one_by_one", c_bool),
        ("group", c_void_p),
        ("perf_profile", c_char_p),
    )


class Value(Structure):
    _fields_ = (("name", c_char_p), ("data", c_void_p), ("memory", c_void_p))


COUNTERS = (
    "inferences",
    "persistent",
    "aborted",
    "launches",
    "bytes_copied",
    "writes",
    "reads",
    "maps",
    "allocations",
    "recorded",
)


class Counters(Structure):
    _fields_ = tuple((name, c_uint64) for name in COUNTERS)

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in COUNTERS}


CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, POINTER(Error))
_OBJECT = POINTER(c_void_p)
_VALUES = [POINTER(Value), c_size_t, POINTER(Value), c_size_t]
_ERROR = POINTER(Error)

SIGNATURES: Mapping[str, tuple[Any, Sequence[Any]]] = {
    "code_name": (c_char_p, [c_int]),
    "open": (c_int, [c_char_p, _OBJECT, _ERROR]),
    "open_bytes": (c_int, [c_char_p, c_size_t, _OBJECT, _ERROR]),
    "close": (None, [c_void_p]),
    "context_count": (c_size_t, [c_void_p]),
    "context_name": (c_char_p, [c_void_p, c_size_t]),
    "context_device": (c_char_p, [c_void_p, c_size_t]),
    "graph_count": (c_size_t, [c_void_p, c_size_t]),
    "graph_info_of": (c_int, [c_void_p, c_size_t, c_size_t, POINTER(GraphInfo), _ERROR]),
    "open_device": (c_int, [POINTER(DeviceOptions), _OBJECT, _ERROR]),
    "close_device": (None, [c_void_p]),
    "device_name": (c_char_p, [c_void_p]),
    "allocate": (c_int, [c_void_p, c_size_t, _OBJECT, _ERROR]),
    "wrap": (c_int, [c_void_p, c_void_p, c_size_t, _OBJECT, _ERROR]),
    "import": (c_int, [c_void_p, c_int, c_size_t, _OBJECT, _ERROR]),
    "memory_data": (c_void_p, [c_void_p]),
    "memory_kind": (c_char_p, [c_void_p]),
    "free": (None, [c_void_p]),
    "open_group": (c_int, [c_void_p, _OBJECT, c_size_t, _OBJECT, _ERROR]),
    "close_group": (None, [c_void_p]),
    "group_bytes": (c_size_t, [c_void_p]),
    "load": (c_int, [c_void_p, c_void_p, POINTER(LoadOptions), _OBJECT, _ERROR]),
    "unload": (None, [c_void_p]),
    "info": (POINTER(GraphInfo), [c_void_p]),
    "warning": (c_char_p, [c_void_p, c_size_t]),
    "choice": (c_char_p, [c_void_p]),
    "run": (c_int, [c_void_p, *_VALUES, _ERROR]),
    "run_async": (c_int, [c_void_p, *_VALUES, CALLBACK, c_void_p, _ERROR]),
    "set_perf_profile": (c_int, [c_void_p, c_char_p, _ERROR]),
    "counters_of": (None, [c_void_p, POINTER(Counters), POINTER(Counters)]),
    "open_profile": (c_int, [c_void_p, c_char_p, c_int, _OBJECT, _ERROR]),
    "record": (c_int, [c_void_p, c_void_p, _ERROR]),
    "close_profile": (c_int, [c_void_p, _ERROR]),
}


class NativeError(Exception):
    """A call failed. name: as gputune_code_name has it."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


class Native:
    """The library. Functions are bound when they are called first."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._functions: dict[str, Any] = {}

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls a function that cannot fail, named without its prefix."""
        if name not in self._functions:
            function = self._library[f"gputune_{name}"]
            function.restype, function.argtypes = SIGNATURES[name]
            self._functions[name] = function
        return self._functions[name](*arguments)

    def checked(self, name: str, *arguments: Any) -> None:
        """Calls a function that can fail. Raises NativeError."""
        error = Error()
        if code := self.call(name, *arguments, byref(error)):
            assert error.code == code, "the error and the result are two"
            raise NativeError(self.code_name(code), error.message.decode())

    def made(self, name: str, *arguments: Any) -> int:
        """The object that a function makes. Raises NativeError."""
        made = c_void_p()
        self.checked(name, *arguments, byref(made))
        assert made.value
        return made.value

    def code_name(self, code: int) -> str:
        return str(self.call("code_name", code).decode())

    def open(self, path: Path | str) -> "File":
        return File(self, self.made("open", str(path).encode()))

    def open_bytes(self, data: Bytes) -> "File":
        return File(self, self.made("open_bytes", data, len(data)), data)

    def device(self, file: "File | None" = None, name: str | None = None, opencl: str | None = None) -> "Device":
        """Opens a device; opencl: the library."""
        options = DeviceOptions(_text(opencl), _text(name), None if file is None else file.pointer)
        return Device(self, self.made("open_device", byref(options)))


class _Object:
    """Something that a library has made; `with` closes it."""

    close_by = ""

    def __init__(self, native: Native, pointer: int) -> None:
        self.native = native
        self._pointer: int | None = pointer

    @property
    def pointer(self) -> int:
        assert self._pointer is not None, "it is closed"
        return self._pointer

    def close(self) -> None:
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            self.native.call(self.close_by, pointer)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._pointer is not None:
            raise AssertionError(f"a {type(self).__name__} was not closed")


class File(_Object):
    close_by = "close"

    def __init__(self, native: Native, pointer: int, data: Bytes = b"") -> None:
        """data: what the library reads until the file is closed."""
        super().__init__(native, pointer)
        self.data = data

    @property
    def contexts(self) -> list[tuple[str, str]]:
        """Name and device of each."""
        count = self.native.call("context_count", self.pointer)
        names = ("context_name", "context_device")
        found = [[self.native.call(name, self.pointer, place).decode() for name in names] for place in range(count)]
        return [(name, device) for name, device in found]

    def graphs(self, context: int = 0) -> list[dict[str, Any]]:
        """What `described` says of each graph of a context. Raises NativeError."""
        count = self.native.call("graph_count", self.pointer, context)
        return [self.graph(place, context) for place in range(count)]

    def graph(self, place: int, context: int = 0) -> dict[str, Any]:
        info = GraphInfo()
        self.native.checked("graph_info_of", self.pointer, context, place, byref(info))
        return described(info)


class Device(_Object):
    close_by = "close_device"

    @property
    def name(self) -> str:
        return str(self.native.call("device_name", self.pointer).decode())

    def allocate(self, nbytes: int) -> "Memory":
        return Memory(self.native, self.native.made("allocate", self.pointer, nbytes))

    def wrap(self, array: Array) -> "Memory":
        """The array must live as long as the memory."""
        return Memory(self.native, self.native.made("wrap", self.pointer, array.ctypes.data, array.nbytes))

    def import_(self, descriptor: int, nbytes: int) -> "Memory":
        return Memory(self.native, self.native.made("import", self.pointer, descriptor, nbytes))

    def group(self, files: Sequence[File]) -> "Group":
        pointers = (c_void_p * len(files))(*(file.pointer for file in files))
        return Group(self.native, self.native.made("open_group", self.pointer, pointers, len(files)))

    def load(self, file: File, graph: str | None = None, **options: Any) -> "Graph":
        """options: shapes (a dict), strict, one_by_one, group, perf_profile."""
        shapes = [
            Shape(name.encode(), len(shape), (c_size_t * MOST_DIMENSIONS)(*shape))
            for name, shape in options.get("shapes", {}).items()
        ]
        group: Group | None = options.get("group")
        wanted = LoadOptions(
            graph=_text(graph),
            shapes=(Shape * len(shapes))(*shapes),
            shape_count=len(shapes),
            strict=options.get("strict", False),
            one_by_one=options.get("one_by_one", False),
            group=None if group is None else group.pointer,
            perf_profile=_text(options.get("perf_profile")),
        )
        return Graph(self.native, self.native.made("load", self.pointer, file.pointer, byref(wanted)))

    def profile(self, path: Path, detailed: bool = False) -> "Profile":
        return Profile(self.native, self.native.made("open_profile", self.pointer, str(path).encode(), int(detailed)))


class Memory(_Object):
    close_by = "free"

    @property
    def kind(self) -> str:
        return str(self.native.call("memory_kind", self.pointer).decode())

    def array(self, dtype: str, shape: Sequence[int]) -> Array:
        """What the host sees; it must not be used once the memory is freed."""
        address = self.native.call("memory_data", self.pointer)
        assert address, "the host sees nothing of it"
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        seen = memoryview((c_char * nbytes).from_address(address)).cast("B")
        found: Array = np.frombuffer(seen, dtype=np.dtype(dtype)).reshape(shape)
        return found


class Group(_Object):
    close_by = "close_group"

    @property
    def nbytes(self) -> int:
        return int(self.native.call("group_bytes", self.pointer))


class Profile(_Object):
    close_by = "close_profile"

    def close(self) -> None:
        """Raises NativeError."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            self.native.checked(self.close_by, pointer)


class Graph(_Object):
    close_by = "unload"

    @property
    def info(self) -> dict[str, Any]:
        return described(self.native.call("info", self.pointer).contents)

    @property
    def warnings(self) -> list[str]:
        found: list[str] = []
        while (line := self.native.call("warning", self.pointer, len(found))) is not None:
            found.append(line.decode())
        return found

    @property
    def choice(self) -> str:
        return str(self.native.call("choice", self.pointer).decode())

    def counters(self) -> tuple[dict[str, int], dict[str, int]]:
        """In total, and of the last inference."""
        total, last = Counters(), Counters()
        self.native.call("counters_of", self.pointer, byref(total), byref(last))
        return total.as_dict(), last.as_dict()

    def outputs(self) -> dict[str, Array]:
        """Arrays for the graph's outputs."""
        return {name: np.zeros(tensor["shape"], tensor["dtype"]) for name, tensor in self.info["outputs"].items()}

    def run(
        self, inputs: Mapping[str, "Array | Memory"], outputs: Mapping[str, "Array | Memory"] | None = None
    ) -> dict[str, Array]:
        """An inference; arrays of the outputs where none are given. Raises NativeError."""
        made = self.outputs() if outputs is None else {}
        given = values(inputs), len(inputs), values(outputs or made), len(outputs or made)
        self.native.checked("run", self.pointer, *given)
        return made

    def run_async(
        self,
        inputs: Mapping[str, "Array | Memory"],
        outputs: Mapping[str, "Array | Memory"],
        done: Callable[[str], None],
    ) -> Any:
        """Begins an inference; `done` gets the name of the code. The result must be kept until then."""
        callback = CALLBACK(lambda user, code, error: done(self.native.code_name(code)))
        given = values(inputs), len(inputs), values(outputs), len(outputs)
        self.native.checked("run_async", self.pointer, *given, callback, None)
        return callback, given

    def record(self, profile: Profile | None) -> None:
        self.native.checked("record", self.pointer, None if profile is None else profile.pointer)

    def set_perf_profile(self, preset: str | None) -> None:
        self.native.checked("set_perf_profile", self.pointer, _text(preset))


def values(tensors: Mapping[str, Array | Memory]) -> Any:
    """Tensors as gputune_value; arrays must be contiguous, and live as long as the result."""
    found = (Value * len(tensors))()
    for value, (name, tensor) in zip(found, tensors.items(), strict=True):
        value.name = name.encode()
        if isinstance(tensor, Memory):
            value.memory = tensor.pointer
        else:
            assert tensor.flags.c_contiguous
            value.data = tensor.ctypes.data if tensor.size else None
    return found


def described(info: GraphInfo) -> dict[str, Any]:
    """A graph as the tests compare it."""

    def tensors(first: Any, count: int) -> dict[str, Any]:
        return {
            tensor.name.decode(): {
                "dtype": tensor.dtype.decode(),
                "shape": tuple(tensor.shape[: tensor.rank]),
                "nbytes": tensor.nbytes,
            }
            for tensor in first[:count]
        }

    return {
        "name": info.name.decode(),
        "inputs": tensors(info.inputs, info.input_count),
        "outputs": tensors(info.outputs, info.output_count),
        "launch_count": info.launch_count,
        "arena_bytes": info.arena_bytes,
    }


def _text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()

"""Declare the structures and functions of gputune.h as they are in C. tests/native/test_binding.py compares both."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import (
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_size_t,
    c_uint64,
    c_void_p,
)
from typing import Any

from gputune.runtime.native.counting import TensorCounts

MOST_DIMENSIONS = 16
MESSAGE_BYTES = 4096
IMPORTERS = 14
VOTE_FIELDS = 10


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
    _fields_ = (
        ("library", c_char_p),
        ("device", c_char_p),
        ("file", c_void_p),
        ("context", c_void_p),
        ("device_id", c_void_p),
        ("platform", c_char_p),
        ("ordinal", c_size_t),
        ("beside", c_void_p),
    )


class Identity(Structure):
    _fields_ = (
        ("platform", c_char_p),
        ("platform_version", c_char_p),
        ("name", c_char_p),
        ("vendor", c_char_p),
        ("driver_version", c_char_p),
        ("device_version", c_char_p),
        ("device_type", c_char_p),
        ("driver", c_char_p),
        ("compute_units", c_uint64),
        ("max_work_group_size", c_uint64),
        ("max_work_item_sizes", c_uint64 * 3),
        ("local_memory_bytes", c_uint64),
        ("global_memory_bytes", c_uint64),
        ("max_allocation_bytes", c_uint64),
        ("base_address_alignment_bytes", c_uint64),
        ("preferred_float_width", c_uint64),
        ("extensions", POINTER(c_char_p)),
        ("extension_count", c_size_t),
    )


class Importer(Structure):
    _fields_ = (("name", c_char_p), ("reason", c_char_p))


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
        ("stream", c_size_t),
        ("features", POINTER(c_char_p)),
        ("feature_count", c_size_t),
    )


class Value(Structure):
    """Say where a tensor is for an inference: an address, which is copied, or memory, which is used in place."""

    _fields_ = (("name", c_char_p), ("data", c_void_p), ("memory", c_void_p))


class Counters(Structure):
    """Count how inferences ran and what they copied."""

    _fields_ = tuple(
        (name, c_uint64)
        for name in (
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
            "elapsed_ns",
            "attempts",
            "warnings",
        )
    )

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return {name: getattr(self, name) for name, *_ in self._fields_}


class Vote(Structure):
    """Say what is asked of a device, as Vote.places of runtime/power/records.py."""

    _fields_ = (("at", c_int32 * VOTE_FIELDS),)


class PerfSettings(Structure):
    """Say what is asked in each phase."""

    _fields_ = (("start", Vote * 3), ("done", Vote * 3), ("hysteresis_us", c_uint64), ("asynchronous", c_bool))


class Control(Structure):
    _fields_ = tuple((name, c_char_p) for name in ("actuator", "path", "content", "refusal", "advice"))


class Clock(Structure):
    _fields_ = (("name", c_char_p), ("requested", c_double), ("effective", c_double))


class PowerState(Structure):
    _fields_ = (
        ("controls", POINTER(Control)),
        ("control_count", c_size_t),
        ("clocks", POINTER(Clock)),
        ("clock_count", c_size_t),
        ("honoured", c_uint64),
    )


class Write(Structure):
    _fields_ = (("step", c_size_t), ("path", c_char_p), ("value", c_char_p))


CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, POINTER(Error))
LINE = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)
_OBJECT = POINTER(c_void_p)
_VALUES = [POINTER(Value), c_size_t, POINTER(Value), c_size_t]
_ERROR = POINTER(Error)
_COUNT = c_void_p  # size_t *, which receives a number

STRUCTURES: Mapping[str, type[Structure]] = {
    "gputune_error": Error,
    "gputune_tensor": Tensor,
    "gputune_graph_info": GraphInfo,
    "gputune_device_options": DeviceOptions,
    "gputune_identity": Identity,
    "gputune_importer": Importer,
    "gputune_shape": Shape,
    "gputune_load_options": LoadOptions,
    "gputune_value": Value,
    "gputune_counters": Counters,
    "gputune_tensor_counters": TensorCounts,
    "gputune_vote": Vote,
    "gputune_perf_settings": PerfSettings,
    "gputune_control": Control,
    "gputune_clock": Clock,
    "gputune_power_state": PowerState,
    "gputune_write": Write,
}
"""The structures of gputune.h by their names there."""

SIGNATURES: Mapping[str, tuple[Any, Sequence[Any]]] = {
    "version": (c_char_p, []),
    "code_name": (c_char_p, [c_int]),
    "open": (c_int, [c_char_p, _OBJECT, _ERROR]),
    "open_bytes": (c_int, [c_void_p, c_size_t, _OBJECT, _ERROR]),
    "close": (None, [c_void_p]),
    "context_count": (c_size_t, [c_void_p]),
    "context_name": (c_char_p, [c_void_p, c_size_t]),
    "context_device": (c_char_p, [c_void_p, c_size_t]),
    "graph_count": (c_size_t, [c_void_p, c_size_t]),
    "graph_info_of": (c_int, [c_void_p, c_size_t, c_size_t, POINTER(GraphInfo), _ERROR]),
    "open_device": (c_int, [POINTER(DeviceOptions), _OBJECT, _ERROR]),
    "close_device": (None, [c_void_p]),
    "device_name": (c_char_p, [c_void_p]),
    "is_lost": (c_bool, [c_void_p]),
    "device_bytes": (c_size_t, [c_void_p]),
    "device_context": (c_void_p, [c_void_p]),
    "touch": (c_int, [c_void_p, _ERROR]),
    "device_identity": (POINTER(Identity), [c_void_p]),
    "allocate": (c_int, [c_void_p, c_size_t, _OBJECT, _ERROR]),
    "wrap": (c_int, [c_void_p, c_void_p, c_size_t, _OBJECT, _ERROR]),
    "import": (c_int, [c_void_p, c_int, c_uint64, c_size_t, _OBJECT, _ERROR]),
    "import_cl_mem": (c_int, [c_void_p, c_void_p, c_size_t, _OBJECT, _ERROR]),
    "import_hardware_buffer": (c_int, [c_void_p, c_void_p, c_size_t, _OBJECT, _ERROR]),
    "memory_importer": (c_char_p, [c_void_p]),
    "memory_descriptor": (c_int, [c_void_p]),
    "memory_cl_mem": (c_void_p, [c_void_p]),
    "begin_host": (c_int, [c_void_p, c_bool, _ERROR]),
    "end_host": (c_int, [c_void_p, _ERROR]),
    "importers": (c_int, [c_void_p, POINTER(Importer), _ERROR]),
    "memory_data": (c_void_p, [c_void_p]),
    "memory_kind": (c_char_p, [c_void_p]),
    "free": (None, [c_void_p]),
    "open_group": (c_int, [c_void_p, _OBJECT, c_size_t, c_size_t, _OBJECT, _ERROR]),
    "grow": (c_int, [c_void_p, c_void_p, _ERROR]),
    "close_group": (None, [c_void_p]),
    "group_bytes": (c_size_t, [c_void_p]),
    "group_arena": (c_size_t, [c_void_p, c_size_t]),
    "group_weights": (c_size_t, [c_void_p]),
    "load": (c_int, [c_void_p, c_void_p, POINTER(LoadOptions), _OBJECT, _ERROR]),
    "unload": (None, [c_void_p]),
    "info": (POINTER(GraphInfo), [c_void_p]),
    "warning": (c_char_p, [c_void_p, c_size_t]),
    "choice": (c_char_p, [c_void_p]),
    "set_one_by_one": (None, [c_void_p, c_bool]),
    "has_persistent": (c_bool, [c_void_p]),
    "last_form": (c_char_p, [c_void_p]),
    "run": (c_int, [c_void_p, *_VALUES, _ERROR]),
    "link": (c_int, [c_void_p, c_char_p, c_void_p, c_char_p, _ERROR]),
    "open_state": (c_int, [c_void_p, _OBJECT, _ERROR]),
    "is_remembered": (c_bool, [c_void_p, c_bool, c_size_t]),
    "use_state": (c_int, [c_void_p, c_void_p, _ERROR]),
    "state_graph": (c_int, [c_void_p, c_size_t, _OBJECT, _ERROR]),
    "state_length": (c_size_t, [c_void_p]),
    "state_capacity": (c_size_t, [c_void_p]),
    "state_bytes": (c_size_t, [c_void_p]),
    "rewind_state": (c_int, [c_void_p, c_size_t, _ERROR]),
    "reset_state": (c_int, [c_void_p, _ERROR]),
    "copy_state": (c_int, [c_void_p, _OBJECT, _ERROR]),
    "read_state": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, _ERROR]),
    "close_state": (None, [c_void_p]),
    "run_async": (c_int, [c_void_p, *_VALUES, CALLBACK, c_void_p, _ERROR]),
    "set_perf_profile": (c_int, [c_void_p, c_char_p, _ERROR]),
    "counters_of": (None, [c_void_p, POINTER(Counters), POINTER(Counters)]),
    "counters_at": (None, [c_void_p, POINTER(POINTER(Counters)), POINTER(POINTER(Counters))]),
    "tensor_counters_of": (None, [c_void_p, c_bool, c_size_t, POINTER(TensorCounts), POINTER(TensorCounts)]),
    "load_counters_of": (None, [c_void_p, c_bool, c_size_t, POINTER(TensorCounts)]),
    "preset": (c_int, [c_char_p, POINTER(PerfSettings), _ERROR]),
    "open_power": (c_int, [c_char_p, c_char_p, c_char_p, c_char_p, _OBJECT, _ERROR]),
    "close_power": (None, [c_void_p]),
    "power_key": (c_char_p, [c_void_p]),
    "power_warning": (c_char_p, [c_void_p, c_size_t]),
    "open_votes": (c_int, [c_void_p, POINTER(PerfSettings), _OBJECT, _ERROR]),
    "set_votes": (c_int, [c_void_p, POINTER(PerfSettings), _ERROR]),
    "begin_phase": (c_int, [c_void_p, c_int, _ERROR]),
    "end_phase": (c_int, [c_void_p, c_int, _ERROR]),
    "close_votes": (None, [c_void_p]),
    "read_power": (c_int, [c_void_p, POINTER(PowerState), _ERROR]),
    "live_clocks": (c_size_t, [c_void_p, POINTER(Clock), c_size_t]),
    "plan": (c_int, [c_void_p, POINTER(Vote), c_size_t, POINTER(Write), c_size_t, _COUNT, _ERROR]),
    "restore": (c_int, [c_char_p, LINE, c_void_p, _ERROR]),
    "open_profile": (c_int, [c_void_p, c_char_p, c_int, _OBJECT, _ERROR]),
    "record": (c_int, [c_void_p, c_void_p, _ERROR]),
    "record_marked": (c_int, [c_void_p, c_void_p, _ERROR]),
    "write_marks": (c_int, [c_void_p, _ERROR]),
    "profile_take": (c_int, [c_void_p, c_void_p, c_void_p, _ERROR]),
    "close_profile": (c_int, [c_void_p, _ERROR]),
}
"""Result and arguments of each function of gputune.h, by its name without `gputune_`."""

"""Test that random messages come back unchanged, and that hostile input ends in errors with known names."""

import dataclasses
import functools
import types
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.server.protocol import codec, framing
from gputune.server.protocol.connection import Connection, State
from gputune.server.protocol.errors import ERROR_NAMES, ProtocolError, RemoteProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import FROM_CLIENT, FROM_SERVER

from .examples import EXAMPLES
from .hostile import KINDS as HOSTILE_KINDS
from .hostile import Hostile, hostile_inputs
from .talk import feed, pair, raw
from .victim import Victim

KINDS = codec.registry((*FROM_CLIENT, *FROM_SERVER))
REFUSALS = {"bad_frame", "bad_message", "unexpected_message", "limit_exceeded"}
COUNT = 400


def to_bytes(message: object, request_id: int) -> bytes:
    return b"".join(raw(message, request_id))


def from_bytes(data: bytes, limits: Limits) -> list[tuple[int, Any]]:
    frames = list(framing.FrameReader(limits).feed(data))
    return [codec.unpack(frame.header, frame.blobs, KINDS, limits) for frame in frames]


@functools.cache
def strategy_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a message's type hint."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return bounded(arguments[0], arguments[1].low, arguments[1].high)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.binary() if bytes in arguments else st.one_of(*map(strategy_of, arguments))
    if origin is tuple:
        return st.lists(strategy_of(arguments[0]), max_size=2).map(tuple)
    if origin in (dict, Mapping):
        return st.dictionaries(st.text(max_size=5), strategy_of(arguments[1]), max_size=3)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        return st.builds(hint, **{name: strategy_of(kind) for name, kind in hints.items()})
    if hint in (object, Any):
        leaf = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
        return st.recursive(leaf, lambda inner: st.lists(inner, max_size=2), max_leaves=4)
    return {
        int: st.integers(-(2**63), 2**63 - 1),
        bool: st.booleans(),
        str: st.text(max_size=9),
        type(None): st.none(),
    }[hint]


def bounded(hint: Any, low: float, high: float) -> st.SearchStrategy[Any]:
    if hint is int:
        return st.integers(int(low), int(high))
    if hint is float:
        return st.floats(low, high)
    if hint is str:
        return st.text("abcdef0123456789", min_size=int(low), max_size=max(int(low), 9))
    if get_origin(hint) in (dict, Mapping):
        return strategy_of(hint)
    return st.lists(strategy_of(get_args(hint)[0]), min_size=int(low), max_size=int(low) + 1).map(tuple)


@pytest.mark.slow
@given(st.data(), st.integers(0, 2**63 - 1))
def test_any_message_comes_back_as_it_was(data: st.DataObject, request_id: int) -> None:
    message = data.draw(strategy_of(data.draw(st.sampled_from(list(KINDS.values())))))
    assert from_bytes(to_bytes(message, request_id), Limits()) == [(request_id, message)]


@given(st.data())
def test_a_damaged_frame_is_a_message_or_refused_by_name(data: st.DataObject) -> None:
    frame = bytearray(to_bytes(data.draw(st.sampled_from(EXAMPLES)), 5))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    limits = Limits(header_bytes=10_000, frame_bytes=20_000, blobs=8)
    try:
        for request_id, message in from_bytes(bytes(frame), limits):
            assert from_bytes(to_bytes(message, request_id), limits) == [(request_id, message)]
    except ProtocolError as error:
        assert error.name in REFUSALS


@given(st.lists(st.binary(max_size=60) | st.sampled_from([to_bytes(m, 1) for m in EXAMPLES]), max_size=5), st.data())
def test_a_connection_survives_any_bytes_in_any_pieces(parts: list[bytes], data: st.DataObject) -> None:
    state = data.draw(st.sampled_from([state for state in State if state is not State.CLOSED]))
    connection: Connection = data.draw(st.sampled_from(pair(state)))
    steps = data.draw(st.lists(st.integers(1, 300), max_size=3))
    try:
        for arrived in feed(connection, b"".join(parts), steps):
            for request_id, message in arrived:
                assert type(message) in KINDS.values() or (message.request_id == request_id != 0)
    except RemoteProtocolError as error:
        assert error.name in REFUSALS | {"authentication_failed", "token_required", "version_mismatch"}
        assert error.request_id == 0


@pytest.fixture(scope="module")
def inputs() -> list[Hostile]:
    return list(hostile_inputs(1, COUNT))


def test_hostile_input_depends_on_the_seed_only(inputs: list[Hostile]) -> None:
    assert list(hostile_inputs(1, COUNT)) == inputs
    assert list(hostile_inputs(2, 30)) != inputs[:30]


def test_hostile_input_is_of_all_kinds_before_and_after_the_proof(inputs: list[Hostile]) -> None:
    assert Counter(item.kind for item in inputs).keys() == set(HOSTILE_KINDS)
    assert {(item.authenticated, item.from_valid) for item in inputs} == {(a, v) for a in (0, 1) for v in (0, 1)}
    assert sum(item.authenticated and item.from_valid for item in inputs) > 0.3 * COUNT


def test_hostile_input_ends_in_errors_with_known_names(inputs: list[Hostile]) -> None:
    faults: Counter[str] = Counter()
    for item in inputs:
        victim = Victim(item.authenticated)
        victim.swallow(item)
        faults.update(victim.faults)
        if not item.authenticated:
            assert victim.requests == 0, "without the token, nothing but the hello can be reached"
            assert victim.connection.state is not State.READY
    assert faults.keys() <= ERROR_NAMES.keys()
    assert faults.keys() >= {*REFUSALS, "authentication_failed"}

"""Change profile logs and schematics, and show them in every form that profile-viewer writes.

Half of the cases have a changed log, half a changed schematic: most of these are changed in their fields, others are
flipped, cut and spliced. Each form must be written, or refused with an error of one printable line, within 10 s and
4 GiB of address space; what is written as JSON must be JSON, and the account must add up.
"""

import contextlib
import functools
import io
import json
import random
import struct
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import msgpack

from gputune.client.cli.profile_viewer_command import command
from gputune.client.errors import GputuneError
from gputune.client.options.viewer import NAMES
from gputune.client.viewer.profile import Profile
from gputune.client.viewer.schematic import KIND, VERSION
from gputune.runtime.profiling.log import LogWriter, Record
from gputune.runtime.profiling.records import INIT, NODE, Span
from stress.made_up_profile import made_up_profile
from tests.runtime.profiling.made_up import marked
from tests.strategies.changes import Broken, check_line, mutated_bytes, mutated_leaves, mutated_value

MOST_SECONDS = 10.0
BLOCKS = ("launches", "parts")
ODD = (2**61, -(2**61), 3 * 2**60, 10**9, 10**18, 10**30, 5e-324, 1e300, "persistent", "arena", "bracketed", "\ud800",
       "a\0b", "../..", "/" * 300, "=1+1", "</script>", [0, 0], {"a": 0})  # fmt: skip
FORMS = ("trace.json", "a.html", "a.csv", "a.json", "terminal", "compare")


def examine(chance: random.Random, folder: Path) -> str:
    """Return how a changed log or schematic ends in all forms. Raises Broken, and whatever must not be raised."""
    log, schematic = original_log(), original_schematic()
    changed = chance.choice((mutated_value, mutated_leaves, mutated_leaves, None))
    if chance.random() < 0.5:
        log = packed(changed(records(), chance, ODD)) if changed else mutated_bytes(log, chance)
    elif changed:
        schematic = json.dumps(changed(json.loads(schematic), chance, ODD)).encode()
    else:
        schematic = mutated_bytes(schematic, chance)
    features = json.dumps({"features": {name: chance.random() < 0.5 for name in NAMES}})
    zoom = [f"--zoom_start={chance.choice((0, 1, 1e300))}"] if chance.random() < 0.2 else []
    return " or ".join(sorted(ended(log, schematic, folder, features, zoom)))


def ended(log: bytes, schematic: bytes, folder: Path, features: str = "{}", options: Sequence[str] = ()) -> set[str]:
    """Return how it ends to show a log, in each form; features: a config file's text."""
    contents = {"log": log, "schematic": schematic, "earlier": original_log(), "features": features.encode()}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {shown(form, folder, options) for form in FORMS}


def shown(form: str, folder: Path, options: Sequence[str]) -> str:
    """Return how it ends to show the log in one form."""
    given = ["--input_log", str(folder / "log"), "--schematic", str(folder / "schematic"), *options]
    if form == "compare":
        given += ["--compare", str(folder / "earlier"), "--fail_over", "5%"]
    elif form != "terminal":
        given += ["--output", str(folder / form), "--config", str(folder / "features")]
    begun = time.monotonic()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("error")
            command.main([*given, "--log_level", "error"], standalone_mode=False)
    except (GputuneError, click.ClickException) as error:
        return check_line(error)
    finally:
        if (took := time.monotonic() - begun) > MOST_SECONDS:
            raise Broken(f"{form} took {took:.1f} s")
    if form.endswith(".json"):
        check_json(folder / form)
    return "shown"


def check_json(path: Path) -> None:
    """Check that a file is JSON as all readers take it and, where it is a summary, that its account adds up."""

    def refuse(word: str) -> None:
        raise Broken(f"{path.name} has the word {word}, which is no JSON")

    content = json.loads(path.read_bytes(), parse_constant=refuse)
    for place, overall in enumerate(content.get("overall", ())):
        rows = [row["total_ns"] for row in content["account"] if row["graph"] == place]
        if sum(rows) != overall["elapsed_total_ns"]:
            raise Broken(f"the account of graph {place} does not add up")


def records() -> list[Any]:
    """Return the original log's records as plain values, timestamps as lists of numbers."""
    found = list(msgpack.Unpacker(io.BytesIO(original_log())))
    for kind, content in found:
        for name in BLOCKS if kind in ("inference", "marked") else ():
            content[name] = list(struct.unpack(f"<{len(content[name]) // 8}q", content[name]))
    return found


def packed(changed: Any) -> bytes:
    """Return such records as a file, without those that MsgPack cannot hold."""
    return b"".join(_packed(record) for record in changed) if isinstance(changed, list) else _packed(changed)


def _packed(record: Any) -> bytes:
    content: Any = record[1] if isinstance(record, list) and len(record) == 2 else {}
    for name in BLOCKS if isinstance(content, dict) else ():
        if isinstance(numbers := content.get(name), list) and all(type(each) is int for each in numbers):
            content[name] = b"".join((each % 2**64).to_bytes(8, "little") for each in numbers)
    try:
        found: bytes = msgpack.packb(record)
    except (OverflowError, ValueError):
        return b""
    return found


@functools.cache
def original_log() -> bytes:
    """Return a log with records of every kind: inferences of two graphs, with and without timestamps."""
    profile, other = made_up_profile(6, 3), made_up_profile(4, 2, "basic", "other")
    stream = io.BytesIO()
    (log,), (rest,) = profile.logs, other.logs
    writer = LogWriter(stream, log.header)
    writer.add_graph(log.graphs[0])
    writer.add_graph(rest.graphs[0])
    for record in _records(profile, other):
        writer.add(record)
    writer.end()
    return stream.getvalue()


def _records(profile: Profile, other: Profile) -> Iterator[Record]:
    (log,), (rest,) = profile.logs, other.logs
    yield Span("init", INIT, log.header.begun_ns, log.header.begun_ns + 500)
    yield Span("init/reading", NODE, log.header.begun_ns, log.header.begun_ns + 400)
    yield from log.inferences
    yield from (replace(one, graph=1, thread=2, observed={"joule": 0.5}) for one in rest.inferences)
    yield from (marked([20_000] * len(log.graphs[0].launches), number=number) for number in range(2))
    yield from log.states
    yield from log.comparisons


@functools.cache
def original_schematic() -> bytes:
    """Return the schematic of the first graph."""
    schematic = made_up_profile(6, 3).schematic
    assert schematic is not None
    return json.dumps({"kind": KIND, "version": VERSION, **asdict(schematic)}).encode()

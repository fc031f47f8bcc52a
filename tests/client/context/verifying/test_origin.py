"""Test what contexts of every kind say of the files that they were made from, and of being tuned."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import onnx
import pytest

from gputune.client.api.interface import tune
from gputune.client.context.verifying.origin import Origin, made_from, records_of, tuning_in_words
from gputune.client.errors import ConfigError, DeviceOrContextError, ModelError
from gputune.client.generation.ep_context import EpContextFile
from gputune.client.model.importer import read_model
from gputune.client.run.local_device import LocalDevice
from gputune.client.run.packages import combine
from gputune.runtime.backends import open_backend
from gputune.runtime.context.format import read_header
from gputune.runtime.context.records import FileRecord, ModelRecord, Tuning
from gputune.runtime.devices.discovery import NULL_REPORT
from tests.client import models
from tests.client.contexts import DEVICE, small_context
from tests.strategies.files.contexts import head_of, with_head

RELU = "(float[2, 4] x) => (float[2, 4] y)", "y = Relu(x)"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with its weights in another file."""
    path = tmp_path / "net.onnx"
    made = models.build("(float[2, 4] x) => (float[2, 4] y)", "y = MatMul(x, w)", {"w": (4, 4)})
    onnx.save(made, path, save_as_external_data=True, location="net.data", size_threshold=0)
    return path


@pytest.fixture
def context(model: Path, tmp_path: Path) -> Path:
    return small_context(tmp_path / "context.bin", made_from=records_of([("main", model)]), tuning_effort="quick")


def of(path: Path, records: tuple[ModelRecord, ...]) -> Path:
    """A context with other models."""
    return small_context(path, made_from=records)


def with_configuration(path: Path, **configuration: Any) -> None:
    """Change what a context says of how it was made."""
    memory, header = head_of(path.read_bytes())
    fields = {**msgpack.unpackb(header), "configuration": configuration, "models": []}
    path.write_bytes(with_head(path.read_bytes(), memory, fields))


def same(context: Path, model: Path) -> Path:
    return context


def renamed(context: Path, model: Path) -> Path:
    """A copy of the model under another name is the same; its weights keep theirs."""
    (model.parent / "copy.onnx").write_bytes(model.read_bytes())
    model.unlink()
    (model.parent / "copy.onnx").rename(model)
    return of(context, tuple(replace(one, name="before.onnx") for one in read_header(context).models))


def changed(context: Path, model: Path) -> Path:
    made = onnx.load(model, load_external_data=False)
    made.doc_string = "exported again"
    model.write_bytes(made.SerializeToString())
    return context


def other_weights(context: Path, model: Path) -> Path:
    data = bytearray((model.parent / "net.data").read_bytes())
    data[0] ^= 1
    (model.parent / "net.data").write_bytes(data)
    return context


def fewer_weights(context: Path, model: Path) -> Path:
    """No generator writes it."""
    return of(context, tuple(replace(one, weights=()) for one in read_header(context).models))


def older(context: Path, model: Path) -> Path:
    with_configuration(context, models=["net.onnx"])
    return context


def oldest(context: Path, model: Path) -> Path:
    return small_context(context)


def in_memory(context: Path, model: Path) -> Path:
    """Made from a graph, as onnx_backend does it."""
    LocalDevice(open_backend(NULL_REPORT)).write(context, [read_model(model)])
    return context


def packed(context: Path, model: Path) -> Path:
    return package(context, records_of([("main", model)]))


def packed_with_others(context: Path, model: Path) -> Path:
    return package(context, (ModelRecord("b.onnx", "0" * 64, (), ("main",)),))


def packed_with_older(context: Path, model: Path) -> Path:
    return package(context, ())


def package(context: Path, records: tuple[ModelRecord, ...]) -> Path:
    """A package with a context for another driver, made from these files."""
    again = small_context(context.with_name("b.bin"), device={**DEVICE, "driver_version": "2"}, made_from=records)
    combine(context.with_name("both.pkg"), [context, again])
    return context.with_name("both.pkg")


def onnx_file(context: Path, model: Path) -> Path:
    EpContextFile(context.with_name("net_ctx.onnx"), embed=False).write(context)
    return context.with_name("net_ctx.onnx")


def onnx_file_with_context(context: Path, model: Path) -> Path:
    EpContextFile(context.with_name("net_ctx.onnx"), embed=True).write(context)
    context.unlink()
    return context.with_name("net_ctx.onnx")


def one_of_several(context: Path, model: Path) -> Path:
    return of(context, (ModelRecord("b.onnx", "0" * 64, (), ("b",)), *read_header(context).models))


@pytest.mark.parametrize(
    ("make", "match", "words"),
    [
        (same, "same", "was made from net.onnx (SHA-256 {own})"),
        (renamed, "same", "was made from before.onnx (SHA-256 {own})"),
        (one_of_several, "same", "was made from b.onnx (SHA-256 000000000000), net.onnx (SHA-256 {own})"),
        (changed, "other", "was made from net.onnx (SHA-256 {own}), and {model} is another file (SHA-256 {now})"),
        (other_weights, "other", "was made from {model} with other weights: net.data has changed"),
        (fewer_weights, "other", "was made from {model} with other weights: net.data has changed"),
        (older, "unknown", "was made from net.onnx, of unknown content"),
        (oldest, "unknown", "does not say what it was made from"),
        (in_memory, "unknown", "does not say what it was made from"),
        (packed, "same", "was made from net.onnx (SHA-256 {own})"),
        (packed_with_others, "other", "was made from b.onnx (SHA-256 000000000000), and {model} is another file"),
        (packed_with_older, "unknown", "was made from net.onnx (SHA-256 {own})"),
        (onnx_file, "same", "was made from net.onnx (SHA-256 {own})"),
        (onnx_file_with_context, "same", "was made from net.onnx (SHA-256 {own})"),
    ],
)
def test_what_a_context_was_made_from(
    context: Path, model: Path, make: Callable[[Path, Path], Path], match: str, words: str
) -> None:
    own = hashlib.sha256(model.read_bytes()).hexdigest()[:12]
    path = make(context, model)
    origin = Origin.of(path, model)
    now = hashlib.sha256(model.read_bytes()).hexdigest()[:12]
    assert origin.match == match
    assert origin.words.startswith(f"{path} {words.format(own=own, now=now, model=model)}")


def test_a_model_is_kept_with_the_files_of_its_weights(context: Path, model: Path) -> None:
    digest, weights = (
        hashlib.sha256((model.parent / name).read_bytes()).hexdigest() for name in ("net.onnx", "net.data")
    )
    assert read_header(context).models == (
        ModelRecord("net.onnx", digest, (FileRecord("net.data", weights),), ("main",)),
    )


def test_many_models_are_named_in_short(context: Path) -> None:
    several = tuple(ModelRecord(f"{number}.onnx", f"{number}" * 64, (), ("main",)) for number in range(5))
    assert made_from(read_header(of(context, several))).endswith("2.onnx (SHA-256 222222222222) and 2 more")


@pytest.mark.parametrize(("which", "error"), [("model", ModelError), ("context", DeviceOrContextError)])
def test_a_missing_file_is_named(context: Path, model: Path, which: str, error: type[Exception]) -> None:
    {"model": model, "context": context}[which].unlink()
    with pytest.raises(error, match=r"(net\.onnx|context\.bin) cannot be read: No such file"):
        Origin.of(context, model)


@pytest.mark.parametrize("given", [b"\x08\x08", onnx.ModelProto(), [onnx.ModelProto()]])
def test_a_model_in_memory_is_no_file(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^model: a (bytes|ModelProto) is no file; write it with onnx\.save"):
        tune(given)


KEPT = {name: {"kept": name} for name in ("tuned", "last", "untuned")}


@pytest.mark.parametrize(
    ("configuration", "tuning", "words"),
    [
        ({}, "unknown", "made without saying whether it is tuned"),
        ({"tuning_effort": "none"}, "none", "untuned, of tuning effort none"),
        ({"tuning_effort": "quick"}, "tuned", "tuned"),
        ({"tuning_effort": "quick", "end_to_end": {"main": KEPT["tuned"]}}, "tuned", "tuned"),
        ({"tuning_effort": "quick", "end_to_end": {"main": KEPT["last"]}}, "tuned", "tuned"),
        (
            {"tuning_effort": "full", "end_to_end": {"main": KEPT["untuned"]}},
            "untuned",
            "untuned, because tuning found",
        ),
        ({"tuning_effort": "full", "end_to_end": {"other": KEPT["untuned"]}}, "tuned", "tuned"),
        ({"tuning_effort": "full", "end_to_end": {"main": "untuned"}}, "tuned", "tuned"),
        ({"tuning_effort": 3, "end_to_end": 4}, "unknown", "made without"),
    ],
)
def test_whether_a_context_is_tuned(tmp_path: Path, configuration: Any, tuning: Tuning, words: str) -> None:
    header = read_header(small_context(tmp_path / "c.bin", **configuration))
    assert header.tuning_of("main") == tuning
    assert tuning_in_words(header).startswith(words)


def test_several_graphs_are_tuned_if_one_is(tmp_path: Path) -> None:
    gains = {"a": KEPT["untuned"], "b": KEPT["untuned"], "c": KEPT["tuned"]}
    header = read_header(
        small_context(tmp_path / "c.bin", names=("a", "b", "c"), tuning_effort="full", end_to_end=gains)
    )
    assert [header.tuning_of(*names) for names in ("ab", "abc", "")] == ["untuned", "tuned", "tuned"]
    assert tuning_in_words(header).endswith("in graph 'c' tuned")

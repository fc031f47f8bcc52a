"""Test --weights, its key and its argument: which form a context has, and what is said of its bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

import gputune as api
from gputune.client.context.memory.weights import weight_bytes
from gputune.client.errors import ConfigError
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.report import sizes
from gputune.client.report.memory import read_memory
from gputune.client.report.sizes import split_of, split_told
from gputune.runtime.context.format import open_context, read_header
from tests.client import models
from tests.client.commands import Gputune


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.save(models.conv_relu_gemm(), tmp_path)


@pytest.fixture
def generate(gputune: Gputune, null_target: tuple[object, ...], model: Path, tmp_path: Path) -> Any:
    def made(*options: object, **config: object) -> Any:
        arguments: list[object] = [
            "--model",
            model,
            "--binary_file",
            "m",
            "--output_dir",
            tmp_path,
            "--tuning_effort",
            "none",
        ]
        if config:
            (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
            arguments += ["--config_file", tmp_path / "config.json"]
        return gputune("context-binary-generator", *arguments, *null_target, *options)

    return made


def is_compact(tmp_path: Path) -> bool:
    return bool(read_header(tmp_path / "m.bin").packing)


def test_the_option_comes_before_the_key(generate: Any, tmp_path: Path) -> None:
    for options, config, compact in (
        ((), {}, False),
        ((), {"weights": "compact"}, True),
        (("--weights", "packed"), {"weights": "compact"}, False),
        (("--weights", "compact"), {"weights": "packed"}, True),
    ):
        assert generate(*options, **config).code == 0
        assert is_compact(tmp_path) is compact
        assert ("weights" in read_header(tmp_path / "m.bin").configuration) is compact
    assert generate(weights="small").code == 2
    assert generate("--weights", "small").code == 2


def test_a_packed_context_is_as_it_was_before_there_were_others(generate: Any, tmp_path: Path) -> None:
    generate()
    before = (tmp_path / "m.bin").read_bytes()
    generate("--weights", "packed")
    assert (tmp_path / "m.bin").read_bytes() == before


def test_the_argument_of_tune(model: Path, null_target: tuple[object, ...], tmp_path: Path) -> None:
    _, target, _, token_file = map(str, null_target)
    given: Any = {"target": target, "token_file": token_file, "output": tmp_path / "m.bin", "effort": "none"}
    api.tune(model, **given, weights="compact")
    assert is_compact(tmp_path)
    with pytest.raises(ConfigError, match="weights: there is no 'compct'; did you mean 'compact'"):
        api.tune(model, **given, weights="compct")


@pytest.mark.parametrize("form", ["packed", "compact"])
def test_all_bytes_have_a_name(generate: Any, gputune: Gputune, model: Path, tmp_path: Path, form: str) -> None:
    path = tmp_path / "m.bin"
    ran = generate("--weights", form)
    with open_context(path) as file:
        split = split_of(file.header, path.stat().st_size)
        sources = {file.header.weights[index] for one in file.header.packing for index in one.constants("weights")}
        raw = sum(file.section(place).nbytes for place in sources)
        on_device = sum(one.packed_bytes for one in file.header.packing) + split[sizes.PACKED]
    assert sum(split.values()) == path.stat().st_size and min(split.values()) >= 0
    assert (split[sizes.AS_IN_MODEL], raw > 0) == (raw, form == "compact")
    assert read_memory(path).weights_bytes == on_device
    line = "of its bytes: weights as "
    assert (line + ("kernels read them" if form == "packed" else "the model has them")) in ran.err
    said = " ".join(gputune("context-binary-utility", "--context_binary", path).out.split())
    assert line in said and ("of which the device packs" in said) is (form == "compact")
    shown = json.loads(gputune("context-binary-utility", "--context_binary", path, "--json").out)
    assert shown["bytes_of"] == split


def test_what_would_make_a_large_context_smaller_is_said(generate: Any, model: Path, tmp_path: Path) -> None:
    generate()
    weights = weight_bytes([lower(read_model(model))])
    assert weights == sum(one.nbytes for one in lower(read_model(model)).constants.values())
    packed = split_of(read_header(tmp_path / "m.bin"), 10**6)[sizes.PACKED]
    assert "--weights compact" in split_told(tmp_path / "m.bin", int(packed / sizes.LARGER) - 1)
    assert "--weights compact" not in split_told(tmp_path / "m.bin", packed)
    generate("--weights", "compact")
    assert "--weights compact" not in split_told(tmp_path / "m.bin", 1)

"""Test --adb: the bundle goes to a device with a bare Python, a model is tuned there, and its context runs there."""

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gputune.client.target.adb.bundle import bundle_bytes
from tests.client import models
from tests.client.commands import Gputune, config_file, read_json

from .bare import bare_python, driver_settings
from .conftest import Adb
from .phone import Phone
from .tuned import check_results, is_left_as_it_was, small_model, tune_and_run

Make = Callable[..., Phone]


@pytest.fixture
def bare(make_phone: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes devices that have a Python with numpy and pyopencl only, for a bundle that does not change meanwhile."""
    monkeypatch.setattr("gputune.client.target.adb.target.bundle_bytes", functools.cache(bundle_bytes))
    python = bare_python(tmp_path / "bare")

    def make(**environment: str) -> Phone:
        phone = make_phone(environment=environment)
        phone.program("/data/local/py", f'#!/bin/sh\nexec {python} "$@"\n')
        return phone

    return make


@pytest.mark.slow
@pytest.mark.long("that a model is tuned and run over the real adb is a promise")
def test_a_model_is_tuned_and_run_on_a_null_device(adb: Adb, bare: Make, gputune: Gputune, tmp_path: Path) -> None:
    phone = bare(GPUTUNE_DEVICE="null")
    tune_and_run(gputune, phone, tmp_path, "--adb_python", "/data/local/py")
    assert read_json(tmp_path / "tuned.json")["tasks"]
    assert is_left_as_it_was(adb, phone)


@pytest.mark.opencl
@pytest.mark.night
def test_a_model_is_tuned_and_run_on_a_device(adb: Adb, bare: Make, gputune: Gputune, tmp_path: Path) -> None:
    phone = bare(**driver_settings())
    tune_and_run(gputune, phone, tmp_path, "--adb_python", "/data/local/py")
    check_results(tmp_path)
    assert is_left_as_it_was(adb, phone)


def test_a_phone_without_a_python_is_one_clear_line(make_phone: Make, gputune: Gputune, tmp_path: Path) -> None:
    phone = make_phone()
    models.save(small_model(), tmp_path)
    ran = gputune(
        *("context-binary-generator", "--model", tmp_path / "model.onnx", "--binary_file", "small"),
        *("--output_dir", tmp_path, "--config_file", config_file(tmp_path), "--adb"),
    )
    assert ran.code == 4
    assert re.search(rf"no Python of device {phone.serial} can run the target server .*\[adb_python\]$", ran.last_line)

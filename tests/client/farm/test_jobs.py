"""Test what is recorded about jobs, and what a farm starts without."""

import errno
import os
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gputune.client.farm import run
from gputune.client.farm.certificates import (
    AUTHORITY,
    AUTHORITY_KEY,
    MEMBER,
    MEMBER_KEY,
    Certificates,
    add_member,
    create,
)
from gputune.client.farm.dask_engine import SchedulerAddress
from gputune.client.farm.engine import FarmError
from gputune.client.farm.hosts import hosting
from gputune.client.farm.jobs import LOST_SECONDS, JobPart, Journal
from gputune.client.farm.local_engine import LocalEngine
from gputune.client.farm.pool import Pool, TierDevices
from gputune.client.farm.run import Run
from gputune.runtime.context.package import open_package
from tests.client import models
from tests.client.commands import Gputune
from tests.waiting import becomes

pytestmark = pytest.mark.slow  # each starts processes


def test_a_job_is_lost_when_it_is_not_heard_of_and_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "farm" / "jobs.sqlite")
    assert journal.jobs() == []
    name = journal.begin({"models": ["m.onnx"]}, "me")
    journal.tell(name, JobPart("m.onnx", "a", "queued"))
    journal.tell(name, JobPart("m.onnx", "a", "done", "d0, d1", "4 tasks"))
    job = journal.job(name)
    assert (job.asked, job.owner, job.state, job.parts) == (
        {"models": ["m.onnx"]}, "me", "running", (JobPart("m.onnx", "a", "done", "d0, d1", "4 tasks"),)
    )  # fmt: skip
    with pytest.raises(FarmError, match="is running"):
        journal.again(name)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + LOST_SECONDS + 1)
    assert journal.job(name).state == "lost"
    assert journal.again(name).asked == {"models": ["m.onnx"]}
    assert journal.job(name).state == "running"
    with pytest.raises(FarmError, match="there is no job other"):
        journal.job("other")
    (tmp_path / "farm" / "jobs.sqlite").write_bytes(b"no journal at all, but long enough to be one" * 40)
    with pytest.raises(FarmError, match="cannot be used"):
        journal.jobs()


def test_of_two_who_go_on_with_a_lost_job_one_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "jobs.sqlite")
    name, now = journal.begin({}, "me"), time.time()
    monkeypatch.setattr(time, "time", lambda: now + LOST_SECONDS + 1)
    lost = journal.job(name)
    monkeypatch.setattr(journal, "job", lambda name: lost)  # both have looked before either has said that it goes on
    assert journal.again(name) == lost
    with pytest.raises(FarmError, match=r"is running and .* counts as lost after 30 s"):
        journal.again(name)
    journal.set_state(name, "failed")
    assert journal.again(name) == lost


def test_a_job_of_the_future_is_lost_as_one_of_the_past_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed, and then the clock was set back."""
    journal = Journal(tmp_path / "jobs.sqlite")
    name, now = journal.begin({}, "me"), time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    assert journal.job(name).state == "lost"
    assert journal.again(name).name == name
    assert journal.job(name).state == "running"


def test_a_journal_is_whole_whenever_its_writers_are_killed(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    code = (
        "import sys, itertools; from pathlib import Path; from gputune.client.farm.jobs import Journal, JobPart\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "for number in itertools.count():\n"
        "    name = journal.begin({'models': [number]}, 'me')\n"
        "    for model in range(20): journal.tell(name, JobPart(str(model), 'a', 'done', 'd', 'x' * 500))\n"
        "    if not number: print('first', flush=True)"
    )
    for _ in range(2):
        command = [sys.executable, "-c", code, str(path)]
        writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == "first\n"
        for writer in writers:
            writer.kill()
            writer.communicate()
        journal = Journal(path)
        for job in journal.jobs():
            assert {part.said for part in job.parts} <= {"x" * 500}
        assert journal.job(journal.begin({}, "me")).owner == "me"
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("asked", ["{", "nonsense"])
def test_a_journal_with_what_no_job_asks_is_refused_by_name(tmp_path: Path, gputune: Gputune, asked: str) -> None:
    journal = Journal(tmp_path / "jobs.sqlite")
    name = journal.begin({}, "me")
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as file, file:
        file.execute("UPDATE jobs SET asked = ?", (asked,))
    ran = gputune("farm", "jobs", "--farm_dir", tmp_path)
    assert (ran.code, "the journal of jobs" in ran.last_line, "cannot be used" in ran.last_line) == (4, True, True)
    with pytest.raises(FarmError, match="cannot be used"):
        journal.again(name)


def test_a_job_goes_on_being_heard_of_after_its_journal_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "BEAT_SECONDS", 0.01)
    heard: list[str] = []

    class Full(Journal):
        def beat(self, name: str) -> None:
            heard.append(name)
            if len(heard) == 1:
                raise FarmError("the journal of jobs x cannot be used: database or disk is full")

    def generated(model: Path, tier: str, group: TierDevices) -> str:
        assert becomes(lambda: len(heard) >= 3)
        return "tuned"

    journal = Full(tmp_path / "jobs.sqlite")
    name = journal.begin({}, "me")
    with LocalEngine() as engine, Pool(engine, name) as pool:
        parts = Run(pool, journal, [Path("m.onnx")], generated, lambda model, tiers: "packed").run(["a"])
    assert [part.state for part in parts] == ["done", "done"]
    assert "the job may be listed as lost: the journal of jobs x cannot be used" in caplog.text


def test_beyond_this_machine_certificates_are_needed(tmp_path: Path) -> None:
    none = Certificates(tmp_path)
    assert [str(SchedulerAddress.parse(text, none)) for text in ("localhost:1", "127.0.0.1", "[::1]:7")] == [
        "tcp://localhost:1",
        "tcp://127.0.0.1:8786",
        "tcp://[::1]:7",
    ]
    for text in ("10.0.0.1:8786", "0.0.0.0", "[::]:7", "farm.example:1", "tls://127.0.0.1:1"):
        with pytest.raises(FarmError, match=r"certificates are needed: .*`gputune farm init` makes it"):
            SchedulerAddress.parse(text, none)
    for text in ("", "http://127.0.0.1", "127.0.0.1:x", "tcp://10.0.0.1:1"):
        with pytest.raises(FarmError, match=r"not the address|TLS only"):
            SchedulerAddress.parse(text, none)


def _valid(first: datetime, last: datetime) -> Callable[[Certificates], object]:
    """Makes a member's certificate of that time by the folder's own authority."""

    def change(files: Certificates) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        old = x509.load_pem_x509_certificate(files.member.read_bytes())
        authority = serialization.load_pem_private_key((files.folder / AUTHORITY_KEY).read_bytes(), None)
        new = x509.CertificateBuilder(old.issuer, old.subject, old.public_key(), old.serial_number, first, last)
        signed = new.sign(authority, hashes.SHA256())
        files.member.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    return change


def _locked(files: Certificates) -> None:
    """Gives the key a password."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    files.key.write_bytes(key.private_bytes(*form))


def _others(*names: str) -> Callable[[Certificates], object]:
    """Takes these files from another farm."""

    def change(files: Certificates) -> None:
        other = create(files.folder.parent / "other")
        for name in names:
            (files.folder / name).write_bytes((other.folder / name).read_bytes())

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda files: files.authority.unlink(), "authority.pem is missing; `gputune farm init`"),
        (lambda files: files.member.unlink(), "member.pem is missing; `gputune farm init`"),
        (lambda files: files.key.unlink(), "member.key is missing; `gputune farm init`"),
        (lambda files: files.authority.write_text("nonsense"), "authority.pem is no certificate; copy the three"),
        (lambda files: files.member.write_text("nonsense"), "member.pem is no certificate; copy the three"),
        (lambda files: files.member.write_bytes(b""), "member.pem is no certificate; copy the three"),
        (lambda files: files.key.write_bytes(b""), "member.key is no key, or has a password; copy"),
        (lambda files: files.key.write_bytes(files.member.read_bytes()), "member.key is no key, or has a password"),
        (_locked, "member.key is no key, or has a password"),
        (_others(MEMBER_KEY), "member.key is not the key of .*member.pem; copy"),
        (_others(MEMBER), "member.key is not the key of .*member.pem; copy"),
        (_others(MEMBER, MEMBER_KEY), "member.pem was not signed by the authority of .*authority.pem; copy"),
        (_others(AUTHORITY), "member.pem was not signed by the authority of .*authority.pem; copy"),
        (lambda files: files.member.write_bytes(files.authority.read_bytes()), "member.key is not the key of"),
        (lambda files: files.authority.chmod(0o666), "authority.pem is not trusted: it can be written by every user"),
        (
            _valid(datetime(2001, 2, 3), datetime(2004, 5, 6)),
            "is valid from 2001-02-03 to 2004-05-06, and .* clock says",
        ),
        (
            _valid(datetime(2801, 2, 3), datetime(2804, 5, 6)),
            "is valid from 2801-02-03 to 2804-05-06, and .* set the clock",
        ),
    ],
)
def test_certificates_with_which_none_is_a_member_are_refused_before_they_are_used(
    tmp_path: Path, change: Callable[[Certificates], object], said: str
) -> None:
    pytest.importorskip("cryptography")
    made = create(tmp_path / "farm")
    assert made.check() is made
    change(made)
    with pytest.raises(FarmError, match=said):
        made.check()
    with pytest.raises(FarmError, match=f"tls://127.0.0.1:1 uses TLS, so certificates are needed: .*{said}"):
        SchedulerAddress.parse("tls://127.0.0.1:1", made)


def test_certificates_are_made_once_and_their_key_is_ones_own(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    made = create(tmp_path / "farm")
    assert str(SchedulerAddress.parse("10.0.0.1:1", made)) == "tls://10.0.0.1:1"
    assert {path.stat().st_mode & 0o077 for path in made.folder.iterdir()} == {0}
    with pytest.raises(FarmError, match="exists already"):
        create(tmp_path / "farm")
    (made.folder / MEMBER_KEY).chmod(0o640)
    with pytest.raises(FarmError, match="can be read by others"):
        made.check()


def test_certificates_that_could_not_be_written_are_not_in_the_way_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography")
    open_file = os.open

    def full(path: Path, *arguments: Any) -> int:
        if path.name == MEMBER_KEY:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return open_file(path, *arguments)

    with monkeypatch.context() as changed:
        changed.setattr(os, "open", full)
        with pytest.raises(FarmError, match=r"member.key cannot be written: No space left"):
            create(tmp_path / "farm")
        assert not (tmp_path / "farm").exists()
    made = create(tmp_path / "farm")
    with monkeypatch.context() as changed:
        changed.setattr(os, "open", full)
        with pytest.raises(FarmError, match=r"member.key cannot be written: No space left"):
            add_member(made.folder, "shelf")
    assert made.check() is made
    assert add_member(made.folder, "shelf").check()


def test_each_member_has_a_certificate_of_its_own_by_the_same_authority(gputune: Gputune, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    own = create(tmp_path / "farm")
    ran = gputune("farm", "init", "--member", "shelf", "--member", "desk", "--farm_dir", own.folder)
    assert ran.code == 0, ran.err
    members = [Certificates(own.folder / "members" / name).check() for name in ("shelf", "desk")]
    for member in members:
        assert not (member.folder / AUTHORITY_KEY).exists(), "a member can make others"
        ssl.create_default_context(cafile=own.authority).load_cert_chain(member.member, member.key)
        command = ["openssl", "verify", "-CAfile", str(own.authority), str(member.member)]
        signed = subprocess.run(command, capture_output=True, check=False)
        assert signed.returncode == 0, signed.stderr
    assert len({each.key.read_bytes() for each in (own, *members)}) == 3
    for name, why in (("shelf", "exists already"), ("../x", "is not a name")):
        again = gputune("farm", "init", "--member", name, "--farm_dir", own.folder)
        assert (again.code, why in again.last_line) == (4, True), again.err
    other = create(tmp_path / "other")
    (other.folder / AUTHORITY_KEY).write_bytes((own.folder / AUTHORITY_KEY).read_bytes())
    for folder, why in (
        (other.folder, "would not be trusted"),
        (tmp_path / "none", "make members in the folder of the authority"),
    ):
        assert why in gputune("farm", "init", "--member", "x", "--farm_dir", folder).last_line


def test_models_are_tuned_on_devices_of_this_machine_and_a_job_goes_on(gputune: Gputune, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    models.save(models.conv_relu_gemm(), folder)
    here = ("--farm_dir", tmp_path / "farm")
    ran = gputune(
        "farm", "tune", "--models", folder, "--device", "null", "--tuning_effort", "quick", "--output_dir",
        tmp_path / "out", "--performance_cache_dir", tmp_path / "cache", *here,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["model.gtpkg", "model.null-cu1.bin"]
    (job,) = Journal(tmp_path / "farm" / "jobs.sqlite").jobs()
    assert (job.state, [part.state for part in job.parts]) == ("done", ["done", "done"])
    again = gputune("farm", "tune", "--resume", job.name, "--device", "null", *here)
    assert again.code == 0, again.err
    assert "3 tasks, 3 known" in again.out


@pytest.mark.night
def test_a_package_holds_a_models_contexts_for_all_tiers(gputune: Gputune, tmp_path: Path) -> None:
    for name, model in (("one", models.conv_relu_gemm()), ("two", models.residual_block())):
        models.save(model, tmp_path).rename(tmp_path / f"{name}.onnx")
    ran = gputune(
        "farm", "tune", "--models", f"{tmp_path / 'one.onnx'},{tmp_path / 'two.onnx'}", "--device", "null", "--device",
        "waiting", "--tuning_effort", "none", "--output_dir", tmp_path / "out", "--farm_dir", tmp_path / "farm",
        "--input_output_tensor_mem_type", "one:x=memhandle",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "sections that several have" in ran.out
    for name, kind in (("one", "memhandle"), ("two", "raw")):
        with open_package(tmp_path / "out" / f"{name}.gtpkg") as package:
            assert sorted(entry.tier for entry in package.contexts) == ["null-cu1", "waiting-cu1"]
            for place in range(2):
                with package.open(place) as file:
                    assert file.header.graphs[0].inputs[0].memory_type == kind


@pytest.mark.night
def test_a_device_of_this_machine_is_in_one_farm(
    gputune: Gputune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")  # so that no name is folded
    monkeypatch.setattr(hosting, "SIMULATED", frozenset())  # as if null was a real device
    model = models.save(models.conv_relu_gemm(), tmp_path)
    tune = ("farm", "tune", "--models", model, "--device", "null", "--tuning_effort", "none", "--output_dir", tmp_path)
    with hosting.hosted("a", "null"):
        other = gputune(*tune, "--farm_dir", tmp_path / "other")
        assert (other.code, "is taken by another farm worker" in other.last_line) == (4, True), other.err
        (job,) = Journal(tmp_path / "other" / "jobs.sqlite").jobs()
        assert job.state == "failed"
        assert "model.onnx" in gputune("farm", "jobs", "--farm_dir", tmp_path / "other").out

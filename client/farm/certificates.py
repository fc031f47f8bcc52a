"""Create a private certificate authority, and the certificates by which members of a farm prove their identity."""

from __future__ import annotations

import datetime
import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gputune.client.farm.engine import FarmError, checked_name
from gputune.core.ownership import untrusted

AUTHORITY, AUTHORITY_KEY = "authority.pem", "authority.key"
MEMBER, MEMBER_KEY = "member.pem", "member.key"
MEMBERS = "members"
"""The folder of those that are made for other machines."""
DAYS = 3650
EXTRA = "pip install '.[farm]' in a clone of gputune"

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey


@dataclass(frozen=True)
class Certificates:
    """Keep the files of a folder: the authority's certificate, and a certificate that it has signed, with its key."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / AUTHORITY

    @property
    def member(self) -> Path:
        return self.folder / MEMBER

    @property
    def key(self) -> Path:
        return self.folder / MEMBER_KEY

    def check(self) -> Certificates:
        """Return itself. Raises FarmError where a file is missing, another user can read the key or change the
        authority, or the three are not what a member proves itself with today."""
        for path in (self.authority, self.member, self.key):
            if not path.is_file():
                where = "on one machine, and with --member NAME what the others need"
                raise FarmError(f"{path} is missing; `gputune farm init` makes it {where}")
        if self.key.stat().st_mode & 0o077:
            raise FarmError(f"{self.key} can be read by others; chmod 600 it")
        if why := untrusted(self.authority):
            raise FarmError(f"{self.authority} is not trusted: it {why}")
        _check_together(self)
        return self


def create(folder: Path) -> Certificates:
    """Make an authority, and a certificate for this machine. Raises FarmError where they are there already, or cannot
    be written."""
    _check_extra()
    from cryptography.hazmat.primitives.asymmetric import ec

    made = Certificates(folder)
    if made.authority.exists():
        raise FarmError(f"{made.authority} exists already; a new authority would lock out the machines that trust it")
    authority = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate("gputune farm", authority.public_key(), authority, authority=True)
    _write(folder, {AUTHORITY: certificate, AUTHORITY_KEY: _plain(authority), **_member(platform.node(), authority)})
    return made


def add_member(folder: Path, name: str) -> Certificates:
    """Make folder/members/NAME with a certificate for another machine, signed by the authority of `folder`. Raises
    FarmError where there is no authority, or the member is there already."""
    _check_extra()
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    own, made = folder / AUTHORITY_KEY, Certificates(folder / MEMBERS / checked_name(name, "a member's name"))
    if made.folder.exists():
        raise FarmError(f"{made.folder} exists already; copy it to {name}, or choose another name")
    try:
        key = load_pem_private_key(own.read_bytes(), None)
        trusted = (folder / AUTHORITY).read_bytes()
    except OSError as error:
        why = f"{error.filename} cannot be read: {error.strerror}"
        raise FarmError(f"{why}; make members in the folder of the authority, made by `gputune farm init`") from None
    except (ValueError, TypeError):
        raise FarmError(f"{own} is not a key; members are made with the key of the authority") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not _is_of(trusted, key):
        raise FarmError(f"{own} is not the key of {folder / AUTHORITY}; what it signs would not be trusted")
    _write(made.folder, {AUTHORITY: trusted, **_member(name, key)})
    return made


def _check_together(files: Certificates) -> None:
    """Raise FarmError for what TLS would refuse, which says less about it: what is no certificate or no key, what does
    not belong together, and what is not valid today."""
    _check_extra()
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    mend = "copy the three files from one folder that `gputune farm init` has made"
    certificates = []
    for path in (files.authority, files.member):
        try:
            certificates.append(x509.load_pem_x509_certificate(_content(path)))
        except ValueError:
            raise FarmError(f"{path} is no certificate; {mend}") from None
    authority, member = certificates
    try:
        key = load_pem_private_key(_content(files.key), None)
    except (ValueError, TypeError):  # TypeError: it has a password
        raise FarmError(f"{files.key} is no key, or has a password; {mend}") from None
    if key.public_key() != member.public_key():
        raise FarmError(f"{files.key} is not the key of {files.member}; {mend}")
    try:
        member.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise FarmError(f"{files.member} was not signed by the authority of {files.authority}; {mend}") from None
    now = datetime.datetime.now(datetime.UTC)
    for path, one in zip((files.authority, files.member), certificates, strict=True):
        first, last = one.not_valid_before_utc, one.not_valid_after_utc
        if not first <= now <= last:
            raise FarmError(
                f"{path} is valid from {first:%Y-%m-%d} to {last:%Y-%m-%d}, and this machine's clock says "
                f"{now:%Y-%m-%d}; set the clock, or make new certificates by `gputune farm init` in another folder"
            )


def _content(path: Path) -> bytes:
    """Return what is in a file. Raises FarmError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FarmError(f"{path} cannot be read: {error.strerror}") from None


def _check_extra() -> None:
    if find_spec("cryptography") is None:
        raise FarmError(f"certificates need the extra: {EXTRA}")


def _member(name: str, authority: EllipticCurvePrivateKey) -> dict[str, bytes]:
    """Return the two files of a member."""
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(f"gputune farm member {name}"[:64], key.public_key(), authority, authority=False)
    return {MEMBER: certificate, MEMBER_KEY: _plain(key)}


def _certificate(
    subject: str, key: EllipticCurvePublicKey, signer: EllipticCurvePrivateKey, *, authority: bool
) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name("gputune farm"), name(subject), key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=DAYS))
    constraints = x509.BasicConstraints(ca=authority, path_length=0 if authority else None)
    builder = builder.add_extension(constraints, critical=True)
    if not authority:
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    signed: bytes = builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM)
    return signed


def _plain(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    content: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return content


def _is_of(certificate: bytes, key: EllipticCurvePrivateKey) -> bool:
    """Return whether a certificate is that of a key."""
    from cryptography import x509

    try:
        return bool(x509.load_pem_x509_certificate(certificate).public_key() == key.public_key())
    except ValueError:
        return False


def _write(folder: Path, files: dict[str, bytes]) -> None:
    """Write files that only their owner can read: all or none, since half of them would be in the way of the next
    attempt. Raises FarmError."""
    made, new = list[Path](), not folder.exists()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in files.items():
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            made.append(folder / name)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
    except OSError as error:
        with suppress(OSError):
            for path in made:
                path.unlink()
            if new:
                folder.rmdir()
        raise FarmError(f"{error.filename or folder} cannot be written: {error.strerror}") from None

"""A certificate authority of one's own, and one certificate that all members of a farm prove themselves with."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from pathlib import Path

from gputune.client.farm.engine import FarmError
from gputune.core.ownership import untrusted

AUTHORITY, AUTHORITY_KEY = "authority.pem", "authority.key"
MEMBER, MEMBER_KEY = "member.pem", "member.key"
DAYS = 3650
EXTRA = "pip install 'gputune[farm]'"


@dataclass(frozen=True)
class Certificates:
    """Files of a folder: the authority's certificate, and a certificate that it has signed, with its key."""

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
        """Itself. Raises FarmError where a file is missing, or another user can read or change the key."""
        for path in (self.authority, self.member, self.key):
            if not path.is_file():
                raise FarmError(f"{path} is missing; `gputune farm init` makes it, on one machine for all of them")
        if self.key.stat().st_mode & 0o077:
            raise FarmError(f"{self.key} can be read by others; chmod 600 it")
        if why := untrusted(self.authority):
            raise FarmError(f"{self.authority} is not trusted: {why}")
        return self


def create(folder: Path) -> Certificates:
    """Makes authority and certificate. Raises FarmError where they are there already, or cannot be written."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError:
        raise FarmError(f"certificates need the extra: {EXTRA}") from None
    made = Certificates(folder)
    if made.authority.exists():
        raise FarmError(f"{made.authority} is there already; another authority would lock out who trusts this one")
    now = datetime.datetime.now(datetime.UTC)

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def certificate(
        subject: str, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey, ca: bool
    ) -> bytes:
        builder = x509.CertificateBuilder(name("gputune farm"), name(subject), key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=DAYS))
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
        if not ca:
            uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        signed: bytes = builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM)
        return signed

    authority, member = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    files = {
        AUTHORITY: certificate("gputune farm", authority, authority, True),
        MEMBER: certificate("gputune farm member", member, authority, False),
        AUTHORITY_KEY: authority.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        MEMBER_KEY: member.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    }
    _write(folder, files)
    return made


def _write(folder: Path, files: dict[str, bytes]) -> None:
    """Writes files that only their owner can read. Raises FarmError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in files.items():
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
    except OSError as error:
        raise FarmError(f"{error.filename or folder} cannot be written: {error.strerror}") from None

"""Decide which clients are let in: clients with the token and, over TLS, with a known certificate.

Only this module uses ssl.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Authentication:
    """Let in clients that know the token (None: all), and speak TLS when there is a context for it."""

    token: bytes | None = None
    tls: ssl.SSLContext | None = None


def server_context(certificate: Path, key: Path | None, authority: Path | None) -> ssl.SSLContext:
    """Return a context for servers, TLS 1.2 at least.

    certificate: PEM, with the chain; key: PEM, None when it is in the certificate's file; authority: clients must
    show a certificate that one of these (PEM) has signed. Raises ValueError with one line that names the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        files = f"{certificate} and {key}" if key else f"{certificate}"
        raise ValueError(f"{files} cannot be used as certificate and key: {_reason(error)}") from None
    if authority is not None:
        try:
            context.load_verify_locations(authority)
        except (OSError, ValueError) as error:
            raise ValueError(f"{authority} has no certificates to check clients with: {_reason(error)}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    # without this, OpenSSL asks on the terminal
    raise ValueError("the key is encrypted; give one without a password that only the server's user can read")


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).lower().replace("_", " ")

"""Hold what this side shows a target server and requires of it: the token, and TLS."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from gputune.client.errors import ConfigError
from gputune.server.protocol.authentication import read_token

TOKEN_VARIABLE = "GPUTUNE_TOKEN"


@dataclass(frozen=True)
class Credentials:
    """`token` is the secret that both sides must know; None for servers that have none. `tls` is how a connection
    is encrypted and whose certificate is believed; None is plain TCP. `options` names the options that were given,
    because one that does not apply is an error."""

    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    options: tuple[str, ...] = ()

    def completed(self, environment: Mapping[str, str], variable: str = TOKEN_VARIABLE) -> Credentials:
        """Return these with a variable's token where no other is known: for a server that runs already. Raises
        ConfigError."""
        text = environment.get(variable, "")
        if self.token is not None or not text.strip():
            return self
        return replace(self, token=_token(text, variable))


NONE = Credentials()


def read_credentials(
    environment: Mapping[str, str],
    token_file: Path | None = None,
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> Credentials:
    """Return what the options and GPUTUNE_TOKEN say; a token file comes before the variable. Raises ConfigError.

    tls_ca: certificates of the authorities that may have signed the server's; tls_cert and tls_key: this side's own.
    """
    options = {"--token_file": token_file, "--tls_ca": tls_ca, "--tls_cert": tls_cert, "--tls_key": tls_key}
    given = Credentials(
        None if token_file is None else _token(token_file, "--token_file"),
        _tls(tls_ca, tls_cert, tls_key),
        tuple(name for name, value in options.items() if value is not None),
    )
    return given.completed(environment)


def _token(source: Path | str, origin: str) -> str:
    try:
        return read_token(source).decode()
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}") from None


def _tls(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if (cert is None) != (key is None):
        raise ConfigError("--tls_cert and --tls_key belong together: give both or none")
    if ca is None:
        if cert is not None:
            raise ConfigError("--tls_cert needs --tls_ca: the certificate that the server's is checked against")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks the certificate and the name that it was made for
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with _reading(f"--tls_ca {ca}"):
        context.load_verify_locations(ca)
    if cert is not None:
        with _reading(f"--tls_cert {cert} with --tls_key {key}"):
            context.load_cert_chain(cert, key, password=lambda: "")  # never asks on the terminal
    return context


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        raise ConfigError(f"{what}: not in PEM form, encrypted, or not made for each other ({reason})") from None
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror or error}") from None

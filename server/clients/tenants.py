"""Name the tenant of a connection. The device and the slots of the admission are shared between tenants, not between
connections, so many connections bring no more than one."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv6Address, ip_address

THIS_MACHINE = "this machine"
_IPV6_NETWORK_BITS = 64  # what a network gives to one host, which may take any address in it


@lru_cache(maxsize=1024)  # a flood asks for the same one thousands of times a second
def address_of(host: str) -> str:
    """Return the tenant of a peer's address: addresses that one host can choose among are one, those of this machine
    too."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:  # gone before it could be asked
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return THIS_MACHINE
    if isinstance(address, IPv6Address):
        return str(IPv6Address(int(address) >> _IPV6_NETWORK_BITS << _IPV6_NETWORK_BITS))
    return str(address)


def tenant_of(host: str, certificate: bytes | None) -> str:
    """Return the tenant of a connection: its certificate (DER) where it has shown one, which was checked, or its
    address."""
    return address_of(host) if certificate is None else f"certificate {sha256(certificate).hexdigest()}"

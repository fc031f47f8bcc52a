"""Test the agent's BLAKE2b, HMAC, PBKDF2 and scrypt: vectors of their RFCs, and what Python's hashlib computes."""

import ctypes
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .library import library

pytestmark = pytest.mark.usefixtures("c_compiler")


def blake2b(data: bytes, digest_bytes: int, key: bytes = b"", first: int = 0) -> bytes:
    """Return the agent's digest of data in two pieces, of which one has `first` bytes."""
    digest = ctypes.create_string_buffer(digest_bytes)
    sizes = ctypes.c_size_t(first), ctypes.c_size_t(len(data))
    library().blake2b_of(data, *sizes, key, ctypes.c_size_t(len(key)), digest, ctypes.c_size_t(digest_bytes))
    return digest.raw


def hmac_sha256(data: bytes, key: bytes, first: int = 0) -> bytes:
    digest = ctypes.create_string_buffer(32)
    sizes = ctypes.c_size_t(first), ctypes.c_size_t(len(data))
    library().hmac_of(data, *sizes, key, ctypes.c_size_t(len(key)), digest)
    return digest.raw


def pbkdf2(password: bytes, salt: bytes, nbytes: int) -> bytes:
    key = ctypes.create_string_buffer(nbytes)
    sizes = ctypes.c_size_t(len(password)), ctypes.c_size_t(len(salt))
    library().pbkdf2(password, sizes[0], salt, sizes[1], key, ctypes.c_size_t(nbytes))
    return key.raw


def scrypt(password: bytes, salt: bytes) -> bytes | None:
    key = ctypes.create_string_buffer(32)
    sizes = ctypes.c_size_t(len(password)), ctypes.c_size_t(len(salt))
    return key.raw if library().scrypt(password, sizes[0], salt, sizes[1], key) else None


def numbers(count: int, seed: int) -> bytes:
    """Return the bytes of the self-test in appendix E of RFC 7693."""
    one, other, found = 0xDEAD4BAD * seed & 0xFFFFFFFF, 1, bytearray()
    for _ in range(count):
        one, other = other, (one + other) & 0xFFFFFFFF
        found.append(other >> 24)
    return bytes(found)


def test_blake2b_has_the_digests_of_rfc_7693() -> None:
    assert blake2b(b"abc", 64).hex() == (
        "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
        "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923"
    )
    text = b""
    for digest_bytes in (20, 32, 48, 64):
        for count in (0, 3, 128, 129, 255, 1024):
            data, key = numbers(count, count), numbers(digest_bytes, digest_bytes)
            text += blake2b(data, digest_bytes) + blake2b(data, digest_bytes, key)
    assert blake2b(text, 32).hex() == "c23a7800d98123bd10f506c61e29da5603d763b8bbad2e737f5e765a7bccd475"


@given(st.binary(max_size=700), st.binary(max_size=64), st.integers(1, 64), st.floats(0, 1))
def test_blake2b_is_that_of_hashlib(data: bytes, key: bytes, digest_bytes: int, cut: float) -> None:
    right = hashlib.blake2b(data, key=key, digest_size=digest_bytes).digest()
    assert blake2b(data, digest_bytes, key, int(cut * len(data))) == right


@pytest.mark.parametrize(
    ("key", "data", "digest"),
    [
        (b"\x0b" * 20, b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        (b"\xaa" * 131, b"Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"),
    ],
)  # fmt: skip
def test_hmac_has_the_digests_of_rfc_4231(key: bytes, data: bytes, digest: str) -> None:
    assert hmac_sha256(data, key).hex() == digest


@given(st.binary(max_size=300), st.binary(max_size=150), st.floats(0, 1))
def test_hmac_is_that_of_python(data: bytes, key: bytes, cut: float) -> None:
    assert hmac_sha256(data, key, int(cut * len(data))) == hmac.digest(key, data, "sha256")


def test_hmac_expands_keys_as_in_rfc_5869() -> None:
    stretched = bytes.fromhex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")
    key = hmac_sha256(bytes.fromhex("f0f1f2f3f4f5f6f7f8f9") + b"\x01", stretched)
    assert key.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"


def test_pbkdf2_has_the_key_of_rfc_7914() -> None:
    assert pbkdf2(b"passwd", b"salt", 64).hex() == (
        "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc"
        "49ca9cccf179b645991664b39d77ef317c71b845b1e30bd509112041d3a19783"
    )


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_pbkdf2_is_that_of_hashlib(password: bytes, salt: bytes) -> None:
    assert pbkdf2(password, salt, 1024) == hashlib.pbkdf2_hmac("sha256", password, salt, 1, 1024)


def test_scrypt_has_the_key_of_rfc_7914() -> None:
    found = scrypt(b"pleaseletmein", b"SodiumChloride")
    assert found is not None
    assert found.hex() == "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"


@pytest.mark.parametrize(("password", "salt"), [(b"0123456789abcdef", b"5" * 32), (bytes(range(200)), b"")])
def test_scrypt_is_that_of_hashlib(password: bytes, salt: bytes) -> None:
    right = hashlib.scrypt(password, salt=salt, n=1 << 14, r=8, p=1, maxmem=32 << 20, dklen=32)
    assert scrypt(password, salt) == right


def test_scrypt_without_memory_says_so() -> None:
    before = library().asked_bytes()
    library().refuse_memory(True)
    try:
        assert scrypt(b"password", b"salt") is None
    finally:
        library().refuse_memory(False)
    assert library().asked_bytes() - before == 16 << 20
    assert scrypt(b"password", b"salt") is not None and library().pieces() == 0


@pytest.mark.parametrize("bit", range(0, 128, 5))
def test_macs_are_compared_to_the_last_bit(bit: int) -> None:
    one = bytes(range(16))
    other = (int.from_bytes(one, "little") ^ 1 << bit).to_bytes(16, "little")
    assert library().same_mac(one, bytes(one)) and not library().same_mac(one, other)

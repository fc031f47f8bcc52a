"""Test that slots of the admission are shared evenly between addresses, and that one host has one address."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gputune.server.clients.slots import Slots
from gputune.server.clients.tenants import THIS_MACHINE, address_of, tenant_of


@given(st.integers(1, 8), st.lists(st.sampled_from("abcd")), st.data())
def test_an_address_within_its_share_loses_no_place(at_most: int, addresses: list[str], data: st.DataObject) -> None:
    slots: Slots[int] = Slots(at_most)
    there: dict[int, str] = {}
    for number, address in enumerate(addresses):
        there[number] = address
        gone = slots.take(number, address)
        counts = Counter(there.values())
        assert (gone is not None) == (len(there) > at_most)
        if gone is not None:
            crowd = there.pop(gone)
            assert counts[crowd] > at_most // len(counts)
            assert gone < min((other for other, where in there.items() if where == crowd), default=number + 1)
        left = data.draw(st.sampled_from([-1, *there]))
        if left in there:
            del there[left]
            slots.leave(left)
            slots.leave(left)
        assert list(slots) == list(there)
        assert len(slots) == len(there) <= at_most


def test_addresses_that_one_host_can_choose_among_are_one() -> None:
    assert {address_of(host) for host in ("127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1")} == {THIS_MACHINE}
    assert address_of("2001:db8::1") == address_of("2001:db8::ffff:1") != address_of("2001:db8:0:1::1")
    assert address_of("fe80::1%eth0") == address_of("fe80::2%eth0")
    assert address_of("192.168.1.20") == address_of("::ffff:192.168.1.20") != address_of("192.168.1.21")
    assert address_of("somewhere") == "somewhere"


def test_a_certificate_is_a_party_wherever_it_comes_from() -> None:
    assert tenant_of("10.0.0.1", b"one") == tenant_of("10.0.0.2", b"one") != tenant_of("10.0.0.1", b"two")
    assert tenant_of("10.0.0.1", None) == address_of("10.0.0.1")

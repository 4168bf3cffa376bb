"""Address ranges: one spelling and no host bits, as in the API server."""

from __future__ import annotations

import pytest

from kubeletpy_up.schema.formats import cidr, ip_address

INVALID = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
ZEROS = "must not have leading 0s in IP or prefix length"
MAPPED = "must not have an IPv4-mapped IPv6 address"
BITS = "must not have bits set beyond the prefix length"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("10.9.8.0/24", ""),
        ("0.0.0.0/0", ""),
        ("10.9.8.7/32", ""),
        ("2001:db8::/64", ""),
        ("2001:db8:0:0::/64", ""),
        ("::/0", ""),
        ("", INVALID),
        ("/", INVALID),
        ("10.9.8.7", INVALID),
        ("10.9.8.0/", INVALID),
        ("/24", INVALID),
        ("10.9.8.0/33", INVALID),
        ("2001:db8::/129", INVALID),
        ("10.9.8.0/-1", INVALID),
        ("10.9.8.0/+24", INVALID),
        ("10.9.8.0/ 24", INVALID),
        ("10.9.8.0/2_4", INVALID),
        ("10.9.8.0/\u0662\u0664", INVALID),
        ("10.9.8.0/24/24", INVALID),
        ("10.9.8.0/255.255.255.0", INVALID),
        ("10.9.8/24", INVALID),
        ("999.9.9.0/24", INVALID),
        ("fe80::%eth0/64", INVALID),
        (" 10.9.8.0/24", INVALID),
        ("010.9.8.0/24", ZEROS),
        ("10.9.08.0/24", ZEROS),
        ("10.9.8.0/024", ZEROS),
        ("0.0.0.0/00", ZEROS),
        ("::ffff:10.9.8.0/120", MAPPED),
        ("10.9.8.7/24", BITS),
        ("2001:db8::1/64", BITS),
    ],
)
def test_ranges(value: str, problem: str) -> None:
    assert cidr(value) == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ("10.9.8.7", True),
        ("2001:db8::ffff", True),
        ("::", True),
        ("", False),
        ("10.9.8", False),
        ("10.9.8.256", False),
        ("10.9.8.07", False),
        ("0x0a.9.8.7", False),
        ("168364039", False),
        ("\u0661.2.3.4", False),
        ("10.9.8.7/32", False),
        ("::ffff:10.9.8.7", False),
        ("fe80::1%eth0", False),
        ("[::1]", False),
        ("10.9.8.7\n", False),
    ],
)
def test_addresses(value: str, fits: bool) -> None:
    assert (ip_address(value) == []) is fits

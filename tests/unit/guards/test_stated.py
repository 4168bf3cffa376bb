"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED: dict[str, object] = {
    "guards/chains LOCK_WAIT_S": 5,
    "guards/chains PROGRAMS": {4: "iptables", 6: "ip6tables"},
    "guards/kernel_log MAX_NAME": 64,
    "guards/kernel_settings WANTED": {
        "vm.overcommit_memory": 1,
        "vm.panic_on_oom": 0,
        "kernel.panic": 10,
        "kernel.panic_on_oops": 1,
        "kernel.keys.root_maxkeys": 1_000_000,
        "kernel.keys.root_maxbytes": 25_000_000,
    },
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: object) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

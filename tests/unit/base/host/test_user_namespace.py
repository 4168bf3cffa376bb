"""Detection of a user namespace from /proc/self/uid_map."""

from __future__ import annotations

import pytest

from kubeletpy.base.host.mount_table import in_user_namespace


@pytest.mark.parametrize(
    ("uid_map", "inside"),
    [
        ("         0          0 4294967295\n", False),
        (None, False),
        ("", True),
        ("\n", True),
        ("         0     100000      65536\n", True),
        ("0 0 1\n1 100000 65536\n", True),
        ("0 0 4294967295 more\n", False),
        ("1 0 4294967295\n", True),
        ("0 0\n", False),
        ("not a map\n", False),
        ("0 0 " + "9" * 5000, True),
    ],
)
def test_only_the_identity_map_is_the_initial_namespace(uid_map: str | None, inside: bool) -> None:
    assert in_user_namespace(uid_map) is inside

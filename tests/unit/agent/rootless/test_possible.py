"""Decisions about a node of a login user, in tables."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.agent.rootless.possible import (
    Facts,
    IdRange,
    NetworkKind,
    Row,
    id_map,
    make_plan,
    packages_to_fetch,
    parse_profile,
    parse_subordinate,
    refusal,
    render,
)
from kubeletpy.base.structs import replace

PROGRAMS = {
    name: f"/usr/bin/{name}"
    for name in ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge")
}
IDS = (IdRange(100000, 65536), IdRange(200000, 65536))
BARE = Facts("ann", 1000, "/home/ann/.local/share/kubeletpy", programs=PROGRAMS, overlay=True)
FULL = replace(
    BARE,
    ids=IDS,
    maps_ids=True,
    tun=True,
    masquerade="iptables",
    programs={**PROGRAMS, "pasta": "/usr/bin/pasta"},
    cgroup_v2=True,
    controllers=("cpu", "memory", "pids"),
)


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({}, ()),
        ({"uid": 0}, ("without --rootless",)),
        ({"state_error": "Read-only file system"}, ("Read-only file system", "--state-dir DIR")),
        ({"state": "/home/" + "a" * 80}, ("66 bytes", "--state-dir DIR")),
        ({"architecture": "riscv64"}, ("riscv64", "apt-get install uidmap && usermod")),
        ({"architecture": "riscv64", "ids": IDS, "maps_ids": True}, ()),
        (
            {"refused": "user namespaces", "switches": {"user.max_user_namespaces": "0"}},
            ("user.max_user_namespaces=0", "sysctl -w user.max_user_namespaces=15000"),
        ),
        (
            {"refused": "x", "switches": {"kernel.unprivileged_userns_clone": "0"}},
            ("sysctl -w kernel.unprivileged_userns_clone=1",),
        ),
        (
            {"refused": "x", "switches": {"kernel.apparmor_restrict_unprivileged_userns": "1"}},
            ("sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",),
        ),
        (
            {"refused": "user namespaces (Permission denied)", "profile": "lab"},
            (
                "user namespaces (Permission denied)",
                "profile lab;",
                "`userns,`",
                "systemctl reload apparmor",
            ),
        ),
        (
            {"refused": "x", "profile": "lab", "switches": {"user.max_user_namespaces": "0"}},
            ("sysctl -w user.max_user_namespaces=15000",),
        ),
        (
            {
                "refused": "x",
                "profile": "lab",
                "switches": {"kernel.apparmor_restrict_unprivileged_userns": "1"},
            },
            ("profile lab;",),
        ),
        ({"refused": "mounts (EPERM)", "switches": {"user.max_user_namespaces": "9"}}, ("EPERM",)),
        ({"programs": {}}, ("apt-get install runc",)),
        ({"programs": {"crun": "/usr/bin/crun"}}, ("apt-get install runc",)),
        (
            {"programs": {"crun": "/usr/bin/crun"}, "cgroup_v2": True},
            ("apt-get install containerd",),
        ),
    ],
)
def test_a_refusal_is_one_sentence_with_the_remedy(
    changes: dict[str, Any], texts: tuple[str, ...]
) -> None:
    found = refusal(replace(BARE, **changes))
    assert bool(found) == bool(texts)
    assert all(text in found for text in texts), found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("label", "profile"),
    [
        ("lab (enforce)", "lab"),
        ("/usr/bin/a program//child (enforce)", "/usr/bin/a program//child"),
        ("lab (complain)", ""),
        ("lab (unconfined)", ""),
        ("unconfined", ""),
        ("", ""),
    ],
)
def test_only_an_enforced_profile_confines(label: str, profile: str) -> None:
    assert parse_profile(label) == profile


@pytest.mark.parametrize(
    ("facts", "subjects"),
    [
        (BARE, {"limits", "users and groups", "pod network"}),
        (replace(BARE, overlay=False), {"limits", "users and groups", "pod network",
                                        "image layers"}),
        (replace(FULL, ids=None), {"users and groups", "host ports"}),
        (replace(FULL, maps_ids=False), {"users and groups", "host ports"}),
        (replace(FULL, ids=(IDS[0], IdRange(1, 10))), {"users and groups", "host ports"}),
        (replace(FULL, controllers=("memory", "pids")), {"limits", "host ports"}),
        (replace(FULL, masquerade=""), {"host ports", "pods to outside"}),
        (replace(FULL, tun=False), {"pod network"}),
        (FULL, {"host ports"}),
    ],
)  # fmt: skip
def test_the_table_has_what_is_not_enforced_here(facts: Facts, subjects: set[str]) -> None:
    always = {"devices and disks", "protection", "life"}
    plan = make_plan(facts)
    assert {row.subject for row in plan.rows} == subjects | always
    assert [each.value for each in plan.notices] == [row.subject for row in plan.rows]
    assert all(row.consequence and row.remedy for row in plan.rows)


def test_the_most_that_is_possible_is_used() -> None:
    full = make_plan(FULL)
    assert (full.network, full.ids, full.limits) == (NetworkKind.PASTA, IDS, True)
    assert full.snapshotter == "overlayfs"
    bare = make_plan(BARE)
    assert (bare.network, bare.ids, bare.limits) == (NetworkKind.LOGIN, None, False)
    slirp = replace(FULL, programs={**PROGRAMS, "slirp4netns": "/usr/bin/slirp4netns"})
    assert make_plan(slirp).network is NetworkKind.SLIRP
    assert make_plan(replace(BARE, overlay=False)).snapshotter == "native"


@pytest.mark.parametrize(
    ("facts", "remedy"),
    [
        (BARE, "boot with systemd.unified_cgroup_hierarchy=1"),
        (replace(BARE, cgroup_v2=True), "loginctl enable-linger ann"),
        (replace(BARE, cgroup_v2=True, controllers=("memory",)), "delegate.conf"),
    ],
)
def test_limits_name_what_would_enable_them(facts: Facts, remedy: str) -> None:
    (row,) = (row for row in make_plan(facts).rows if row.subject == "limits")
    assert remedy in row.remedy


@pytest.mark.parametrize(
    ("ids", "maps", "remedy"),
    [
        (None, False, "apt-get install uidmap && usermod --add-subuids"),
        (None, True, "as root: usermod --add-subuids"),
        (IDS, False, "as root: apt-get install uidmap"),
    ],
)
def test_ids_name_only_the_missing_steps(
    ids: tuple[IdRange, IdRange] | None, maps: bool, remedy: str
) -> None:
    facts = replace(BARE, ids=ids, maps_ids=maps)
    (row,) = (row for row in make_plan(facts).rows if row.subject == "users and groups")
    assert row.remedy.startswith(remedy) or f"as root: {remedy}" in row.remedy
    assert ("usermod" in row.remedy) == (ids is None)


def test_a_row_is_a_line() -> None:
    lines = render([Row("limits", "are not enforced", "boot")]).splitlines()
    assert lines[1] == "  limits        are not enforced  [boot]"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ann:100000:65536", IdRange(100000, 65536)),
        ("bob:1:2\n1000:5:6\nann:7:8", IdRange(7, 8)),
        ("ann:x:65536\nann:1\n\n# ann:1:2", None),
        ("", None),
    ],
)
def test_the_largest_range_of_a_user_counts(text: str, found: IdRange | None) -> None:
    assert parse_subordinate(text, "ann", 1000) == found


def test_a_map_begins_with_the_user() -> None:
    assert id_map(1000, None) == [0, 1000, 1]
    assert id_map(1000, IdRange(100000, 65536)) == [0, 1000, 1, 1, 100000, 65536]


PACKAGES = {"containerd": "containerd", "runc": "runc", "pasta": "passt", "bridge": "cni"}


@pytest.mark.parametrize(
    ("programs", "tun", "packages"),
    [
        ((), True, ["cni", "containerd", "passt", "runc"]),
        ((), False, ["containerd", "runc"]),
        (("containerd", "crun", "slirp4netns"), True, ["cni"]),
        (("containerd", "runc", "pasta", "bridge"), True, []),
    ],
)
def test_only_programs_of_use_are_fetched(
    programs: tuple[str, ...], tun: bool, packages: list[str]
) -> None:
    facts = replace(BARE, programs=dict.fromkeys(programs, "/x"), tun=tun, cgroup_v2=True)
    assert packages_to_fetch(facts, PACKAGES) == packages

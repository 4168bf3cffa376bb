"""Evidence of the cgroup driver that a runtime uses."""

from __future__ import annotations

import pytest

from kubeletpy.resources.cgroups.driver_mismatch import (
    is_placed,
    left_outside,
    left_running,
    mismatch,
    used_by_error,
    used_elsewhere,
)
from kubeletpy.resources.cgroups.values import CgroupDriver, PodCgroupNames, parse_root

CGROUPFS, SYSTEMD = CgroupDriver.CGROUPFS, CgroupDriver.SYSTEMD
ID = "0af3" * 16
OTHER = "1" * 64
PATH = "/kubepods/burstable/poda-b"
SLICE = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice"
LEAF = "kubepods-burstable-poda_b.slice"


@pytest.mark.parametrize(
    ("children", "placed"),
    [
        ((ID,), True),
        ((OTHER, ID), True),
        ((f"cri-containerd-{ID}.scope",), True),
        ((f"crio-{ID}.scope",), True),
        ((f"crio-{ID}",), True),
        ((f"{ID}.scope",), True),
        ((), False),
        ((OTHER,), False),
        ((f"{LEAF}:cri-containerd:{ID}",), False),
        ((f"x{ID}",), False),
        ((f"{ID}x",), False),
    ],
)
def test_a_child_of_the_pods_cgroup_that_names_the_sandbox(
    children: tuple[str, ...], placed: bool
) -> None:
    assert is_placed(ID, children) is placed


def test_an_empty_id_is_nowhere() -> None:
    assert not is_placed("", ("", "a-", "b"))
    assert used_elsewhere(SYSTEMD, "", SLICE, f"{LEAF}:cri-containerd:") is None
    assert used_elsewhere(CGROUPFS, "", PATH, "cri-containerd-.scope") is None


@pytest.mark.parametrize(
    ("expected", "parent", "name", "used"),
    [
        (SYSTEMD, SLICE, f"{LEAF}:cri-containerd:{ID}", CGROUPFS),
        (SYSTEMD, SLICE, f"{LEAF}:crio:{ID}", CGROUPFS),
        (SYSTEMD, SLICE, f"{LEAF}:cri-containerd:{OTHER}", None),
        (SYSTEMD, SLICE, f"other.slice:cri-containerd:{ID}", None),
        (SYSTEMD, SLICE, f"a:{LEAF}:cri-containerd:{ID}", None),
        (SYSTEMD, SLICE, f"{LEAF}:{ID}", None),
        (SYSTEMD, "/plain", f"plain:cri-containerd:{ID}", None),
        # a sandboxed runtime's own directory, and one of its virtual machine
        (SYSTEMD, SLICE, ID, None),
        (SYSTEMD, SLICE, f"kata_{ID}", None),
        (SYSTEMD, SLICE, f"cri-containerd-{ID}.scope", None),
        (CGROUPFS, PATH, f"cri-containerd-{ID}.scope", SYSTEMD),
        (CGROUPFS, PATH, f"crio-{ID}.scope", SYSTEMD),
        (CGROUPFS, PATH, f"cri-containerd-{OTHER}.scope", None),
        (CGROUPFS, PATH, f"cri-containerd-{ID}", None),
        (CGROUPFS, PATH, f"-{ID}.scope", None),
        (CGROUPFS, PATH, f"{ID}.scope", None),
        (CGROUPFS, PATH, ID, None),
        (CGROUPFS, PATH, f"kata_{ID}", None),
        (CGROUPFS, PATH, f"{LEAF}:cri-containerd:{ID}", None),
    ],
)
def test_a_cgroup_elsewhere_counts_only_in_the_other_drivers_form(
    expected: CgroupDriver, parent: str, name: str, used: CgroupDriver | None
) -> None:
    assert used_elsewhere(expected, ID, parent, name) is used


RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
    'create failed: expected cgroupsPath to be of format "slice:prefix:name" for systemd cgroups, '
    'got "{}" instead: unknown'
)
CRIO = "cri-o configured with systemd cgroup manager, but did not receive slice as parent: {}"
CRIO_PLAIN = (
    "cri-o configured with cgroupfs cgroup manager, but received systemd slice as parent: {}"
)


@pytest.mark.parametrize(
    ("expected", "parent", "error", "used"),
    [
        (CGROUPFS, PATH, RUNC.format(f"{PATH}/{ID}"), SYSTEMD),
        (CGROUPFS, PATH, RUNC.replace('"', '\\"').format(f"{PATH}/{ID}"), SYSTEMD),
        (CGROUPFS, PATH, CRIO.format(PATH), SYSTEMD),
        (SYSTEMD, SLICE, CRIO_PLAIN.format(SLICE), CGROUPFS),
        # of a pod without a parent, of another pod, and one that a spec could have forged
        (CGROUPFS, PATH, RUNC.format(f"/k8s.io/{ID}"), None),
        (CGROUPFS, PATH, RUNC.format(f"/kubepods/burstable/podc/{ID}"), None),
        (CGROUPFS, PATH, f"no profile {RUNC.format('/kubepods/x')}", None),
        (CGROUPFS, PATH, f"no directory {PATH}/{ID}", None),
        (CGROUPFS, PATH, CRIO_PLAIN.format(PATH), None),
        (SYSTEMD, SLICE, CRIO.format(SLICE), None),
        (SYSTEMD, SLICE, RUNC.format(f"{SLICE}/{ID}"), None),
        (CGROUPFS, PATH, "", None),
    ],
)
def test_an_error_counts_only_with_the_pods_own_cgroup(
    expected: CgroupDriver, parent: str, error: str, used: CgroupDriver | None
) -> None:
    assert used_by_error(expected, parent, error) is used


@pytest.mark.parametrize("driver", CgroupDriver)
@pytest.mark.parametrize(
    ("root", "name", "uid"),
    [
        ("/", f"kubepods-burstable-poda_b.slice:cri-containerd:{ID}", "a-b"),
        ("/", f"kubepods-poda_b.slice:crio:{ID}", "a-b"),
        ("/n", f"n-kubepods-besteffort-poda_b.slice:cri-containerd:{ID}", "a-b"),
        ("/n", f"kubepods-besteffort-poda_b.slice:cri-containerd:{ID}", None),
        ("/", f"kubepods-burstable.slice:cri-containerd:{ID}", None),
        ("/", f"kubepods-burstable-poda_b:cri-containerd:{ID}", None),
        ("/", "kubepods-burstable-poda_b.slice", None),
        ("/", "kubepods-burstable-poda_b.slice:a", None),
        ("/", "kubepods-burstable-poda_b.slice:a:b:c", None),
        ("/", f"docker-poda_b.slice:cri-containerd:{ID}", None),
        ("/", "", None),
    ],
)
def test_a_cgroup_left_outside_has_the_name_of_a_pods_slice(
    driver: CgroupDriver, root: str, name: str, uid: str | None
) -> None:
    assert left_outside(PodCgroupNames(driver, parse_root(root)), name) == uid


def test_pods_left_outside_are_named() -> None:
    assert left_running([], "/kubepods.slice") == ""
    assert left_running(["a/b"], "/kubepods.slice") == (
        "cgroup driver mismatch: containers of a/b run outside /kubepods.slice, where a container "
        "runtime with another cgroup driver put them, so the limits of their pods do not hold: "
        "delete these pods"
    )
    assert " of a, b, c run " in left_running(["a", "b", "c"], "/kubepods")
    assert " of a, b, c and 2 more run " in left_running(["a", "b", "c", "d", "e"], "/kubepods")


@pytest.mark.parametrize(
    ("agent", "used", "runtime", "reported", "text"),
    [
        (
            *(SYSTEMD, CGROUPFS, "containerd", False),
            "cgroup driver mismatch: the container runtime uses cgroupfs, but the agent's "
            'configuration has cgroupDriver systemd: set "cgroupDriver: cgroupfs" there, or '
            '"SystemdCgroup = true" in containerd\'s configuration (options of runtime runc)',
        ),
        (
            *(CGROUPFS, SYSTEMD, "containerd", False),
            "cgroup driver mismatch: the container runtime uses systemd, but the agent's "
            'configuration has cgroupDriver cgroupfs: set "cgroupDriver: systemd" there, or '
            '"SystemdCgroup = false" in containerd\'s configuration (options of runtime runc)',
        ),
        (
            *(CGROUPFS, SYSTEMD, "cri-o", False),
            "cgroup driver mismatch: the container runtime uses systemd, but the agent's "
            'configuration has cgroupDriver cgroupfs: set "cgroupDriver: systemd" there, or '
            "\"cgroup_manager = 'cgroupfs'\" in CRI-O's configuration",
        ),
        (
            *(SYSTEMD, CGROUPFS, "other", True),
            "cgroup driver mismatch: the container runtime uses cgroupfs, but the agent uses "
            "systemd, which the runtime reported when the agent started: restart the agent, or "
            "set the cgroup driver systemd in the runtime's configuration",
        ),
    ],
)
def test_the_message_of_a_mismatch(
    agent: CgroupDriver, used: CgroupDriver, runtime: str, reported: bool, text: str
) -> None:
    assert mismatch(agent, used, runtime, reported=reported) == text

"""Limits on cgroup v2, with either cgroup driver: the kernel's files have the spec's limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubeletpy.base.api.types import JSON
from tests.nodes.node import VirtualNode, container, pod

MIB = 1 << 20
DRIVERS = ("systemd", pytest.param("cgroupfs", marks=pytest.mark.long))
PIDS = 60
PARENTS = {
    "systemd": {
        "guaranteed": "kubepods.slice/kubepods-pod",
        "burstable": "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod",
        "besteffort": "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod",
    },
    "cgroupfs": {
        "guaranteed": "kubepods/pod",
        "burstable": "kubepods/burstable/pod",
        "besteffort": "kubepods/besteffort/pod",
    },
}
SOME = {"cpu": "100m", "memory": "32Mi"}


@pytest.fixture(scope="module", params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    """Which one containerd and the agent have."""
    return str(request.param)


@pytest.fixture
def node(node: VirtualNode, driver: str) -> Iterator[VirtualNode]:
    """A node on that driver."""
    node.configure(driver, podPidsLimit=PIDS)
    yield node


def pods_of_all_classes() -> list[JSON]:
    """One pod of each class of service."""
    return [
        pod("guaranteed", container(limits=SOME, requests=SOME)),
        pod(
            "burstable",
            container(
                requests={"cpu": "50m", "memory": "24Mi"}, limits={"cpu": "300m", "memory": "96Mi"}
            ),
        ),
        pod("besteffort"),
    ]


def expected(node: VirtualNode, driver: str) -> dict[str, dict[str, str]]:
    """Cgroup -> file -> value for those pods.

    cpu.weight is 1 + (shares - 2) * 9999 / 262142 for a container (runc), and for the agent's own.
    """
    pods = node.pods()
    suffix = ".slice" if driver == "systemd" else ""
    top, between = f"kubepods{suffix}", "kubepods-" if driver == "systemd" else ""
    kernel = int(node.shell("awk '/MemTotal/ {print $2}' /proc/meminfo")) << 10
    pids = str(PIDS)
    return {
        top: {"memory.max": str(kernel - 256 * MIB), "cpu.max": "max 100000"},
        f"{top}/{between}burstable{suffix}": {"memory.max": "max", "cpu.max": "max 100000"},
        f"{top}/{between}besteffort{suffix}": {"cpu.weight": "1", "memory.max": "max"},
        node.group_of(pods["guaranteed"]): {
            "memory.max": str(32 * MIB),
            "cpu.max": "10000 100000",
            "pids.max": pids,
        },
        node.container_group(pods["guaranteed"]): {
            "memory.max": str(32 * MIB),
            "cpu.max": "10000 100000",
        },
        node.group_of(pods["burstable"]): {
            "memory.max": str(96 * MIB),
            "cpu.max": "30000 100000",
            "pids.max": pids,
        },
        node.container_group(pods["burstable"]): {
            "memory.max": str(96 * MIB),
            "cpu.max": "30000 100000",
        },
        node.group_of(pods["besteffort"]): {
            "memory.max": "max",
            "cpu.max": "max 100000",
            "cpu.weight": "1",
            "pids.max": pids,
        },
        node.container_group(pods["besteffort"]): {"memory.max": "max", "cpu.weight": "1"},
    }


def read(node: VirtualNode, desired: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Values of the kernel's files, by cgroup."""
    return {group: node.kernel(group, *files) for group, files in desired.items()}


def test_containers_sit_below_their_pods_and_nothing_is_left(
    node: VirtualNode, driver: str
) -> None:
    pods = pods_of_all_classes()
    node.run_pods(*pods)
    found = node.pods()
    groups = {name: node.group_of(item) for name, item in found.items()}
    for name, group in groups.items():
        assert group.startswith(PARENTS[driver][name])
        assert node.container_group(found[name]).startswith(f"{group}/")
    node.remove_pods()
    uids = [item["metadata"]["uid"] for item in found.values()]
    for uid in uids:
        node.until(f"! find /sys/fs/cgroup | grep -e {uid} -e {uid.replace('-', '_')}")
    assert "pod" not in node.shell(
        "systemctl list-units --all --plain --no-legend 'kubepods*pod*' 'cri-containerd*'"
    )


def test_limits_are_in_the_kernel_and_stay_there(node: VirtualNode, driver: str) -> None:
    node.run_pods(*pods_of_all_classes())
    desired = expected(node, driver)
    assert read(node, desired) == desired
    node.shell("systemctl daemon-reload")
    assert read(node, desired) == desired
    # systemd realises the slices above a new unit
    slices = ("kubepods.slice", "kubepods-burstable.slice", "kubepods-besteffort.slice")
    for each in slices if driver == "systemd" else ():
        node.shell(f"systemd-run --quiet --wait --slice={each} true")
    assert read(node, desired) == desired
    # longer than the agent's interval for checking its own cgroups
    node.shell("sleep 61")
    assert read(node, desired) == desired


def test_a_resize_reaches_the_kernel_in_both_directions(node: VirtualNode) -> None:
    node.run_pods(pod("sized", container(limits=SOME, requests=SOME)))
    before = node.get("pod", "sized")
    groups = (node.group_of(before), node.container_group(before))
    for cpu, memory, quota in (("250m", 80, "25000 100000"), ("50m", 40, "5000 100000")):
        amounts = f'{{"cpu": "{cpu}", "memory": "{memory}Mi"}}'
        resources = f'{{"limits": {amounts}, "requests": {amounts}}}'
        patch = f'{{"spec": {{"containers": [{{"name": "main", "resources": {resources}}}]}}}}'
        node.kubectl("patch", "pod", "sized", "--subresource=resize", "--patch", patch)
        for group in groups:
            directory = f"/sys/fs/cgroup/{group}"
            node.until(
                f'[ "$(cat {directory}/memory.max)" = {memory * MIB} ]'
                f' && [ "$(cat {directory}/cpu.max)" = "{quota}" ]',
                say=f"cat {directory}/memory.max {directory}/cpu.max",
            )
    node.shell("systemctl daemon-reload")
    for group in groups:
        assert node.kernel(group, "memory.max", "cpu.max") == {
            "memory.max": str(40 * MIB),
            "cpu.max": "5000 100000",
        }
    after = node.get("pod", "sized")["status"]["containerStatuses"][0]
    assert after["containerID"] == before["status"]["containerStatuses"][0]["containerID"]
    assert after["restartCount"] == 0


def test_resources_of_a_pod_bound_all_its_containers(node: VirtualNode) -> None:
    amounts = {"limits": {"cpu": "200m", "memory": "64Mi"}, "requests": SOME}
    node.run_pods(pod("shared", container("a"), container("b"), resources=amounts))
    shared = node.get("pod", "shared")
    assert node.kernel(node.group_of(shared), "memory.max", "cpu.max") == {
        "memory.max": str(64 * MIB),
        "cpu.max": "20000 100000",
    }
    assert shared["status"]["qosClass"] == "Burstable"


def test_processes_of_a_pod_are_bounded(node: VirtualNode) -> None:
    # the shell that cannot fork ends, and its parent becomes one of the processes that sleep
    script = f"(for i in $(seq {PIDS + 20}); do sleep 1000 & done); exec sleep 1000"
    node.run_pods(pod("forks", container(script=script)))
    group = node.group_of(node.get("pod", "forks"))
    # Linux before 6.11 counts the event where the process is, and later where the limit is
    node.until(
        f'cat /sys/fs/cgroup/{group}{{,/*}}/pids.events | grep -q "max [1-9]"',
        say=f"cat /sys/fs/cgroup/{group}/pids.* /sys/fs/cgroup/{group}/*/pids.*",
    )
    assert int(node.kernel(group, "pids.current")["pids.current"]) <= PIDS


def test_memory_quality_of_service_is_in_the_kernel(node: VirtualNode, driver: str) -> None:
    node.configure(driver, memoryThrottlingFactor=0.75, memoryReservationPolicy="TieredReservation")
    node.run_pods(*pods_of_all_classes())
    pods = node.pods()
    files = ("memory.min", "memory.low", "memory.high")
    desired = {
        node.group_of(pods["guaranteed"]): (32 * MIB, 0, "max"),
        node.container_group(pods["guaranteed"]): (32 * MIB, 0, "max"),
        node.group_of(pods["burstable"]): (0, 24 * MIB, "max"),
        node.container_group(pods["burstable"]): (0, 24 * MIB, (24 + 54) * MIB),
        node.group_of(pods["besteffort"]): (0, 0, "max"),
    }
    spelled = {
        group: dict(zip(files, map(str, values), strict=True)) for group, values in desired.items()
    }
    assert read(node, spelled) == spelled
    node.shell("systemctl daemon-reload")
    assert read(node, spelled) == spelled


def test_a_reserved_slice_is_limited(node: VirtualNode, driver: str) -> None:
    node.shell("systemd-run --quiet --slice=reserved.slice --unit=lab-reserved sleep infinity")
    try:
        node.configure(
            driver,
            enforceNodeAllocatable=["pods", "kube-reserved"],
            kubeReserved={"memory": "200Mi", "cpu": "100m"},
            kubeReservedCgroup="/reserved.slice",
        )
        directory = "/sys/fs/cgroup/reserved.slice"
        node.until(
            f'[ "$(cat {directory}/memory.max)" = {200 * MIB} ]',
            say=f"cat {directory}/memory.max; journalctl -u kubeletpy -n 20",
        )
        node.shell("systemctl daemon-reload")
        assert node.kernel("reserved.slice", "memory.max") == {"memory.max": str(200 * MIB)}
        total = int(node.shell("awk '/MemTotal/ {print $2}' /proc/meminfo")) << 10
        top = "kubepods.slice" if driver == "systemd" else "kubepods"
        assert node.kernel(top, "memory.max") == {"memory.max": str(total - 456 * MIB)}
    finally:
        node.shell("systemctl stop lab-reserved")

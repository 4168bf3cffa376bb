"""CPUs of a container's own, on a real containerd: where the kernel lets its processes run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial

import grpc
import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.remote.generated import podresources_pb2 as pb
from tests.integration.lifecycle.command import run
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status, status
from tools.env import kernel_limits as kernel

ONE_CPU = {"limits": {"cpu": "1", "memory": "32Mi"}}


pytestmark = pytest.mark.needs("two processors", "cpuset")


@pytest.fixture(autouse=True)
def two_cpus() -> None:
    """The numbers below are of such a machine, of which CPU 0 is kept from containers."""
    assert os.cpu_count() == 2, "written for two CPUs"


def pod_resources(node: Node) -> Sequence[pb.PodResources]:
    """List of the pod resources API."""
    with grpc.insecure_channel(f"unix:{node.root_dir}/pod-resources/kubelet.sock") as channel:
        call = channel.unary_unary(
            "/v1.PodResourcesLister/List",
            request_serializer=pb.ListPodResourcesRequest.SerializeToString,
            response_deserializer=pb.ListPodResourcesResponse.FromString,
        )
        answer: pb.ListPodResourcesResponse = call(pb.ListPodResourcesRequest(), timeout=10)
        return list(answer.pod_resources)


def cpus(node: Node, made: JSON) -> str:
    """CPUs on which a pod's container may run, as it sees them itself."""
    text = node.exec(container_status(made)["containerID"], "cat", "/proc/self/status")[1]
    return next(line.split()[1] for line in text.splitlines() if "Cpus_allowed_list" in line)


def runs_on(node: Node, made: JSON, expected: str) -> bool:
    return cpus(node, made) == expected


def quota(node: Node, made: JSON) -> tuple[int, int]:
    """The CFS quota of a container and of its pod, from the kernel."""
    pid = node.container_pid(container_status(made)["containerID"])
    own = kernel.cgroup_of(pid, "cpu")
    return kernel.quota(own), kernel.quota(own.rpartition("/")[0])


def state(node: Node) -> JSON:
    found: JSON = json.loads((node.root_dir / "cpu_manager_state").read_text())
    return found


def test_a_container_has_its_cpu_for_itself(node: Node, namespace: str) -> None:
    node.apply(pod("shared"), namespace=namespace)
    shared = node.wait_running(namespace, "shared")
    assert cpus(node, shared) == "0-1"

    node.apply(pod("own", container(resources=ONE_CPU)), namespace=namespace)
    own = node.wait_running(namespace, "own")
    assert status(own)["qosClass"] == "Guaranteed"
    assert cpus(node, own) == "1"
    assert quota(node, own) == (kernel.NO_LIMIT, kernel.NO_LIMIT)
    node.until(lambda: cpus(node, shared) == "0", "the other has moved", namespace, "shared")
    uid, name = own["metadata"]["uid"], container_status(own)["name"]
    assert state(node)["entries"] == {uid: {name: "1"}}
    assert state(node)["defaultCpuSet"] == "0"
    notified = run(node, "explain", f"{namespace}/own")
    assert f"Has of the machine\n  {name}  cpu  1, its own  NUMA node 0\n" in notified
    assert f"container {name} goes to NUMA node 0  cpu (cpu) could come from 0" in notified
    (listed,) = [each for each in pod_resources(node) if each.name == "own"]
    assert [list(each.cpu_ids) for each in listed.containers] == [[1]]

    # past the scheduler, which counts as well
    late = pod("second", container(resources=ONE_CPU), nodeName=node.name)
    node.apply(late, namespace=namespace)
    second = node.wait_phase(namespace, "second", "Failed")
    assert status(second)["reason"] == "UnexpectedAdmissionError"
    assert (
        "not enough cpus available to satisfy request: requested=1, available=0"
        in (status(second)["message"])
    )

    node.kill()
    node.start_agent()
    node.wait_ready()
    node.apply(pod("third"), namespace=namespace)
    third = node.wait_running(namespace, "third")
    assert cpus(node, third) == "0"
    assert cpus(node, own) == "1"
    again = node.wait_running(namespace, "own")
    assert container_status(again)["containerID"] == container_status(own)["containerID"]
    assert container_status(again)["restartCount"] == 0
    assert state(node)["entries"] == {uid: {name: "1"}}

    node.api.delete("pods", namespace, "own", grace=1)
    node.wait_removed(namespace, "own")
    for made in (shared, third):
        node.until(partial(runs_on, node, made, "0-1"), "all CPUs again", namespace, "third")
    node.until(lambda: "entries" not in state(node), "written", namespace, "third")

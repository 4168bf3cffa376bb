"""A node whose power is cut, and that boots again."""

from __future__ import annotations

import time

from kubeletpy.base.api.types import JSON
from tests.nodes.cluster.cluster import Cluster, Namespace
from tests.nodes.cluster.member import NODES
from tests.nodes.cluster.objects import evenly_spread, spec_of, web, workload

LOST = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
     "tolerationSeconds": 5}
    for key in ("not-ready", "unreachable")
]  # fmt: skip


def of_node(pods: list[JSON], name: str) -> JSON:
    """The one pod of a node that is not being deleted."""
    (found,) = (
        each
        for each in pods
        if each["spec"]["nodeName"] == name and "deletionTimestamp" not in each["metadata"]
    )
    return found


def test_pods_of_a_lost_node_run_elsewhere_and_end_when_it_returns(
    cluster: Cluster, namespace: Namespace
) -> None:
    spec = spec_of(web(), topologySpreadConstraints=evenly_spread("shop"), tolerations=LOST)
    namespace.apply(
        workload("Deployment", "shop", spec, replicas=NODES),
        workload("DaemonSet", "each", spec_of()),
    )
    namespace.rollout("deployment/shop", "daemonset/each")
    lost = cluster.members[-1]
    old = of_node(namespace.pods("shop"), lost.name)
    daemon = of_node(namespace.pods("each"), lost.name)
    assert len(lost.running_containers_of(old["metadata"]["uid"])) == 2

    began = time.monotonic()

    def note(what: str) -> None:
        print(f"{what} {time.monotonic() - began:.0f} s after the power cut")

    lost.machine.cut_power()
    namespace.wait("condition=Ready=Unknown", f"node/{lost.name}")
    note("not Ready")
    name, uid = old["metadata"]["name"], old["metadata"]["uid"]
    namespace.wait("jsonpath={.metadata.deletionTimestamp}", f"pod/{name}")
    namespace.rollout("deployment/shop")
    note("replaced")
    running = [each for each in namespace.pods("shop") if each["metadata"]["uid"] != uid]
    assert len(running) == NODES
    others = {each.name for each in cluster.members if each is not lost}
    assert {each["spec"]["nodeName"] for each in running} == others
    namespace.wait("condition=Ready=False", f"pod/{daemon['metadata']['name']}")

    lost.machine.boot()
    note("booted")
    cluster.wait_ready(lost)
    note("Ready")
    namespace.wait("delete", f"pod/{name}")
    note("the old pod was deleted")
    assert lost.running_containers_of(uid) == []
    lost.await_removal(uid)
    note("nothing of it was left")
    namespace.rollout("daemonset/each")
    note("the pod of the DaemonSet was Ready")
    returned = of_node(namespace.pods("each"), lost.name)
    assert returned["metadata"]["uid"] == daemon["metadata"]["uid"]
    (status,) = returned["status"]["containerStatuses"]
    assert status["ready"]
    assert status["restartCount"] == 1

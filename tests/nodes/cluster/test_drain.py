"""`kubectl drain` of a node and its return to the scheduler."""

from __future__ import annotations

from collections import Counter

from tests.cluster.watching import watched
from tests.nodes.cluster.cluster import WITHIN_S, Cluster, Namespace
from tests.nodes.cluster.member import NODES
from tests.nodes.cluster.objects import evenly_spread, spec_of, web, workload
from tools.env.waiting import wait_until

PER_NODE = 2
REPLICAS = NODES * PER_NODE


def test_a_drain_keeps_to_the_disruption_budget(cluster: Cluster, namespace: Namespace) -> None:
    spec = spec_of(web(), topologySpreadConstraints=evenly_spread("shop"))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "shop"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "shop"}}},
    }
    namespace.apply(
        budget,
        workload("Deployment", "shop", spec, replicas=REPLICAS),
        workload("DaemonSet", "each", spec_of()),
    )
    namespace.rollout("deployment/shop", "daemonset/each")
    member = cluster.members[0]
    (before,) = (each for each in namespace.pods("each") if cluster.member_of(each) is member)
    evicted = [each for each in namespace.pods("shop") if cluster.member_of(each) is member]
    assert len(evicted) == PER_NODE
    with watched(namespace, "deployments") as changes:
        wait_until(lambda: changes, "the watch", timeout=WITHIN_S)
        namespace.kubectl("drain", member.name, "--ignore-daemonsets", f"--timeout={WITHIN_S}s")
        try:
            for each in evicted:
                uid = each["metadata"]["uid"]
                assert member.running_containers_of(uid) == []
                member.await_removal(uid)
            namespace.rollout("deployment/shop")
            others = {each.name for each in cluster.members[1:]}
            assert {each["spec"]["nodeName"] for each in namespace.pods("shop")} == others
        finally:
            namespace.kubectl("uncordon", member.name)
    available = [each.item["status"].get("availableReplicas", 0) for each in changes]
    assert min(available) == REPLICAS - 1, available
    (after,) = (each for each in namespace.pods("each") if cluster.member_of(each) is member)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]

    namespace.kubectl("scale", "deployment/shop", f"--replicas={REPLICAS + PER_NODE}")
    namespace.rollout("deployment/shop")
    nodes = Counter(each["spec"]["nodeName"] for each in namespace.pods("shop"))
    assert nodes[member.name] == PER_NODE

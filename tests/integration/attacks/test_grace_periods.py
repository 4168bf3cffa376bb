"""Grace periods of any size that the API takes."""

from __future__ import annotations

from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status

HUGE = 2**62


def test_a_pod_with_all_the_time_in_the_world_is_restarted_and_deleted(
    node2: Node, namespace: str
) -> None:
    liveness = {
        "exec": {"command": ["false"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
        "terminationGracePeriodSeconds": HUGE,
    }
    main = container("main", FOREVER, livenessProbe=liveness)
    node2.apply(pod("p", main, terminationGracePeriodSeconds=HUGE), namespace=namespace)
    node2.wait_pod(
        namespace,
        "p",
        lambda found: container_status(found).get("restartCount", 0) > 0,
        "a restart after the liveness probe failed",
    )
    node2.kubectl("delete", "pod", "p", f"--grace-period={HUGE}", "--wait=false", "-n", namespace)
    node2.wait_removed(namespace, "p")

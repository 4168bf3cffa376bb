"""From a claim's template to a variable in a container, with nothing but kubectl and a driver."""

from __future__ import annotations

import json

from kubeletpy.base.api.types import JSON
from tests.dra_driver.process import DriverProcess, allocation
from tests.integration.dra.conftest import CLASS, DRIVER
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status
from tools.env.waiting import wait_until

REQUEST = {"name": "one", "exactly": {"deviceClassName": CLASS}}


TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "t"},
    "spec": {"spec": {"devices": {"requests": [REQUEST]}}},
}


def using(name: str = "p") -> JSON:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    main = container("main", resources={"claims": [{"name": "gpu"}]})
    return pod(name, main, container("other"), resourceClaims=claims)


def health(found: JSON) -> list[JSON]:
    reported: list[JSON] = container_status(found, "main").get("allocatedResourcesStatus", [])
    return reported


def unallocated(node: Node, namespace: str) -> str:
    """The claim that a pod waits for; empty before its condition names it."""
    status = node.pod(namespace, "p").get("status") or {}
    waits = [str(each.get("message")) for each in status.get("conditions") or ()]
    claims = [str(each["resourceClaimName"]) for each in status.get("resourceClaimStatuses") or ()]
    named = (each for each in claims if f'"{each}" is not allocated' in "".join(waits))
    return next(named, "")


def test_a_pod_has_the_device_it_requests(
    node2: Node, driver: DriverProcess, namespace: str
) -> None:
    node2.apply(TEMPLATE, using(), namespace=namespace)
    claim = wait_until(lambda: unallocated(node2, namespace), "the scheduler reports the claim")
    status = ("--subresource=status", f"--patch={json.dumps(allocation(DRIVER, 'd1'))}")
    node2.kubectl("patch", "resourceclaim", claim, "--type=merge", *status, namespace=namespace)
    found = node2.wait_running(namespace, "p")
    for name, expected in (("main", DRIVER), ("other", "")):
        code, stated = node2.exec(
            container_status(found, name)["containerID"], "sh", "-c", "echo -n $DRA_D1$DRA_D0"
        )
        assert (code, stated) == (0, expected)
    assert node2.kubectl("get", "resourceclaims", "-n", namespace, "--no-headers").split()[:2] == [
        claim,
        "allocated,reserved",
    ]

    def shows(state: str) -> None:
        wait_until(
            lambda: [each["health"] for each in node2_health(node2, namespace)] == [state] or None,
            f"the status shows {state}",
            timeout=20,
        )

    shows("Healthy")
    driver.now(d0="Healthy", d1="Unhealthy")
    shows("Unhealthy")
    assert node2_health(node2, namespace)[0]["message"] == "too hot"
    driver.now(d0="Healthy", d1="Healthy")

    # neither the agent's death nor the driver's touches the container
    node2.kill()
    driver.kill()
    node2.start_agent()
    node2.wait_ready()
    driver.start()
    again = node2.wait_running(namespace, "p")
    assert container_status(again, "main") | {"allocatedResourcesStatus": 0} == container_status(
        found, "main"
    ) | {"allocatedResourcesStatus": 0}
    shows("Healthy")
    assert driver.calls() == [f"prepare {claim}"]

    node2.kubectl("delete", "pod", "p", "-n", namespace, "--grace-period=1")
    node2.wait_removed(namespace, "p")
    wait_until(lambda: driver.calls()[1:] == [f"unprepare {claim}"] or None, "it is unprepared")
    assert list(driver.cdi.glob(f"{DRIVER}-*")) == []
    assert node2.kubectl("get", "resourceclaims", "-n", namespace, "--no-headers") == ""


def node2_health(node: Node, namespace: str) -> list[JSON]:
    reported = health(node.pod(namespace, "p"))
    return list(reported[0]["resources"]) if reported else []

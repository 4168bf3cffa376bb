"""Use of a node by users of a cluster: workloads, their settings, events, and maintenance."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kubeletpy.base.api.types import JSON
from tests.cluster.node import WITHIN, ClusterNode
from tests.cluster.objects import config_map, deployment, secret, service
from tools.env.process import CommandError

pytestmark = pytest.mark.timeout(400)
SERVE = "mkdir /www; hostname >/www/index.html; exec httpd -f -p 8080 -h /www"
PRINT = "while true; do cat /conf/greeting /secret/word; sleep 0.5; done"


def shop(node: ClusterNode) -> JSON:
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    return deployment("shop", 2, node.pod_spec(SERVE, {"readinessProbe": probe}))


@pytest.fixture(scope="module")
def node(node: ClusterNode) -> Iterator[ClusterNode]:
    """The node with a Deployment of two pods, and a Service of them.

    The tests of this file are shared out, so that it may be made here more than once.
    """
    node.apply(service("shop", 8080), shop(node))
    node.kubectl("rollout", "status", "deployment/shop", WITHIN)
    yield node
    # pods that still ended would count as those of the next Deployment of this name
    node.kubectl("delete", "deployment/shop", "service/shop", "--cascade=foreground", WITHIN)


def test_a_service_leads_to_the_pods_of_a_deployment(node: ClusterNode) -> None:
    """No proxy runs on the node: the API server forwards, to the endpoints of Ready pods."""
    node.apply(node.pod("client", "env; sleep 100000"))
    node.wait_ready("client")
    address = node.read("service", "shop", ".spec.clusterIP")
    variables = node.kubectl("logs", "client").splitlines()
    assert f"SHOP_SERVICE_HOST={address}" in variables
    assert "SHOP_SERVICE_PORT_HTTP=80" in variables
    pages: list[str] = []

    def is_served() -> bool:
        """The API server learns of Ready pods as endpoints a moment after others do."""
        try:
            proxied = "/api/v1/namespaces/default/services/shop:http/proxy/"
            pages.append(node.kubectl("get", "--raw", proxied))
        except CommandError as error:
            if "no endpoints available" not in str(error):
                raise
        return bool(pages)

    node.until(is_served, "endpoints of the service")
    (page,) = pages
    names = node.read("pods", "--selector=app=shop", ".items[*].metadata.name").split()
    assert len(names) == 2
    assert page.strip() in names


def test_changes_of_a_config_map_and_a_secret_reach_the_container(node: ClusterNode) -> None:
    volumes = [
        {"name": "conf", "configMap": {"name": "conf"}},
        {"name": "secret", "secret": {"secretName": "word"}},
    ]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("conf", "secret")]
    reader = node.pod("reader", PRINT, {"volumeMounts": mounts}, volumes=volumes)
    node.apply(config_map("conf", greeting="hello\n"), secret("word", word="sesame\n"), reader)
    node.wait_ready("reader")
    node.until(lambda: "sesame" in node.kubectl("logs", "reader", "--tail=2"), "the first contents")
    node.apply(config_map("conf", greeting="goodbye\n"))
    node.until(lambda: "goodbye" in node.kubectl("logs", "reader", "--tail=2"), "the config map")
    node.apply(secret("word", word="melon\n"))
    node.until(lambda: "melon" in node.kubectl("logs", "reader", "--tail=2"), "the secret")


def test_events_describe_the_start_and_the_failure_of_pods(node: ClusterNode) -> None:
    absent = {"image": "kubeletpy.local/absent:1", "imagePullPolicy": "Never"}
    node.apply(node.pod("fails", "true", absent), node.pod("works", "sleep 100000"))

    def reasons(name: str) -> set[str]:
        found = json.loads(node.kubectl("events", "--for", f"pod/{name}", "-o", "json"))
        return {event["reason"] for event in found["items"]}

    node.until(lambda: reasons("works") >= {"Pulled", "Created", "Started"}, "events of a start")
    node.until(lambda: reasons("fails") >= {"Failed", "ErrImageNeverPull"}, "events of a failure")
    node.kubectl("delete", "pod/fails", "pod/works", WITHIN)


def test_the_lease_is_renewed(node: ClusterNode) -> None:
    def renewed() -> str:
        namespace = "--namespace=kube-node-lease"
        return node.kubectl("get", "lease", node.name, namespace, "-o=jsonpath={.spec.renewTime}")

    before = renewed()
    node.until(lambda: renewed() > before, "the renewal of the lease", timeout=30)
    holder = "jsonpath={.spec.holderIdentity}"
    assert node.kubectl("get", "lease", node.name, "--namespace=kube-node-lease", "-o", holder) == (
        node.name
    )


def phases(node: ClusterNode) -> str:
    return node.read("pods", "--selector=app=shop", ".items[*].status.phase")


def test_drain_evicts_pods_with_their_grace(node: ClusterNode) -> None:
    """A pod that ends by itself on SIGTERM does; the Deployment's new pods wait for the node."""
    script = "trap 'echo leaving; exit 0' TERM; echo here; while true; do sleep 0.1; done"
    node.apply(node.pod("guest", script, terminationGracePeriodSeconds=30))
    node.wait_ready("guest")
    with node.kubectl_process("logs", "--follow", "guest") as follow:
        assert follow.stdout is not None
        assert follow.stdout.readline() == "here\n"
        node.kubectl("drain", node.name, "--force", "--ignore-daemonsets", WITHIN)
        assert follow.stdout.read() == "leaving\n"
        assert follow.wait() == 0
    try:
        assert node.containers() == {}
        node.until(lambda: phases(node) == "Pending Pending", "the pods that replace the evicted")
    finally:
        node.kubectl("uncordon", node.name)
    node.kubectl("rollout", "status", "deployment/shop", WITHIN)

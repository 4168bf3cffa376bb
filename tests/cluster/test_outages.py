"""The API server stops, loses its history or renews its certificates, while a node's pods change.

Judged by kubectl, and by the API server's audit log: which requests the agent made.
"""

from __future__ import annotations

import pytest

from kubeletpy.base.api.types import JSON
from tests.cluster.node import SHORT_WATCHES, WITHIN, ClusterNode
from tests.cluster.objects import config_map, csi_driver, secret, service
from tools.control_plane.plane import ControlPlane

pytestmark = pytest.mark.timeout(400)
FOLLOWED = {"pods", "nodes", "services", "configmaps", "secrets", "csidrivers"}
"""The kinds of which every agent has watches as long as pods use the last ones."""
PRINT = "env | grep ^SHOP; while true; do cat /conf/greeting /secret/word; sleep 0.5; done"


def use_everything(node: ClusterNode, name: str, text: str) -> None:
    """Apply a Service, a config map, a secret and a pod that prints them."""
    volumes = [
        {"name": "conf", "configMap": {"name": "conf"}},
        {"name": "secret", "secret": {"secretName": "word"}},
    ]
    mounts = [{"name": each, "mountPath": f"/{each}"} for each in ("conf", "secret")]
    pod = node.pod(name, PRINT, {"volumeMounts": mounts}, volumes=volumes)
    node.apply(service(f"shop-{name}"), *contents(text), csi_driver(f"{name}.example.com"), pod)
    node.wait_ready(name)
    node.until(lambda: f"word-{text}" in node.log(name), "the secret in the container")
    assert f"SHOP_{name.upper()}_SERVICE_HOST=10.96." in node.log(name)


def change_everything(node: ClusterNode, name: str, text: str) -> None:
    """Change what the pod prints, and wait until it prints that."""
    node.apply(*contents(text))
    desired = {f"greeting-{text}", f"word-{text}"}
    node.until(lambda: desired <= set(node.log(name).split()), f"{desired} in the container")


def contents(text: str) -> tuple[JSON, JSON]:
    """The objects whose values the pod prints."""
    return config_map("conf", greeting=f"greeting-{text}\n"), secret("word", word=f"word-{text}\n")


def watched(node: ClusterNode, since: int, *, lists: bool) -> set[str]:
    """The kinds that the agent has begun to watch, with a list or by resuming."""
    return {
        each.resource
        for each in node.requests(since)
        if each.verb == "watch" and not each.ended and each.lists is lists
    }


def test_pods_change_while_the_node_is_cut_off(node: ClusterNode) -> None:
    """Watches resume where they were: nothing is listed anew, and no change is lost."""
    use_everything(node, "stays", "before")
    ends = "until [ -e /host/end ]; do sleep 0.1; done; exit 3"
    volume = {"name": "host", "hostPath": {"path": str(node.directory)}}
    mount = {"volumeMounts": [{"name": "host", "mountPath": "/host"}]}
    node.apply(
        node.pod("ends", ends, mount, volumes=[volume], restartPolicy="Never"),
        node.pod("leaves", "sleep 100000"),
    )
    node.wait_ready("ends", "leaves")
    before, since = node.containers()["stays"], node.plane.audit.length()
    node.link.cut()
    (node.directory / "end").touch()
    node.kubectl("delete", "pod/leaves", "--wait=false")
    node.apply(*contents("during"), node.pod("comes", "sleep 100000"))
    node.link.open()
    node.wait_ready("comes")
    node.kubectl("wait", "--for=delete", "pod/leaves", WITHIN)
    node.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/ends", WITHIN)
    code = ".status.containerStatuses[0].state.terminated.exitCode"
    assert node.read("pod", "ends", code) == "3"
    node.until(lambda: "word-during" in node.log("stays"), "the secret of the outage")
    node.until(lambda: watched(node, since, lists=False) >= FOLLOWED, "watches of every kind")
    assert watched(node, since, lists=True) == set()
    assert node.containers()["stays"] == before


def test_kinds_are_relisted_after_the_api_server_lost_its_history(
    plane: ControlPlane, node: ClusterNode
) -> None:
    """Every watch is "too old", so each kind is listed again. The certificate changes as well."""
    use_everything(node, "old", "before")
    since, reported = plane.audit.length(), plane.server_certificate()
    node.link.cut()
    node.apply(*contents("meanwhile"), node.pod("late", "sleep 100000"))
    node.kubectl("delete", "csidriver/old.example.com")
    plane.api_server.kill()
    plane.compact()
    plane.renew_server_certificate()
    plane.start_api_server(["--min-request-timeout=5"])
    assert plane.server_certificate() != reported
    node.link.open()
    node.wait_ready("late")
    node.until(lambda: watched(node, since, lists=True) >= FOLLOWED, "lists of every kind")
    node.until(lambda: "word-meanwhile" in node.log("old"), "the secret of the outage")
    change_everything(node, "old", "after")
    use_everything(node, "fresh", "after")


def test_an_api_server_without_http2_is_followed_too(
    plane: ControlPlane, node: ClusterNode
) -> None:
    assert "over HTTP/2" in node.explain()
    plane.api_server.stop()
    plane.start_api_server(["--disable-http2-serving=true"])
    use_everything(node, "http11", "first")
    change_everything(node, "http11", "second")
    explained = node.explain()
    assert "over HTTP/1.1" in explained
    assert "the watch of" not in explained
    plane.api_server.kill()
    plane.start_api_server()


def test_new_credentials_are_used_without_a_restart(node: ClusterNode) -> None:
    """A renewal of the node's certificate replaces the files that its kubeconfig names."""
    used = {each.credential for each in node.requests() if each.credential}
    since, before = node.plane.audit.length(), node.containers()
    node.new_credentials()

    def renewed() -> bool:
        found = [each for each in node.requests(since) if each.credential not in used]
        return any(each.resource == "leases" and each.code == 200 for each in found)

    node.until(renewed, "a lease renewed with the new certificate")
    node.apply(node.pod("renewed", "sleep 100000"))
    node.wait_ready("renewed")
    now = node.containers()
    assert {name: now[name] for name in before} == before
    # the protocol is chosen once for each set of credentials
    assert "over HTTP/2" in node.explain()


def test_an_agent_that_starts_again_keeps_its_pods(node: ClusterNode) -> None:
    """Changes made in the meantime are carried out; no container is restarted."""
    node.apply(node.pod("kept", "sleep 100000"), node.pod("removed", "sleep 100000"))
    node.wait_ready("kept", "removed")
    before = node.containers()
    node.stop()
    node.kubectl("delete", "pod/removed", "--wait=false")
    node.apply(node.pod("new", "sleep 100000"))
    node.start()
    node.wait_ready("new")
    node.kubectl("wait", "--for=delete", "pod/removed", WITHIN)
    now = node.containers()
    del before["removed"]
    assert {name: now[name] for name in before} == before


def test_watches_that_the_api_server_ends_are_resumed(node: ClusterNode) -> None:
    """Watches end after the timeout that they request; no change between two of them is lost."""
    node.stop()
    node.start(SHORT_WATCHES)
    use_everything(node, "brief", "first")
    since = node.plane.audit.length()
    node.until(lambda: watched(node, since, lists=False) >= FOLLOWED, "watches that are resumed")
    change_everything(node, "brief", "second")
    assert watched(node, since, lists=True) == set()

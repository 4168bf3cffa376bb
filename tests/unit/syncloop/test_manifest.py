"""Static pods from manifests: what they become, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletpy.pods.pod import CONFIG_HASH, Pod
from kubeletpy.pods.qos import compute_qos_class
from kubeletpy.syncloop.sources.manifest import ManifestError, Origin, decode_manifest

ORIGIN = Origin("Node-1", "/etc/kubernetes/manifests/web.yaml", is_file=True)
URL = Origin("node-1", "http://x/pods", is_file=False)

WEB = """
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: main
    image: nginx:1.25
"""


def manifest(**spec: Any) -> bytes:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "image": "i"}], **spec},
    }
    return json.dumps(body).encode()


def test_what_a_manifest_becomes() -> None:
    (pod,) = decode_manifest(WEB.encode(), ORIGIN)
    metadata = pod["metadata"]
    assert metadata["name"] == "web-node-1"
    assert metadata["namespace"] == "default"
    assert len(metadata["uid"]) == 32
    assert metadata["annotations"][CONFIG_HASH] == metadata["uid"]
    assert pod["spec"]["nodeName"] == "Node-1"
    assert {"operator": "Exists", "effect": "NoExecute"} in pod["spec"]["tolerations"]
    assert pod["status"] == {"phase": "Pending"}


def test_a_static_pod_has_the_defaults_of_the_api() -> None:
    """A manifest as kubeadm writes it: what no API has filled in, the node does."""
    spec = {
        "hostNetwork": True,
        "containers": [
            {
                "name": "etcd",
                "image": "registry.k8s.io/etcd:3.6.8-0",
                "ports": [{"containerPort": 2381, "name": "probe-port"}],
                "resources": {"limits": {"cpu": "100m", "memory": "100Mi"}},
                "startupProbe": {"httpGet": {"port": "probe-port"}, "failureThreshold": 24},
            }
        ],
        "volumes": [{"name": "data", "hostPath": {"path": "/var/lib/etcd"}}],
    }
    (pod,) = decode_manifest(manifest(**spec), ORIGIN)
    (container,) = pod["spec"]["containers"]
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["terminationMessagePolicy"] == "File"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["ports"] == [
        {"containerPort": 2381, "name": "probe-port", "protocol": "TCP", "hostPort": 2381}
    ]
    assert container["resources"]["requests"] == {"cpu": "100m", "memory": "100Mi"}
    assert compute_qos_class(Pod(pod)) == "Guaranteed"
    assert container["startupProbe"] == {
        "httpGet": {"port": "probe-port", "path": "/", "scheme": "HTTP"},
        "failureThreshold": 24,
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
    }
    assert pod["spec"]["volumes"][0]["hostPath"]["type"] == ""
    assert pod["spec"]["restartPolicy"] == "Always"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30
    assert pod["spec"]["enableServiceLinks"] is True
    assert "priority" not in pod["spec"]
    assert pod["spec"]["tolerations"] == [{"operator": "Exists", "effect": "NoExecute"}]


def test_pod_level_requests_come_from_its_containers() -> None:
    containers = [
        {"name": n, "image": "i", "resources": {"requests": {"cpu": cpu}}}
        for n, cpu in (("a", "250m"), ("b", "500m"))
    ]
    limits = {"cpu": "2", "memory": "1Gi"}
    (pod,) = decode_manifest(manifest(containers=containers, resources={"limits": limits}), ORIGIN)
    assert pod["spec"]["resources"]["requests"] == {"cpu": "750m", "memory": "1Gi"}


def test_the_uid_follows_content_and_place() -> None:
    (one,) = decode_manifest(WEB.encode(), ORIGIN)
    (same,) = decode_manifest(WEB.encode() + b"\n# comment\n", ORIGIN)
    (elsewhere,) = decode_manifest(WEB.encode(), Origin("Node-1", "/other", is_file=True))
    (changed,) = decode_manifest(WEB.replace("1.25", "1.26").encode(), ORIGIN)
    uids = [pod["metadata"]["uid"] for pod in (one, same, elsewhere, changed)]
    assert uids[0] == uids[1]
    assert len(set(uids)) == 3
    (given,) = decode_manifest(WEB.replace("name: web", "name: web\n  uid: abc").encode(), ORIGIN)
    assert given["metadata"]["uid"] == "abc"


def test_a_url_gives_lists_and_no_toleration() -> None:
    item = json.loads(manifest())
    body = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [item]}).encode()
    (pod,) = decode_manifest(body, URL)
    assert "tolerations" not in pod["spec"]
    with pytest.raises(ManifestError, match="PodList"):
        decode_manifest(body, ORIGIN)


def test_null_is_absent() -> None:
    """`kubectl run --dry-run=client -o yaml` writes such things."""
    written = json.loads(manifest(hostNetwork=None))
    written["metadata"]["creationTimestamp"] = None
    written["spec"]["containers"][0]["command"] = None
    (pod,) = decode_manifest(json.dumps(written).encode(), ORIGIN)
    assert "creationTimestamp" not in pod["metadata"]
    assert "command" not in pod["spec"]["containers"][0]


def test_dates_stay_text() -> None:
    text = WEB + "    env:\n    - {name: D, value: 2026-01-02}\n"
    (pod,) = decode_manifest(text.encode(), ORIGIN)
    assert pod["spec"]["containers"][0]["env"][0]["value"] == "2026-01-02"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "0 documents"),
        (b"[1]", "is not an object"),
        (b"a: [", "neither YAML nor JSON"),
        (b"\xff\xfe\xff", "neither YAML nor JSON"),
        (WEB.encode() + b"---" + WEB.encode(), "2 documents"),
        (WEB.replace("v1", "v2").encode(), "apiVersion"),
        (WEB.replace("kind: Pod", "kind: Job").encode(), "Job"),
        (WEB.replace("name: web", "x: web").encode(), "name is needed"),
        (WEB.replace("name: web", "name: ../../etc").encode(), "DNS subdomain"),
        (WEB.replace("name: web", "name: web\n  uid: ../../etc").encode(), "no uid"),
        (WEB.replace("name: web", "name: web\n  namespace: ../x").encode(), "namespace"),
        (WEB.replace("name: main", "name: Main_1").encode(), "DNS label"),
        (WEB.replace("    image: nginx:1.25\n", "").encode(), "no image"),
        (manifest(containers=[]), "containers is empty"),
        (manifest(containers=[{"name": "a", "image": "i"}] * 2), "two containers"),
        (
            b"a: &a [x,x,x,x,x,x,x,x,x,x]\n"
            + b"".join(
                b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % ((c + 1,) * 2 + (c,) * 10)
                for c in range(ord("a"), ord("k"))
            ),
            "more than",
        ),
        (b"[" * 100_000, "nested"),
        (b"a: &a [*a]", "nested"),
        (b"a: &a {x: 1}\nb: {<<: *a}", "merge key"),
        (b"a: !!binary aGVsbG8=", "type bytes"),
        (b"a: !!python/object/apply:os.system [ls]", "neither YAML nor JSON"),
    ],
)
def test_bad_manifests(data: bytes, problem: str) -> None:
    with pytest.raises(ManifestError, match=problem):
        decode_manifest(data, ORIGIN)


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"serviceAccountName": "x"}, "serviceaccounts"),
        ({"imagePullSecrets": [{"name": "x"}]}, "secrets"),
        ({"resourceClaims": [{"name": "x"}]}, "resourceclaims"),
        ({"volumes": [{"name": "v", "configMap": {"name": "c"}}]}, "configmaps"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "c"}}]}, "secrets"),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            "persistentvolumeclaims",
        ),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]},
            "serviceAccountToken projected volume sources",
        ),
        (
            {
                "containers": [
                    {"name": "a", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]}
                ]
            },
            "secrets",
        ),
        (
            {
                "containers": [
                    {
                        "name": "a",
                        "image": "i",
                        "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "c"}}}],
                    }
                ]
            },
            "configmaps",
        ),
    ],
)
def test_no_objects_of_the_api(spec: dict[str, Any], what: str) -> None:
    with pytest.raises(ManifestError, match=f"static pods may not reference {what}"):
        decode_manifest(manifest(**spec), ORIGIN)


def test_what_needs_no_api_is_fine() -> None:
    volumes = [
        {"name": "a", "hostPath": {"path": "/x"}},
        {"name": "b", "emptyDir": {}},
        {"name": "c", "projected": {"sources": [{"downwardAPI": {}}]}},
    ]
    assert decode_manifest(manifest(volumes=volumes), ORIGIN)

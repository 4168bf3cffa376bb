"""Static pods from manifests: the resulting pods, and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import CONFIG_HASH, Pod
from kubeletpy.pods.resources import compute_qos_class
from kubeletpy.syncloop.sources.manifest import MAX_MANIFEST, ManifestError, Origin, decode_manifest

ORIGIN = Origin("Node-1", "/etc/kubernetes/manifests/web.yaml", is_file=True)
URL = Origin("node-1", "http://x/pods", is_file=False)

PLAIN = {"name": "a", "image": "i"}
DOWNWARD: dict[str, Any] = {"downwardAPI": {}}
FOR_EVER = {"operator": "Exists", "effect": "NoExecute"}

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


def test_the_pod_made_from_a_manifest() -> None:
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
    """A manifest as kubeadm writes it; the node sets the defaults that an API server would set."""
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


def test_quantities_are_those_that_the_api_would_return() -> None:
    supplied = {"limits": {"cpu": 1, "memory": "1024Mi"}, "requests": {"cpu": 0.5, "memory": "10m"}}
    (pod,) = decode_manifest(
        manifest(
            containers=[{"name": "a", "image": "i", "resources": supplied}],
            initContainers=[{"name": "b", "image": "i", "resources": supplied}],
            resources=supplied,
            overhead={"cpu": "0.25"},
            volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1024Ki"}}, {"name": "w"}],
        ),
        ORIGIN,
    )
    spec = pod["spec"]
    reported = {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "10m"},
    }
    assert spec["containers"][0]["resources"] == reported
    assert spec["initContainers"][0]["resources"] == reported
    assert spec["resources"] == reported
    assert spec["overhead"] == {"cpu": "250m"}
    assert [v["emptyDir"] for v in spec["volumes"]] == [{"sizeLimit": "1Mi"}, {}]


def test_a_size_limit_that_is_no_quantity() -> None:
    volumes = [{"name": "v", "emptyDir": {"sizeLimit": "much"}}]
    with pytest.raises(ManifestError, match="not a quantity"):
        decode_manifest(manifest(volumes=volumes), ORIGIN)


def test_the_uid_depends_on_content_and_origin() -> None:
    (one,) = decode_manifest(WEB.encode(), ORIGIN)
    (same,) = decode_manifest(WEB.encode() + b"\n# comment\n", ORIGIN)
    (elsewhere,) = decode_manifest(WEB.encode(), Origin("Node-1", "/other", is_file=True))
    (changed,) = decode_manifest(WEB.replace("1.25", "1.26").encode(), ORIGIN)
    (by_url,) = decode_manifest(WEB.encode(), replace(ORIGIN, is_file=False))
    uids = [pod["metadata"]["uid"] for pod in (one, same, elsewhere, changed, by_url)]
    assert uids[0] == uids[1]
    assert len(set(uids)) == 4
    kind_last = WEB.replace("kind: Pod\n", "") + "kind: Pod\n"
    (reordered,) = decode_manifest(kind_last.encode(), ORIGIN)
    assert reordered["metadata"]["uid"] == uids[0]
    (supplied,) = decode_manifest(
        WEB.replace("name: web", "name: web\n  uid: abc").encode(), ORIGIN
    )
    assert supplied["metadata"]["uid"] == "abc"


def test_a_url_gives_lists_and_no_toleration() -> None:
    item = json.loads(manifest())
    body = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [item]}).encode()
    (pod,) = decode_manifest(body, URL)
    assert "tolerations" not in pod["spec"]
    with pytest.raises(ManifestError, match="PodList"):
        decode_manifest(body, ORIGIN)


def test_a_url_may_not_deliver_other_kinds() -> None:
    with pytest.raises(ManifestError, match=r"^kind is 'Job', not 'Pod'$"):
        decode_manifest(WEB.replace("kind: Pod", "kind: Job").encode(), URL)


def test_empty_documents_do_not_count() -> None:
    (pod,) = decode_manifest(f"---\n---{WEB}---\n".encode(), ORIGIN)
    assert pod["metadata"]["name"] == "web-node-1"


def test_keys_become_text() -> None:
    labels = "name: web\n  labels: {1: a, 2.5: b}"
    (pod,) = decode_manifest(WEB.replace("name: web", labels).encode(), ORIGIN)
    assert pod["metadata"]["labels"] == {"1": "a", "2.5": "b"}


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
        (
            b"kind: Pod\na: [",
            "^neither YAML nor JSON: while parsing a flow node, did not find expected node content "
            r"\(line 3, column 1\)$",
        ),
        (b"a: '", r"^neither YAML nor JSON: .+, found unexpected end .+ \(line 1, column 5\)$"),
        (b"\xff\xfe\xff", "neither YAML nor JSON"),
        (WEB.encode() + b"---" + WEB.encode(), "2 documents"),
        (WEB.replace("v1", "v2").encode(), "apiVersion"),
        (WEB.replace("kind: Pod", "kind: Job").encode(), "Job"),
        (WEB.replace("name: web", "x: web").encode(), "name is needed"),
        (WEB.replace("name: web", "name: ../../etc").encode(), "DNS subdomain"),
        (WEB.replace("name: web", "name: web\n  uid: ../../etc").encode(), "is not a uid"),
        (
            WEB.replace("name: web", "name: web\n  namespace: ../x").encode(),
            "namespace '../x' is not",
        ),
        (WEB.replace("name: main", "name: Main_1").encode(), "DNS label"),
        (WEB.replace("    image: nginx:1.25\n", "").encode(), "no image"),
        (manifest(containers=[]), "containers is empty"),
        (manifest(containers=[{"name": "a", "image": " "}]), "container a has no image$"),
        (manifest(restartPolicy="never"), 'restartPolicy is "never", not one of Always'),
        (
            manifest(containers=[{**PLAIN, "imagePullPolicy": "always"}]),
            'container \\w+: imagePullPolicy is "always", not one of Always',
        ),
        (manifest(containers=[{**PLAIN, "args": [None]}]), r"args\[0\]: "),
        (manifest(tolerations={"a": 1}), "tolerations: is not a list"),
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
        ({"serviceAccount": "x"}, "serviceaccounts"),
        ({"imagePullSecrets": [{"name": "x"}]}, "secrets"),
        *[
            ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", kind: {}}]}, what)
            for kind, what in (
                ("csi", "CSI volumes"),
                ("ephemeral", "ephemeral volumes"),
                ("glusterfs", "endpoints"),
                ("azureFile", "secrets"),
            )
        ],
        *[
            ({"volumes": [{"name": "v", kind: {"secretRef": {"name": "s"}}}]}, "secrets")
            for kind in ("cephfs", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos", "cinder")
        ],
        (
            {"volumes": [{"name": "v", "projected": {"sources": [DOWNWARD, {"secret": {}}]}}]},
            "secret projected volume sources",
        ),
        (
            {"initContainers": [{**PLAIN, "envFrom": [{"configMapRef": {"name": "c"}}]}]},
            "configmaps",
        ),
        (
            {
                "ephemeralContainers": [
                    {
                        **PLAIN,
                        "env": [
                            {"name": "A", "value": "a"},
                            {"name": "E", "valueFrom": {"secretKeyRef": {"name": "s"}}},
                        ],
                    }
                ]
            },
            "secrets",
        ),
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
    with pytest.raises(ManifestError, match=f"^static pods may not reference {what}$"):
        decode_manifest(manifest(**spec), ORIGIN)


def test_fields_that_need_no_api_are_accepted() -> None:
    volumes = [
        {"name": "a", "hostPath": {"path": "/x"}},
        {"name": "b", "emptyDir": {}},
        {"name": "c", "projected": {"sources": [{"downwardAPI": {}}]}},
        {"name": "d", "iscsi": {"targetPortal": "10.0.0.1"}},
    ]
    env = [
        {"name": "A", "value": "a"},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    containers = [{"name": "main", "image": "i", "env": env, "envFrom": [{"prefix": "P_"}]}]
    assert decode_manifest(manifest(volumes=volumes, containers=containers), ORIGIN)


def test_the_longest_manifest_and_the_longest_name() -> None:
    text = WEB.replace("name: web", f"name: {'w' * 246}").encode()
    padded = text + b"#" * (MAX_MANIFEST - len(text))
    (pod,) = decode_manifest(padded, ORIGIN)
    assert len(pod["metadata"]["name"]) == 253
    with pytest.raises(ManifestError, match=f"^larger than {MAX_MANIFEST} bytes$"):
        decode_manifest(padded + b"#", ORIGIN)
    with pytest.raises(ManifestError, match="is not a DNS subdomain"):
        decode_manifest(text.replace(b"www", b"wwww", 1), ORIGIN)


@pytest.mark.parametrize(
    ("supplied", "kept"),
    [(None, [FOR_EVER]), ([FOR_EVER], [FOR_EVER]), ([{"key": "k"}], [{"key": "k"}, FOR_EVER])],
)
def test_a_static_pod_is_not_evicted_by_taints(supplied: Any, kept: Any) -> None:
    (pod,) = decode_manifest(manifest(tolerations=supplied), ORIGIN)
    assert pod["spec"]["tolerations"] == kept


def test_metadata_of_a_manifest_is_kept() -> None:
    metadata = "name: web\n  namespace: prod\n  labels: {a: b}\n  annotations: {c: d}"
    (pod,) = decode_manifest(WEB.replace("name: web", metadata).encode(), ORIGIN)
    uid = pod["metadata"]["uid"]
    assert pod["metadata"] == {
        "name": "web-node-1",
        "namespace": "prod",
        "uid": uid,
        "labels": {"a": "b"},
        "annotations": {"c": "d", CONFIG_HASH: uid},
    }


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ({"a": 1}, "^items is not a list$"),
        (["pod"], "^a pod is not an object$"),
        ([{"metadata": [], "spec": {}}], "^metadata or spec is missing$"),
        ([{"metadata": {"name": "web"}}], "^metadata or spec is missing$"),
        ([{"metadata": {"name": 5}, "spec": {}}], "name is needed for the pod$"),
        ([{"metadata": {"name": ""}, "spec": {}}], "name is needed for the pod$"),
        (
            [{"metadata": {"name": "w", "annotations": ["a"]}, "spec": {}}],
            "^metadata.annotations is not an object$",
        ),
        ([{"metadata": {"name": "w", "namespace": 5}, "spec": {}}], "namespace 5 is not a DNS"),
        ([{"metadata": {"name": "w", "uid": 5}, "spec": {}}], "metadata.uid 5 is not a uid$"),
        ([{"metadata": {"name": "w"}, "spec": {"tolerations": {}}}], "tolerations: is not a list"),
    ],
)
def test_bad_items_of_a_list(items: Any, problem: str) -> None:
    body = {"apiVersion": "v1", "kind": "PodList", "items": items}
    with pytest.raises(ManifestError, match=problem):
        decode_manifest(json.dumps(body).encode(), URL)


def test_a_list_may_be_empty() -> None:
    assert decode_manifest(b'{"apiVersion": "v1", "kind": "PodList"}', URL) == []


def test_fields_of_1_37_are_validated_as_the_api_does() -> None:
    mount = {"name": "v", "mountPath": "/v", "bindMountOptions": ["exec"]}
    containers = [{**PLAIN, "volumeMounts": [mount]}]
    with pytest.raises(ManifestError) as caught:
        decode_manifest(manifest(containers=containers, volumes=[{"name": "v"}]), ORIGIN)
    assert str(caught.value) == (
        "invalid pod: spec.containers[0].volumeMounts[0].bindMountOptions[0]: Unsupported value: "
        '"exec": supported values: "nodev", "noexec", "nosuid"'
    )

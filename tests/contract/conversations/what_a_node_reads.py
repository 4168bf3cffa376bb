"""Objects that the Node authorizer lets a node read, and tokens for its pods."""

from __future__ import annotations

from tests.contract.conversation import delete, get, patch, post, put
from tests.contract.conversations.objects import JSON, PODS, container, here, mirror, pod

_NS = "/api/v1/namespaces/{ns}"
_TOKEN = _NS + "/serviceaccounts/default/token"


_TOKENS = {
    "name": "tokens",
    "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "t"}},
            {"serviceAccountToken": {"path": "v", "audience": "vault"}},
        ]
    },
}


def _request(name: str = "p", uid: str = "{uid}", **spec: object) -> JSON:
    bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound, **spec},
    }


STEPS = [
    post("secret", _NS + "/secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
    post("another secret", _NS + "/secrets", {"metadata": {"name": "hidden"}, "type": "x"}),
    post(
        "map",
        _NS + "/configmaps",
        {"metadata": {"name": "m"}, "data": {"a": ""}, "binaryData": {"b": "AA=="}},
    ),
    get("secret before", _NS + "/secrets/s", by="node"),
    get("map before", _NS + "/configmaps/m", by="node"),
    get("the node", "/api/v1/nodes/{node}", by="node", keep={"node_uid": "metadata.uid"}),
    post(
        "pod",
        PODS,
        here(
            "p",
            imagePullSecrets=[{"name": "pull"}],
            volumes=[
                {"name": "s", "secret": {"secretName": "s"}},
                {"name": "m", "configMap": {"name": "m"}},
                _TOKENS,
            ],
        ),
        keep={"uid": "metadata.uid"},
    ),
    post("pod elsewhere", PODS, pod("far", nodeName="{other}"), keep={"far": "metadata.uid"}),
    get("secret after", _NS + "/secrets/s", by="node", until=200),
    get("map after", _NS + "/configmaps/m", by="node", until=200),
    get("pull secret that is not there", _NS + "/secrets/pull", by="node", until=404),
    get("hidden secret", _NS + "/secrets/hidden", by="node"),
    get("secret by the other node", _NS + "/secrets/s", by="other"),
    get("secrets", _NS + "/secrets", by="node"),
    get(
        "one secret in a list",
        _NS + "/secrets",
        by="node",
        query={"fieldSelector": "metadata.name=s"},
    ),
    get(
        "hidden one in a list",
        _NS + "/secrets",
        by="node",
        query={"fieldSelector": "metadata.name=hidden"},
    ),
    get("root certificate", _NS + "/configmaps/kube-root-ca.crt", by="node"),
    put("secret written", _NS + "/secrets/s", {"metadata": {"name": "s"}}, by="node"),
    patch("map written", _NS + "/configmaps/m", {"data": {"a": "c"}}, by="node"),
    delete("secret deleted", _NS + "/secrets/s", by="node"),
    get("service account", _NS + "/serviceaccounts/default", by="node"),
    get("all pods", "/api/v1/pods", by="node"),
    get(
        "another's pods",
        "/api/v1/pods",
        by="node",
        query={"fieldSelector": "spec.nodeName={other}"},
    ),
    get(
        "own pods",
        "/api/v1/pods",
        by="node",
        query={"fieldSelector": "spec.nodeName={node},metadata.namespace={ns}"},
    ),
    get("own pod", PODS + "/p", by="node"),
    get("another's pod", PODS + "/far", by="node"),
    get("no pod", PODS + "/none", by="node"),
    get("services", "/api/v1/namespaces/{ns}/services", by="node"),
    get("runtime classes", "/apis/node.k8s.io/v1/runtimeclasses", by="node"),
    get("no such runtime class", "/apis/node.k8s.io/v1/runtimeclasses/none", by="node"),
    get("drivers", "/apis/storage.k8s.io/v1/csidrivers", by="node"),
    get("namespaces", "/api/v1/namespaces/{ns}", by="node"),
    get("namespaces listed", "/api/v1/namespaces", by="node"),
    get("deployments", "/apis/apps/v1/namespaces/{ns}/deployments", by="node"),
    post("pod by the node", PODS, here("own"), by="node"),
    post("unbound pod by the node", PODS, pod("own2"), by="node"),
    post("mirror pod", PODS, mirror("m"), by="node"),
    post(
        "mirror pod of another node",
        PODS,
        {**mirror("m1"), "spec": {**mirror("m1")["spec"], "nodeName": "{other}"}},
        by="node",
    ),
    post(
        "mirror pod without owner", PODS, mirror("m2", metadata={"ownerReferences": []}), by="node"
    ),
    post(
        "mirror pod with a false owner",
        PODS,
        mirror(
            "m3",
            metadata={
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "Node",
                        "name": "{node}",
                        "uid": "0",
                        "controller": True,
                    }
                ]
            },
        ),
        by="node",
    ),
    post(
        "mirror pod with a secret",
        PODS,
        mirror("m4", volumes=[{"name": "s", "secret": {"secretName": "s"}}]),
        by="node",
    ),
    post("mirror pod with an account", PODS, mirror("m5", serviceAccountName="default"), by="node"),
    post(
        "mirror pod with a map in the environment",
        PODS,
        mirror("m6", containers=[container(envFrom=[{"configMapRef": {"name": "m"}}])]),
        by="node",
    ),
    patch(
        "mirror annotation changed",
        PODS + "/m",
        {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
    ),
    patch(
        "mirror annotation added",
        PODS + "/p",
        {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
    ),
    post("token", _TOKEN, _request(), by="node", keep={"token": "status.token"}),
    post("token for a day", _TOKEN, _request(expirationSeconds=86400), by="node"),
    post("token for a moment", _TOKEN, _request(expirationSeconds=60), by="node"),
    post("token too long", _TOKEN, _request(expirationSeconds=2**32 + 1), by="node"),
    post("token of another audience", _TOKEN, _request(audiences=["vault"]), by="node"),
    post("token of an audience that no volume has", _TOKEN, _request(audiences=["x"]), by="node"),
    post("token of no pod", _TOKEN, {"spec": {}}, by="node"),
    post("token of another uid", _TOKEN, _request(uid="0"), by="node"),
    post("token of another node's pod", _TOKEN, _request("far", "{far}"), by="node"),
    post("token of a pod that is gone", _TOKEN, _request("none", "0"), by="node"),
    post("token of another account", _NS + "/serviceaccounts/none/token", _request(), by="node"),
    post("token, admin, no such account", _NS + "/serviceaccounts/none/token", {"spec": {}}),
    post("token, admin, another uid", _TOKEN, _request(uid="0")),
    post(
        "review",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        {"spec": {"token": "{token}"}},
        by="node",
    ),
    post(
        "review of rubbish",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        {"spec": {"token": "rubbish"}},
        by="node",
    ),
    post(
        "review of nothing", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {}}, by="node"
    ),
    post(
        "review, other audience",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        {"spec": {"token": "{token}", "audiences": ["x"]}},
        by="node",
    ),
    post(
        "access of an administrator",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "spec": {
                "user": "u",
                "groups": ["system:masters"],
                "resourceAttributes": {
                    "verb": "get",
                    "resource": "nodes",
                    "subresource": "proxy",
                    "name": "{node}",
                },
            }
        },
        by="node",
    ),
    post(
        "access of a stranger",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {"spec": {"user": "stranger", "resourceAttributes": {"verb": "get", "resource": "nodes"}}},
        by="node",
    ),
    post(
        "access of nobody",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {"spec": {"resourceAttributes": {"verb": "get"}}},
        by="node",
    ),
    post(
        "access to nothing",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {"spec": {"user": "u"}},
        by="node",
    ),
    post(
        "access by an account",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {"spec": {"user": "u"}},
        by="account",
    ),
    delete("another's pod deleted", PODS + "/far", by="node"),
    delete("all pods deleted", PODS, by="node"),
]

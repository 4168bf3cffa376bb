"""Reviews of permissions and identities, as kubectl, the agent and clients request them."""

from __future__ import annotations

from typing import Any

from tests.contract.conversation import Step, delete, get, post
from tests.contract.conversations.objects import PODS, here

_AUTHORIZATION = "/apis/authorization.k8s.io/v1"
_SELF = f"{_AUTHORIZATION}/selfsubjectaccessreviews"
_RULES = f"{_AUTHORIZATION}/selfsubjectrulesreviews"
_SUBJECT = f"{_AUTHORIZATION}/subjectaccessreviews"
_LOCAL = f"{_AUTHORIZATION}/namespaces/{{ns}}/localsubjectaccessreviews"
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_TOKEN = "/api/v1/namespaces/{ns}/serviceaccounts/default/token"


def _can(verb: str, resource: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": {"verb": verb, "resource": resource, **more}},
    }


def _may(user: str | None, *groups: str, **spec: Any) -> dict[str, Any]:
    requested: dict[str, Any] = dict(spec)
    if user is not None:
        requested["user"] = user
    if groups:
        requested["groups"] = list(groups)
    return {
        "kind": "SubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": requested,
    }


def _attributes(verb: str, resource: str, **more: Any) -> dict[str, Any]:
    return {"resourceAttributes": {"verb": verb, "resource": resource, **more}}


_NODES = "system:nodes"
_A_NODE = "system:node:{node}"

STEPS: list[Step] = [
    # kubectl auth can-i
    post("can I, admin", _SELF, _can("create", "pods", namespace="{ns}")),
    post("can I, admin, everything", _SELF, _can("*", "*", group="*", version="*")),
    post("can I, account", _SELF, _can("create", "pods", namespace="{ns}"), by="account"),
    post("can I, node", _SELF, _can("get", "nodes", name="{node}"), by="node"),
    post("can I, node, another node", _SELF, _can("get", "nodes", name="{other}"), by="node"),
    post(
        "can I, node, leases",
        _SELF,
        _can(
            "update",
            "leases",
            group="coordination.k8s.io",
            namespace="kube-node-lease",
            name="{node}",
        ),
        by="node",
    ),
    post("can I, node, all secrets", _SELF, _can("list", "secrets"), by="node"),
    post("can I, nobody", _SELF, _can("get", "pods"), by="nobody"),
    post("can I, a made-up token", _SELF, _can("get", "pods"), by="liar"),
    post(
        "can I, a path",
        _SELF,
        {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}},
    ),
    post(
        "can I, a path, account",
        _SELF,
        {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/healthz"}}},
        by="account",
    ),
    post(
        "can I, a secret path, account",
        _SELF,
        {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}},
        by="account",
    ),
    post("can I, nothing", _SELF, {"spec": {}}),
    post("can I, no spec", _SELF, {}),
    post(
        "can I, both",
        _SELF,
        {
            "spec": {
                **_attributes("get", "pods"),
                "nonResourceAttributes": {"verb": "get", "path": "/x"},
            }
        },
    ),
    post(
        "can I, selectors",
        _SELF,
        _can(
            "list",
            "pods",
            fieldSelector={
                "requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["{node}"]}]
            },
        ),
        by="node",
    ),
    post(
        "can I, both forms of a selector",
        _SELF,
        _can(
            "list",
            "pods",
            fieldSelector={
                "rawSelector": "a=b",
                "requirements": [{"key": "a", "operator": "In", "values": ["b"]}],
            },
        ),
    ),
    post("can I, with a name", _SELF, {**_can("get", "pods"), "metadata": {"name": "x"}}),
    get("a review is not stored", _SELF),
    delete("nor deleted", _SELF + "/x"),
    post("can I, dry run", _SELF, _can("get", "pods"), query={"dryRun": "All"}),
    post(
        "can I, unknown field",
        _SELF,
        {"spec": {"user": "u", **_attributes("get", "pods")}},
        query={"fieldValidation": "Strict"},
    ),
    # kubectl auth can-i --list
    post("my rules, no namespace", _RULES, {"spec": {}}),
    # the agent requests a review of its own clients
    post(
        "subject, an administrator",
        _SUBJECT,
        _may("u", "system:masters", **_attributes("get", "nodes", subresource="proxy")),
        by="node",
    ),
    post(
        "subject, a node, its pod's logs",
        _SUBJECT,
        _may(_A_NODE, _NODES, **_attributes("get", "nodes", subresource="log", name="{node}")),
        by="node",
    ),
    post(
        "subject, groups only",
        _SUBJECT,
        _may(None, "system:masters", **_attributes("get", "pods")),
        by="node",
    ),
    post(
        "subject, an account",
        _SUBJECT,
        _may(
            "system:serviceaccount:{ns}:default",
            "system:serviceaccounts",
            **_attributes("get", "nodes", subresource="metrics", name="{node}"),
        ),
        by="node",
    ),
    post(
        "subject, with a uid and extra",
        _SUBJECT,
        _may("u", uid="7", extra={"scopes": ["a"]}, **_attributes("get", "pods")),
        by="node",
    ),
    post(
        "subject, a path",
        _SUBJECT,
        _may("u", nonResourceAttributes={"verb": "get", "path": "/metrics"}),
        by="node",
    ),
    post(
        "subject, anonymous, a public path",
        _SUBJECT,
        _may(
            "system:anonymous",
            "system:unauthenticated",
            nonResourceAttributes={"verb": "get", "path": "/version"},
        ),
        by="node",
    ),
    post(
        "subject, anonymous, a node",
        _SUBJECT,
        _may(
            "system:anonymous",
            "system:unauthenticated",
            **_attributes("get", "nodes", subresource="stats", name="{node}"),
        ),
        by="node",
    ),
    post(
        "subject, both",
        _SUBJECT,
        _may(
            "u", **_attributes("get", "pods"), nonResourceAttributes={"verb": "get", "path": "/x"}
        ),
        by="node",
    ),
    post("subject, a list for a user", _SUBJECT, {"spec": {"user": ["u"]}}, by="node"),
    post("subject, nobody asks", _SUBJECT, _may("u", **_attributes("get", "pods")), by="nobody"),
    post(
        "subject, an account asks", _SUBJECT, _may("u", **_attributes("get", "pods")), by="account"
    ),
    post(
        "local, an administrator",
        _LOCAL,
        {
            **_may("u", "system:masters", **_attributes("get", "pods", namespace="{ns}")),
            "kind": "LocalSubjectAccessReview",
            "metadata": {"namespace": "{ns}"},
        },
    ),
    post(
        "local, another namespace",
        _LOCAL,
        {
            **_may("u", **_attributes("get", "pods", namespace="default")),
            "kind": "LocalSubjectAccessReview",
        },
    ),
    # tokens
    post("a pod", PODS, here("p", serviceAccountName="default"), keep={"uid": "metadata.uid"}),
    post(
        "a token",
        _TOKEN,
        {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {"expirationSeconds": 600},
        },
        keep={"token": "status.token"},
    ),
    post(
        "whose token",
        _TOKENS,
        {
            "kind": "TokenReview",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {"token": "{token}"},
        },
        keep={"audience": "status.audiences.0"},
        by="node",
    ),
    post(
        "whose token, for us",
        _TOKENS,
        {"spec": {"token": "{token}", "audiences": ["{audience}", "x"]}},
        by="node",
    ),
    post("whose token, nobody asks", _TOKENS, {"spec": {"token": "{token}"}}, by="nobody"),
    post("whose token, an account asks", _TOKENS, {"spec": {"token": "{token}"}}, by="account"),
    post("whose token, a number", _TOKENS, {"spec": {"token": 7}}, by="node"),
    # kubectl auth whoami
    post(
        "who am I, account",
        _WHO,
        {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"},
        by="account",
    ),
    post("who am I, node", _WHO, {}, by="node"),
    post("who am I, nobody", _WHO, {}, by="nobody"),
]

"""Certificate requests: who may make, approve and sign them, and what comes out."""

from __future__ import annotations

from tests.contract.conversation import Step, delete, get, patch, post, put, watch
from tests.contract.conversations.objects import JSON

_CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
_SERVING = "kubernetes.io/kubelet-serving"
_CONDITION = {"status": "True", "reason": "Contract", "message": "by hand"}


def _csr(name: str, request: str, signer: str = _CLIENT, **more: object) -> JSON:
    kind = "server auth" if signer == _SERVING else "client auth"
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "{node}-" + name},
        "spec": {
            "request": request,
            "signerName": signer,
            "usages": ["digital signature", kind],
            **more,
        },
    }


def _path(name: str) -> str:
    return _CSRS + "/{node}-" + name


def _decide(name: str, of: str, kind: str, **more: object) -> Step:
    condition = {"type": kind, **_CONDITION, **more}
    return patch(name, _path(of) + "/approval", {"status": {"conditions": [condition]}}, "merge")


def _signed(name: str, of: str, *, events: int) -> Step:
    """A watch until the signer has written."""
    return watch(
        name,
        _CSRS,
        _decide(f"{name}: approved", of, "Approved"),
        events=events,
        fieldSelector="metadata.name={node}-" + of,
    )


STEPS = [
    post("by the node", _CSRS, _csr("own", "{csr_client}"), by="node"),
    post("exists", _CSRS, _csr("own", "{csr_client}"), by="node"),
    post("for another node", _CSRS, _csr("far", "{csr_of_other}"), by="node"),
    post(
        "serving, for another node", _CSRS, _csr("x", "{csr_serving_of_other}", _SERVING), by="node"
    ),
    post("of a stranger, by the node", _CSRS, _csr("x", "{csr_stranger}"), by="node"),
    post("with a name, by the node", _CSRS, _csr("x", "{csr_client_with_name}"), by="node"),
    post("by an account", _CSRS, _csr("x", "{csr_client}"), by="account"),
    post("serving", _CSRS, _csr("serving", "{csr_serving}", _SERVING), by="node"),
    get("serving waits", _path("serving"), by="node"),
    patch(
        "approved by the node",
        _path("serving") + "/approval",
        {"status": {"conditions": [{"type": "Approved", **_CONDITION}]}},
        "merge",
        by="node",
    ),
    patch(
        "signed by the node",
        _path("serving") + "/status",
        {"status": {"certificate": "YQ=="}},
        "merge",
        by="node",
    ),
    _signed("serving is signed", "serving", events=3),
    get("the serving certificate", _path("serving"), by="node"),
    _decide("approved again", "serving", "Approved", message="again"),
    _decide("denied when approved", "serving", "Denied"),
    patch(
        "approval taken away",
        _path("serving") + "/approval",
        {"status": {"conditions": []}},
        "merge",
    ),
    patch("another request", _path("serving"), {"spec": {"request": "{csr_client}"}}, "merge"),
    patch(
        "certificate changed",
        _path("serving") + "/status",
        {"status": {"certificate": None}},
        "merge",
    ),
    patch("label", _path("serving"), {"metadata": {"labels": {"a": "b"}}}, "merge"),
    post("to deny", _CSRS, _csr("denied", "{csr_serving}", _SERVING), by="node"),
    _decide("denied", "denied", "Denied"),
    _decide("both", "denied", "Approved"),
    get("denied stays", _path("denied"), by="node"),
    post("with two decisions", _CSRS, _csr("two", "{csr_serving}", _SERVING), by="node"),
    patch(
        "approved and denied at once",
        _path("two") + "/approval",
        {
            "status": {
                "conditions": [{"type": "Approved", **_CONDITION}, {"type": "Denied", **_CONDITION}]
            }
        },
        "merge",
    ),
    _decide("unknown decision", "two", "Considered"),
    _decide("decision that is false", "two", "Approved", status="False"),
    _decide("decision without status", "two", "Approved", status=""),
    _decide("failed by approval", "two", "Failed"),
    patch(
        "approved by the main path",
        _path("two"),
        {"status": {"conditions": [{"type": "Approved", **_CONDITION}]}},
        "merge",
    ),
    patch(
        "approved by status",
        _path("two") + "/status",
        {"status": {"conditions": [{"type": "Approved", **_CONDITION}]}},
        "merge",
    ),
    patch(
        "a certificate that is none",
        _path("two") + "/status",
        {"status": {"certificate": "YQ=="}},
        "merge",
    ),
    put("approval of what is not there", _path("none") + "/approval", _csr("none", "{csr_client}")),
    post(
        "serving without names",
        _CSRS,
        _csr("nameless", "{csr_serving_without_names}", _SERVING),
        by="node",
    ),
    _signed("serving without names fails", "nameless", events=3),
    post("client with a name", _CSRS, _csr("named", "{csr_client_with_name}")),
    _signed("client with a name fails", "named", events=3),
    post(
        "a short life",
        _CSRS,
        _csr("short", "{csr_client}", expirationSeconds=600),
        keep={"rv": "metadata.resourceVersion"},
    ),
    # an administrator may request any node's certificate, so it is approved automatically
    watch(
        "approved and signed",
        _CSRS,
        events=2,
        fieldSelector="metadata.name={node}-short",
        resourceVersion="{rv}",
    ),
    post("too short a life", _CSRS, _csr("x", "{csr_client}", expirationSeconds=60)),
    post(
        "wrong usages", _CSRS, _csr("usages", "{csr_client}", usages=["client auth", "cert sign"])
    ),
    _signed("wrong usages fail", "usages", events=3),
    post("unknown usage", _CSRS, _csr("x", "{csr_client}", usages=["eating"])),
    post("no usages", _CSRS, _csr("x", "{csr_client}", usages=[])),
    post("a usage twice", _CSRS, _csr("x", "{csr_client}", usages=["client auth", "client auth"])),
    post("no request", _CSRS, _csr("x", "")),
    post("a request that is none", _CSRS, _csr("x", "YQ==")),
    post("no signer", _CSRS, _csr("x", "{csr_client}", signerName="")),
    post("a bad signer", _CSRS, _csr("x", "{csr_client}", signerName="nobody")),
    post(
        "a made-up user",
        _CSRS,
        _csr("liar", "{csr_client}", username="system:admin", groups=["system:masters"]),
        by="node",
    ),
    post("another signer", _CSRS, _csr("other", "{csr_stranger}", "example.test/signer")),
    get("of a signer", _CSRS, query={"fieldSelector": "spec.signerName=example.test/signer"}),
    get(
        "requests listed by the node",
        _CSRS,
        query={"fieldSelector": "spec.signerName=example.test/signer"},
        by="node",
    ),
    get("another's request", _path("serving"), by="other"),
    delete("deleted by the node", _path("own"), by="node"),
    *(
        delete(f"{name} removed", _path(name))
        for name in (
            "own",
            "serving",
            "denied",
            "two",
            "nameless",
            "named",
            "short",
            "usages",
            "liar",
            "other",
        )
    ),
]

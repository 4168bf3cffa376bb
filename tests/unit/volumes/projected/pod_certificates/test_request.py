"""The objects: the request that is created, the answer that is read, the key and its proof."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from kubeletpy.base.host.pki import CertificateError
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.projected.pod_certificates.keys import new_key
from kubeletpy.volumes.projected.pod_certificates.state import (
    FAILED,
    MAX_CHAIN_CHARACTERS,
    CertificateRequestStatus,
    answer_of,
    request_object,
)

DER = b"a" * 60
PEM = base64.b64encode(DER).decode()
BLOCK = f"-----BEGIN CERTIFICATE-----\n{PEM[:64]}\n{PEM[64:]}\n-----END CERTIFICATE-----\n"
WITH_HEADER = BLOCK.replace("-----\n", "-----\nProc-Type: 4,ENCRYPTED\n\n", 1)
TIMES = {"beginRefreshAt": "2026-01-01T00:00:10Z", "notAfter": "2026-01-01T01:00:00Z"}
SPEC = {"serviceAccountName": "sa", "containers": [{"name": "c"}]}
ISSUED = {"conditions": [{"type": "Issued", "status": "True"}]}


def test_the_request() -> None:
    metadata = {"name": "p", "namespace": "ns", "uid": "u"}
    pod = Pod(cast(Any, {"metadata": metadata, "spec": SPEC}))
    source = {
        "signerName": "example.com/s",
        "keyType": "ED25519",
        "maxExpirationSeconds": 3600,
        "userAnnotations": {"example.com/a": "b"},
    }
    made = request_object(
        pod,
        source,
        b"proof",
        account_uid="sa-uid",
        node_name="n",
        node_uid="n-uid",
        api_version="certificates.k8s.io/v1",
    )
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    assert made == {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "PodCertificateRequest",
        "metadata": {"namespace": "ns", "generateName": "req-", "ownerReferences": [owner]},
        "spec": {
            "signerName": "example.com/s",
            "podName": "p",
            "podUID": "u",
            "serviceAccountName": "sa",
            "serviceAccountUID": "sa-uid",
            "nodeName": "n",
            "nodeUID": "n-uid",
            "maxExpirationSeconds": 3600,
            "unverifiedUserAnnotations": {"example.com/a": "b"},
            "stubPKCS10Request": base64.b64encode(b"proof").decode(),
        },
    }


@pytest.mark.parametrize(
    ("status", "outcome", "reason"),
    [
        ({}, "", ""),
        ({"conditions": [{"type": "Other"}]}, "", ""),
        ({"conditions": [{"type": "Denied", "reason": "No"}]}, "Denied", "No"),
        ({"conditions": [{"type": "Failed", "reason": "No"}]}, FAILED, "No"),
        (ISSUED, FAILED, "Unreadable"),
        ({**ISSUED, **TIMES, "certificateChain": "none"}, FAILED, "Unreadable"),
        ({**ISSUED, "certificateChain": BLOCK}, FAILED, "Unreadable"),
        (
            {**ISSUED, **TIMES, "certificateChain": BLOCK + " " * MAX_CHAIN_CHARACTERS},
            FAILED,
            "Unreadable",
        ),
    ],
)
def test_answers_without_a_certificate(status: Any, outcome: str, reason: str) -> None:
    answer = answer_of({"metadata": {}, "status": status})
    assert (answer.outcome, answer.reason, answer.chain) == (outcome, reason, b"")


def test_a_chain_is_cleaned_of_all_but_its_certificates() -> None:
    text = f"remark\n{BLOCK}between\n{WITH_HEADER}end"
    answer = answer_of({"status": {**ISSUED, **TIMES, "certificateChain": text}})
    expected = CertificateRequestStatus(
        "Issued", "", "", 2 * BLOCK.encode(), 1767225610.0, 1767229200.0
    )
    assert answer == expected


@pytest.mark.parametrize(
    ("key_type", "kind", "size"),
    [
        ("RSA3072", rsa.RSAPrivateKey, 3072),
        ("RSA4096", rsa.RSAPrivateKey, 4096),
        ("ECDSAP256", ec.EllipticCurvePrivateKey, 256),
        ("ECDSAP384", ec.EllipticCurvePrivateKey, 384),
        ("ECDSAP521", ec.EllipticCurvePrivateKey, 521),
        ("ED25519", ed25519.Ed25519PrivateKey, None),
    ],
)
def test_keys_are_pkcs8_and_prove_that_we_have_them(
    key_type: str, kind: type, size: int | None
) -> None:
    made = new_key(key_type)
    key, request = load_pem_private_key(made.key, None), x509.load_der_x509_csr(made.proof)
    assert made.key.startswith(b"-----BEGIN PRIVATE KEY-----\n")
    assert isinstance(key, kind)
    assert getattr(key, "key_size", None) == size
    assert request.is_signature_valid
    assert request.public_key() == cast(Any, key).public_key()
    assert not list(request.subject)
    assert not list(request.extensions)
    assert "PRIVATE" not in repr(made)


def test_an_unknown_type_of_key_is_named() -> None:
    with pytest.raises(CertificateError, match="keyType 'RSA1024' is none of RSA3072, RSA4096"):
        new_key("RSA1024")

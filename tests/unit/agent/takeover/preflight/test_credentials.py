"""Findings of a preflight about kubeconfig and certificates."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kubeletpy.agent.takeover.preflight.settings import check_credentials
from kubeletpy.config import NodeFlags, default_settings

KUBECONFIG = """apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://10.0.0.1:6443"}}]
users: [{name: u, user: {%s}}]
"""


def found(root: Path, kubeconfig: str | None, now: float, **more: object) -> list[str]:
    path = root / "kubeconfig"
    if kubeconfig is not None:
        path.write_text(kubeconfig)
    flags = NodeFlags(root_dir=str(root), kubeconfig=str(path))
    settings = default_settings(enableServer=False, **more)
    checked = check_credentials(settings, flags, now)
    return [f"{each.severity}: {each.text.replace(f'{root}/', '')}" for each in checked]


def test_a_token(tmp_path: Path) -> None:
    assert found(tmp_path, KUBECONFIG % "token: hidden", 0) == [
        "note: kubeconfig: no client certificate: a token or a program"
    ]


def test_a_missing_kubeconfig_blocks(tmp_path: Path) -> None:
    (text,) = found(tmp_path, None, 0)
    assert text.startswith("blocks: kubeconfig: ")
    assert text.endswith("the agent does not start with it")


def test_a_half_written_kubeconfig_blocks(tmp_path: Path) -> None:
    (text,) = found(tmp_path, KUBECONFIG[:50], 0)
    assert text.startswith("blocks: kubeconfig: ")


def test_no_kubeconfig_is_standalone(tmp_path: Path) -> None:
    flags = NodeFlags(root_dir=str(tmp_path))
    (finding,) = check_credentials(default_settings(enableServer=False), flags, 0)
    assert (
        finding.text == "--kubeconfig: not set: only static pods are run, and nothing is reported"
    )


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate with its key, valid for ten days."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "system:node:n")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=10))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path / "pki" / "kubelet-client-current.pem"
    path.parent.mkdir()
    path.write_bytes(made.public_bytes(pem) + private)
    return path


def config_of(certificate: Path) -> str:
    return KUBECONFIG % f"client-certificate: {certificate}, client-key: {certificate}"


@pytest.mark.parametrize(
    ("rotate", "days", "start", "end"),
    [
        (True, 0, "taken: ", "the agent renews it"),
        (False, 0, "taken: ", "it is not renewed: rotateCertificates is off"),
        (True, 20, "unclear: ", "the API server or the clients of the node refuse it"),
    ],
)
def test_a_client_certificate(
    tmp_path: Path, certificate: Path, *, rotate: bool, days: int, start: str, end: str
) -> None:
    now = time.time() + days * 86400
    (text,) = found(tmp_path, config_of(certificate), now, rotateCertificates=rotate)
    assert text.startswith(f"{start}pki/kubelet-client-current.pem: client certificate, ")
    assert text.endswith(end)


def test_a_damaged_certificate_is_named(tmp_path: Path, certificate: Path) -> None:
    certificate.write_bytes(certificate.read_bytes()[:100])
    (text,) = found(tmp_path, config_of(certificate), 0, rotateCertificates=True)
    assert text.startswith("unclear: pki/kubelet-client-current.pem: client certificate: ")


def test_a_server_certificate_is_made(tmp_path: Path) -> None:
    flags = NodeFlags(root_dir=str(tmp_path))
    texts = [each.text for each in check_credentials(default_settings(), flags, 0)]
    assert texts[1:] == [
        f"{tmp_path}/pki/kubelet.crt: no certificate of the node's own port: the agent makes one"
    ]

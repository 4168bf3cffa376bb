"""Findings of a preflight about settings, flags and gates."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kubeletpy.agent.takeover.preflight.checks import FIELDS, other_effects
from kubeletpy.agent.takeover.preflight.findings import KubeletFound, Severity
from kubeletpy.agent.takeover.preflight.settings import check_credentials, load_settings, read_flags
from kubeletpy.config import NodeFlags, default_settings
from tools.rulebook import differences

HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


def found(directory: Path, document: object, *flags: str) -> list[tuple[Severity, str]]:
    (directory / "config.yaml").write_text(
        document if isinstance(document, str) else json.dumps(document)
    )
    arguments = ("--config=config.yaml", f"--root-dir={directory}", "--cert-dir=/pki", *flags)
    kubelet = KubeletFound("here", "kubelet", arguments, str(directory))
    values, problems = read_flags(kubelet)
    if values is None:
        return [(each.severity, each.text) for each in problems]
    return [(each.severity, each.text) for each in load_settings(values).findings]


def test_an_unknown_field_beside_an_error_is_a_note(tmp_path: Path) -> None:
    (problem, note) = found(tmp_path, {**HEAD, "maxPods": -1, "syncFreqency": "10s"})
    assert problem[0] is Severity.BLOCKS
    assert "maxPods" in problem[1]
    assert note[0] is Severity.NOTE
    assert "did you mean syncFrequency?; it is skipped" in note[1]


@pytest.mark.parametrize(
    ("fields", "flags", "expected"),
    [
        ({}, [], []),
        (
            {"hairpinMode": "hairpin-veth"},
            [],
            [
                (
                    Severity.DIFFERS,
                    'hairpinMode: "hairpin-veth": the network of pods is the runtime\'s; the '
                    "kubelet does nothing either",
                )
            ],
        ),
        (
            {"featureGates": {"ImageVolumeWithDigest": True}},
            [],
            [
                (
                    Severity.DIFFERS,
                    "feature gate ImageVolumeWithDigest: true: statuses do not show the digests of "
                    "image volumes",
                )
            ],
        ),
        (
            {},
            ["--housekeeping-interval=10s"],
            [
                (
                    Severity.DIFFERS,
                    '--housekeeping-interval: "10s": this agent measures by itself, without '
                    "cAdvisor",
                )
            ],
        ),
        (
            {},
            ["--max-pods=50"],
            [
                (
                    Severity.NOTE,
                    "flag --max-pods is deprecated: set maxPods in the file given to --config",
                )
            ],
        ),
        (
            {},
            ["--no-such=1"],
            [(Severity.BLOCKS, "--no-such: no such flag: the agent does not start with it")],
        ),
        ({"maxPods": -1}, [], None),
        ("{", [], None),
    ],
)
def test_findings(
    tmp_path: Path,
    fields: dict[str, object] | str,
    flags: list[str],
    expected: list[tuple[Severity, str]] | None,
) -> None:
    document = fields if isinstance(fields, str) else {**HEAD, **fields}
    texts = found(tmp_path, document, *flags)
    if expected is not None:
        assert texts == expected
        return
    ((severity, text),) = texts
    assert severity is Severity.BLOCKS
    assert "config.yaml" in text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    kubelet = KubeletFound("here", "kubelet", ("--config=gone.yaml",), str(tmp_path))
    flags, _ = read_flags(kubelet)
    assert flags is not None
    (finding,) = load_settings(flags).findings
    assert finding.text == (
        f"--config: {tmp_path}/gone.yaml: cannot be read: No such file or directory: the agent "
        "does not start with it"
    )


def test_secrets_are_masked(tmp_path: Path) -> None:
    texts = found(tmp_path, HEAD, "--storage-driver-password=hidden")
    assert len(texts) == 1
    assert "hidden" not in texts[0][1]


def test_fields_with_another_effect() -> None:
    requested = {"endpoint": "localhost:4317", "samplingRatePerMillion": 10}
    settings = default_settings(enableServer=False, tracing=requested)
    assert [each.name for each in other_effects(settings, NodeFlags())] == list(FIELDS)
    assert other_effects(default_settings(), NodeFlags()) == []


def test_certificates_move_with_the_root_directory() -> None:
    (notice,) = other_effects(default_settings(), NodeFlags(root_dir="/data/kubelet"))
    assert notice.name == "--root-dir"
    assert notice.consequence == (
        "certificates are in /data/kubelet/pki; the kubelet has them in /var/lib/kubelet/pki: give "
        "the agent --cert-dir"
    )


def test_all_fields_of_the_table_with_another_effect_are_known() -> None:
    rows = [each for each in differences.listed() if each.table == "config.csv"]
    assert {each.row for each in rows if each.here == "partly"} == set(FIELDS)


# Findings of a preflight about kubeconfig and certificates.

KUBECONFIG = """apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://10.0.0.1:6443"}}]
users: [{name: u, user: {%s}}]
"""


def credentials_found(root: Path, kubeconfig: str | None, now: float, **more: object) -> list[str]:
    path = root / "kubeconfig"
    if kubeconfig is not None:
        path.write_text(kubeconfig)
    flags = NodeFlags(root_dir=str(root), kubeconfig=str(path))
    settings = default_settings(enableServer=False, **more)
    checked = check_credentials(settings, flags, now)
    return [f"{each.severity}: {each.text.replace(f'{root}/', '')}" for each in checked]


def test_a_token(tmp_path: Path) -> None:
    assert credentials_found(tmp_path, KUBECONFIG % "token: hidden", 0) == [
        "note: kubeconfig: no client certificate: a token or a program"
    ]


def test_a_missing_kubeconfig_blocks(tmp_path: Path) -> None:
    (text,) = credentials_found(tmp_path, None, 0)
    assert text.startswith("blocks: kubeconfig: ")
    assert text.endswith("the agent does not start with it")


def test_a_half_written_kubeconfig_blocks(tmp_path: Path) -> None:
    (text,) = credentials_found(tmp_path, KUBECONFIG[:50], 0)
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
    (text,) = credentials_found(tmp_path, config_of(certificate), now, rotateCertificates=rotate)
    assert text.startswith(f"{start}pki/kubelet-client-current.pem: client certificate, ")
    assert text.endswith(end)


def test_a_damaged_certificate_is_named(tmp_path: Path, certificate: Path) -> None:
    certificate.write_bytes(certificate.read_bytes()[:100])
    (text,) = credentials_found(tmp_path, config_of(certificate), 0, rotateCertificates=True)
    assert text.startswith("unclear: pki/kubelet-client-current.pem: client certificate: ")


def test_a_server_certificate_is_made(tmp_path: Path) -> None:
    flags = NodeFlags(root_dir=str(tmp_path))
    texts = [each.text for each in check_credentials(default_settings(), flags, 0)]
    assert texts[1:] == [
        f"{tmp_path}/pki/kubelet.crt: no certificate of the node's own port: the agent makes one"
    ]

"""The keys, certificates and kubeconfigs of a control plane: one authority signs everything."""

from __future__ import annotations

import datetime
import ipaddress
import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=7)
SERVER_NAMES = (
    *("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
    *("127.0.0.1", "10.96.0.1"),
)
_CLUSTER = "kubeletpy"


class Authority:
    """Signs certificates; every file is in ``directory``, keys with mode 0600."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.ca = directory / "ca.crt"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("kubernetes-ca")
        builder = _builder(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.ca.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        _write_key(directory / "ca.key", self._key)
        account = ec.generate_private_key(ec.SECP256R1())
        _write_key(directory / "sa.key", account)
        (directory / "sa.pub").write_bytes(
            account.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )

    def issue(
        self,
        file: str,
        user: str,
        group: str = "",
        names: tuple[str, ...] = (),
        *,
        both: bool = False,
    ) -> tuple[Path, Path]:
        """Make ``file.crt`` and ``file.key`` for a client, or a server with ``names``.

        ``both``: a server that is a client of its own kind, such as a member of etcd.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH]
        if both:
            usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        builder = _builder(_name(user, group), self._name, key).add_extension(
            x509.ExtendedKeyUsage(usages), critical=False
        )
        if names:
            alternatives = x509.SubjectAlternativeName([_alternative(each) for each in names])
            builder = builder.add_extension(alternatives, critical=False)
        certificate, private = self.directory / f"{file}.crt", self.directory / f"{file}.key"
        certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        _write_key(private, key)
        return certificate, private

    def kubeconfig(self, file: str, url: str, user: str, group: str = "") -> Path:
        """Issue a client certificate, and write a kubeconfig that uses it."""
        certificate, key = self.issue(file, user, group)
        path = self.directory / f"{file}.kubeconfig"
        cluster = {"server": url, "certificate-authority": str(self.ca)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": _CLUSTER, "cluster": cluster}],
            "users": [
                {
                    "name": user,
                    "user": {"client-certificate": str(certificate), "client-key": str(key)},
                }
            ],
            "contexts": [{"name": _CLUSTER, "context": {"cluster": _CLUSTER, "user": user}}],
            "current-context": _CLUSTER,
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return path


def _name(user: str, group: str = "") -> x509.Name:
    organization = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name([*organization, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )

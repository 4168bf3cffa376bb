"""The node's kubeconfig: the certificate it names, whether that is still valid, and writing one.

Connections are made elsewhere, by the official client's loader. Blocking; must never log what is in
a file.
"""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import Any

import yaml

from kubeletpy.api.scrub import first_line
from kubeletpy.api.types import JSON
from kubeletpy.host.key_pair import KeyPair
from kubeletpy.host.pki import CertificateError
from kubeletpy.host.private_files import write_private
from kubeletpy.kubeapi.credentials import KubeconfigError
from kubeletpy.structs import Struct

_CLUSTER_FILES = ("certificate-authority",)
_FILES = ("client-certificate", "client-key", "tokenFile")
_MAX_BYTES = 1024 * 1024


class CurrentContext(Struct, frozen=True):
    """A kubeconfig's current context, with relative paths made absolute.

    ``cluster`` and ``user`` are as in the file.
    """

    path: Path
    cluster: JSON
    user: JSON

    def files(self) -> list[Path]:
        """The files that determine the credentials: the kubeconfig and those it names."""
        named = [self.cluster.get(key) for key in _CLUSTER_FILES]
        named += [self.user.get(key) for key in _FILES]
        return [self.path, *(Path(each) for each in named if each and isinstance(each, str))]

    def certificate_files(self) -> KeyPair | None:
        """The client certificate and key, if they are files."""
        certificate, key = (self.user.get(name) for name in _FILES[:2])
        if not (certificate and isinstance(certificate, str) and key and isinstance(key, str)):
            return None
        return KeyPair(Path(certificate), Path(key))

    def inline_certificate(self) -> tuple[bytes, bytes] | None:
        """The client certificate and key (PEM), if they are inline."""
        given = [self.user.get(f"{name}-data") for name in _FILES[:2]]
        if not all(isinstance(each, str) and each for each in given):
            return None
        try:
            certificate, key = (base64.b64decode(str(each)) for each in given)
        except (binascii.Error, ValueError):
            return None
        return certificate, key


def read_kubeconfig(path: Path) -> CurrentContext:
    """Read a kubeconfig.

    Raises:
        KubeconfigError: it is missing or can't be read.
    """
    try:
        with path.open("rb") as file:
            found = yaml.safe_load(file.read(_MAX_BYTES))
        contexts, clusters, users = (
            {str(each["name"]): each.get(kind) or {} for each in found.get(f"{kind}s") or ()}
            for kind in ("context", "cluster", "user")
        )
        context = contexts[str(found.get("current-context") or "")]
        cluster, user = dict(clusters[context["cluster"]]), dict(users.get(context["user"], {}))
    except (OSError, yaml.YAMLError, UnicodeError) as error:
        raise KubeconfigError(f"kubeconfig {path}: {first_line(error)}") from None
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        why = f"it has no usable current context ({type(error).__name__})"
        raise KubeconfigError(f"kubeconfig {path}: {why}") from None
    for part, keys in ((cluster, _CLUSTER_FILES), (user, _FILES)):
        for key in keys:
            if isinstance(part.get(key), str) and part[key]:
                part[key] = str(path.absolute().parent / part[key])
    return CurrentContext(path, cluster, user)


def why_not_valid(path: Path, now: float) -> str:
    """Why a kubeconfig yields no client certificate that is valid at ``now``; empty: it does.

    Args:
        now: Unix seconds.
    """
    from kubeletpy.host import x509

    try:
        context = read_kubeconfig(path)
        inline, files = context.inline_certificate(), context.certificate_files()
        if inline is not None:
            pem = inline[0]
        elif files is not None:
            files.key.stat()
            pem = files.certificate.read_bytes()
        else:
            return "it names no client certificate"
        for each in x509.certificates_of(pem) or [pem]:
            if now > x509.read_certificate(each).not_after:
                return "its client certificate has ended"
    except (KubeconfigError, CertificateError, OSError) as error:
        return first_line(error)
    return ""


def write(path: Path, like: CurrentContext, pair: Path) -> None:
    """Write a node's kubeconfig: the cluster of another kubeconfig, with the node's certificate.

    Args:
        like: the kubeconfig that was used to request the certificate.
        pair: file with the certificate and its key.

    Raises:
        OSError: it can't be written.
    """
    user = {"client-certificate": str(pair), "client-key": str(pair)}
    context = {"cluster": "default-cluster", "namespace": "default", "user": "default-auth"}
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default-cluster", "cluster": like.cluster}],
        "contexts": [{"name": "default-context", "context": context}],
        "current-context": "default-context",
        "preferences": {},
        "users": [{"name": "default-auth", "user": user}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # through JSON: what YAML parsed as dates or the like becomes text again
    write_private(path, yaml.safe_dump(json.loads(json.dumps(content, default=str))))

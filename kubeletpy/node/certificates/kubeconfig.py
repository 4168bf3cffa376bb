"""The node's kubeconfig: whether its certificate is still valid, and writing one.

Connections are made elsewhere. Blocking; must never log what is in a file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from kubeletpy.base.host.files import write_private
from kubeletpy.base.host.pki import CertificateError
from kubeletpy.base.text import first_line
from kubeletpy.kubeapi.kubeconfig import CurrentContext, KubeconfigError, read_kubeconfig


def why_not_valid(path: Path, now: float) -> str:
    """Why a kubeconfig yields no client certificate that is valid at ``now``; empty: it does.

    Args:
        now: Unix seconds.
    """
    from kubeletpy.base.host import x509

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

"""Kubeconfig files for the embedded API: one for people, one for the node.

Must never log a token. Files are private and replaced atomically.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from kubeletpy.base.host.files import write_private


def render(server: str, ca_pem: str, user: str, token: str) -> str:
    """A kubeconfig (JSON, which is YAML too) for one user of one server.

    Args:
        server: URL, such as ``https://127.0.0.1:6443``.
        ca_pem: the authority that signed the server's certificate.
    """
    cluster = "kubeletpy"
    ca = base64.b64encode(ca_pem.encode()).decode()
    context = {"cluster": cluster, "user": user}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [
            {"name": cluster, "cluster": {"server": server, "certificate-authority-data": ca}}
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": cluster, "context": context}],
        "current-context": cluster,
    }
    return json.dumps(config, indent=2) + "\n"


def write(path: Path, server: str, ca_pem: str, user: str, token: str) -> None:
    """Write a kubeconfig, mode 0600. Raises OSError."""
    write_private(path, render(server, ca_pem, user, token))

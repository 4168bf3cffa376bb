"""Certificates: the requests that a conversation sends, and a description of a signed one."""

from __future__ import annotations

import base64

from cryptography import x509

from kubeletpy.base.host.pki import Names
from kubeletpy.base.host.x509 import new_key, new_request
from kubeletpy.node.certificates.request import client_names

NODES = ("system:nodes",)


def requests(node: str, other: str) -> dict[str, str]:
    """Requests by name: base64 of PEM, as in ``spec.request``; all of one new key."""
    user = f"system:node:{node}"
    names = {
        "csr_client": client_names(node),
        "csr_of_other": client_names(other),
        "csr_client_with_name": Names(user, NODES, dns_names=(node,)),
        "csr_serving": Names(user, NODES, dns_names=(node,), ip_addresses=("192.0.2.1",)),
        "csr_serving_of_other": Names(f"system:node:{other}", NODES, dns_names=(other,)),
        "csr_serving_without_names": Names(user, NODES),
        "csr_stranger": Names("stranger", ("strangers",)),
    }
    key = new_key()
    return {
        name: base64.b64encode(new_request(key, requested)).decode()
        for name, requested in names.items()
    }


def described(certificate: str) -> str:
    """Subject and usages of a certificate in a status (base64 of PEM), as one line."""
    try:
        chain = x509.load_pem_x509_certificates(base64.b64decode(certificate))
    except ValueError:
        return "no certificate"
    first = chain[0]
    parts = [f"{len(chain)} certificate(s)", first.subject.rfc4514_string()]
    for extension in sorted(first.extensions, key=lambda each: each.oid.dotted_string):
        value = extension.value
        critical = "critical " if extension.critical else ""
        if isinstance(value, x509.SubjectAlternativeName):
            names = [str(name.value) for name in value]
            parts.append(f"{critical}names {', '.join(names)}")
        elif isinstance(value, x509.ExtendedKeyUsage):
            parts.append(f"{critical}for {', '.join(usage.dotted_string for usage in value)}")
        elif isinstance(value, x509.BasicConstraints):
            parts.append(f"{critical}authority {value.ca}")
        elif isinstance(value, x509.KeyUsage):
            usages = ("digital_signature", "key_encipherment", "key_cert_sign", "crl_sign")
            found = [usage for usage in usages if getattr(value, usage)]
            parts.append(f"{critical}key for {', '.join(found)}")
    return "; ".join(parts)

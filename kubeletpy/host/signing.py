"""Signs requests for certificates with an authority's key: by the openssl command.

Blocking: call it on a thread. What the certificate says is what the caller names, never what the
request claims. Must never write an authority's key.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from kubeletpy.host.openssl import CertificateError, KeyPair, plain, run
from kubeletpy.host.x509 import MAX_PEM_BYTES, Names

_KEY_USAGES = {"digital signature": "digitalSignature", "key encipherment": "keyEncipherment"}
_EXTENDED = {"client auth": "clientAuth", "server auth": "serverAuth"}
_CONFIG = """[ca]
default_ca = signer
[signer]
database = {folder}/index.txt
serial = {folder}/serial
new_certs_dir = {folder}
default_md = sha256
policy = names
unique_subject = no
copy_extensions = none
email_in_dn = no
string_mask = utf8only
[names]
organizationName = optional
commonName = supplied
[leaf]
basicConstraints = critical,CA:FALSE
keyUsage = critical,{usages}
extendedKeyUsage = {extended}
authorityKeyIdentifier = keyid
{alternatives}
"""


def sign_request(
    pem: bytes,
    authority: KeyPair,
    names: Names,
    *,
    usages: Iterable[str],
    not_before: float,
    not_after: float,
) -> bytes:
    """A certificate (PEM) for a request's key.

    Args:
        pem: PKCS #10; its signature must be right. Only its key is taken over: what else it says
            was read from openssl's text, and a subject that reads in two ways must not be signed.
        names: subject and alternative names that the certificate gets.
        usages: as CertificateSigningRequests name them.
        not_before, not_after: Unix seconds.

    Raises:
        CertificateError: the request is broken, a name can't stand in a certificate, or openssl
            failed.
        OSError: no scratch directory.
    """
    given = list(usages)
    plain_usages = [_KEY_USAGES[each] for each in given if each in _KEY_USAGES]
    extended = [_EXTENDED[each] for each in given if each in _EXTENDED]
    if not plain_usages or not extended:
        raise CertificateError("a certificate needs usages")
    alternatives = [f"DNS:{plain(each)}" for each in names.dns_names]
    alternatives += [f"IP:{plain(each)}" for each in names.ip_addresses]
    subject = "".join(f"/O={plain(each)}" for each in names.organizations)
    subject += f"/CN={plain(names.common_name)}"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "index.txt").touch()
        (folder / "serial").write_text(f"{secrets.randbits(127):032x}\n")
        (folder / "request.csr").write_bytes(pem[:MAX_PEM_BYTES])
        config = folder / "signer.conf"
        config.write_text(
            _CONFIG.format(
                folder=folder,
                usages=",".join(plain_usages),
                extended=",".join(extended),
                alternatives="subjectAltName = " + ",".join(alternatives) if alternatives else "",
            )
        )
        run(
            *("ca", "-batch", "-notext", "-preserveDN", "-config", str(config)),
            *("-subj", subject),
            *("-cert", str(authority.certificate), "-keyfile", str(authority.key)),
            *("-startdate", _moment(not_before), "-enddate", _moment(not_after)),
            *("-extensions", "leaf", "-in", str(folder / "request.csr")),
            *("-out", str(folder / "made.crt")),
        )
        try:
            return (folder / "made.crt").read_bytes()
        except FileNotFoundError:
            # openssl calls it no failure when it refuses to sign
            raise CertificateError("the request's own signature is not right") from None


def _moment(seconds: float) -> str:
    return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(seconds))

"""The API's TLS certificate: a private authority and a certificate for loopback, made by openssl.

kubectl sends its token over TLS only, so even a loopback server needs a certificate. Must never
trust or write anything outside its own directory.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kubeletpy.localapi.files import write_private

_DAYS = "3650"
_TIMEOUT_SECONDS = 30
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_SERVER_EXTENSIONS = """\
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default.svc
"""
_CA_EXTENSIONS = (
    "basicConstraints=critical,CA:TRUE",
    "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
)


class CertificateError(Exception):
    """No certificate could be made; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where the PEM files are."""

    ca: Path
    certificate: Path
    key: Path

    def ca_pem(self) -> str:
        """The authority's certificate. Raises OSError."""
        return self.ca.read_text()

    def server_context(self) -> ssl.SSLContext:
        """For the server. Raises OSError or ssl.SSLError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        return context


def ensure(directory: Path) -> Certificates:
    """The certificates in ``directory``, made if they are missing or don't fit together.

    Blocking: runs openssl, once in the life of the directory.

    Raises:
        CertificateError: openssl is missing or failed.
        OSError: the directory can't be written.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = Certificates(directory / "ca.crt", directory / "server.crt", directory / "server.key")
    if _usable(found):
        return found
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        _make(Path(scratch))
        for path in (found.key, found.certificate, directory / "ca.key", found.ca):
            write_private(path, (Path(scratch) / path.name).read_bytes())
    return found


def _usable(found: Certificates) -> bool:
    with contextlib.suppress(OSError, ssl.SSLError, ValueError):
        found.server_context()
        ssl.create_default_context(cadata=found.ca_pem())
        return _openssl("verify", "-CAfile", str(found.ca), str(found.certificate), check=False)
    return False


def _make(scratch: Path) -> None:
    extensions = [part for text in _CA_EXTENSIONS for part in ("-addext", text)]
    ca, server = scratch / "ca", scratch / "server"
    _openssl(
        *("req", "-x509", *_NEW_KEY, "-days", _DAYS, "-subj", "/CN=kubeletpy-local-ca"),
        *extensions,
        *("-keyout", f"{ca}.key", "-out", f"{ca}.crt"),
    )
    _openssl(
        *("req", "-new", *_NEW_KEY, "-subj", "/CN=kubeletpy-local-api"),
        *("-keyout", f"{server}.key", "-out", f"{server}.csr"),
    )
    extension_file = scratch / "extensions"
    extension_file.write_text(_SERVER_EXTENSIONS)
    _openssl(
        *("x509", "-req", "-in", f"{server}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key"),
        *("-CAcreateserial", "-days", _DAYS, "-extfile", str(extension_file)),
        *("-out", f"{server}.crt"),
    )


def _openssl(*arguments: str, check: bool = True) -> bool:
    try:
        done = subprocess.run(
            ["openssl", *arguments],
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise CertificateError(
            "the embedded API needs the openssl command to make its certificate: install it "
            "(apt-get install openssl)"
        ) from None
    except subprocess.TimeoutExpired:
        raise CertificateError("openssl took too long to make a certificate") from None
    if done.returncode != 0 and check:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise CertificateError(f"openssl {arguments[0]} failed: {' '.join(last)}")
    return done.returncode == 0

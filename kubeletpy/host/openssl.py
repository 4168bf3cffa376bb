"""Keys and certificates made by the openssl command: no library of ours does cryptography.

Blocking: call it on a thread. Private keys are elliptic (P-256). Must never print or log a key, and
writes nothing but the files it is told to.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import ssl
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kubeletpy.host.private_files import write_private

_DAYS = "3650"
_TIMEOUT_SECONDS = 30
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_CA_EXTENSIONS = (
    "basicConstraints=critical,CA:TRUE",
    "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
)
_LONG_NAMES = b"""openssl_conf = start
[start]
stbl_section = strings
[strings]
commonName = min:1,max:512
[req]
distinguished_name = asked
[asked]
"""
"""X.520 has 64 characters for a name; a node's name alone may have 253, and nobody else minds."""
_X520_NAME = 64
_LEAF_EXTENSIONS = (
    "basicConstraints=critical,CA:FALSE",
    "keyUsage=critical,digitalSignature",
    "subjectKeyIdentifier=hash",
)


class CertificateError(Exception):
    """No certificate could be made; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key: PEM files."""

    certificate: Path
    key: Path

    @classmethod
    def named(cls, directory: Path, name: str) -> KeyPair:
        """``NAME.crt`` and ``NAME.key`` in a directory."""
        return cls(directory / f"{name}.crt", directory / f"{name}.key")

    def loads(self) -> bool:
        """Whether both are there and belong together."""
        with contextlib.suppress(OSError, ssl.SSLError, ValueError):
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
            return True
        return False

    def store(self, made: KeyPair) -> None:
        """Take over the files of another pair, private and atomically. Raises OSError."""
        write_private(self.key, made.key.read_bytes())
        write_private(self.certificate, made.certificate.read_bytes())


def make_authority(pair: KeyPair, name: str) -> None:
    """A new authority of that common name. Raises CertificateError, OSError."""
    _make(pair, f"/CN={plain(name)}", _CA_EXTENSIONS, None)


def make_self_signed(pair: KeyPair, name: str, alternatives: Sequence[str]) -> None:
    """A server certificate that vouches for itself; ``alternatives`` as in sign()."""
    usage = ("extendedKeyUsage=serverAuth", _alternatives(alternatives))
    _make(pair, f"/CN={plain(name)}", (*_LEAF_EXTENSIONS, *usage), None)


def sign(
    pair: KeyPair,
    authority: KeyPair,
    *,
    name: str,
    organization: str = "",
    server_alternatives: Sequence[str] = (),
) -> None:
    """A certificate of an authority: of a server with alternative names, else of a client.

    Args:
        server_alternatives: such as ``DNS:node-1`` and ``IP:10.0.0.1``.

    Raises:
        CertificateError: openssl is missing or failed, or a name can't stand in a certificate.
        OSError: the files can't be written.
    """
    extensions: tuple[str, ...] = (*_LEAF_EXTENSIONS, "authorityKeyIdentifier=keyid")
    if server_alternatives:
        extensions += ("extendedKeyUsage=serverAuth", _alternatives(server_alternatives))
    else:
        extensions += ("extendedKeyUsage=clientAuth",)
    subject = (f"/O={plain(organization)}" if organization else "") + f"/CN={plain(name)}"
    _make(pair, subject, extensions, authority)


def verifies(authority: Path, *certificates: Path) -> bool:
    """Whether an authority vouches for certificates now. Raises CertificateError."""
    done = _call(("verify", "-CAfile", str(authority), *map(str, certificates)))
    return done.returncode == 0


def is_for_host(certificate: Path, name: str) -> bool:
    """Whether a certificate is valid for a host of that name. Raises CertificateError."""
    done = _call(("x509", "-in", str(certificate), "-noout", "-checkhost", name))
    return b"does match" in done.stdout


def _make(
    pair: KeyPair, subject: str, extensions: Sequence[str], authority: KeyPair | None
) -> None:
    directory = pair.certificate.parent
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        made = KeyPair.named(Path(scratch), "made")
        request = Path(scratch) / "made.csr"
        if authority is None:
            options = [part for text in extensions for part in ("-addext", text)]
            run(
                *("req", "-x509", *_NEW_KEY, "-days", _DAYS, "-subj", subject, *options),
                *("-keyout", str(made.key), "-out", str(made.certificate)),
            )
        else:
            run(
                *("req", "-new", *_NEW_KEY, "-subj", subject),
                *("-keyout", str(made.key), "-out", str(request)),
            )
            file = Path(scratch) / "extensions"
            file.write_text("\n".join(extensions) + "\n")
            serial = f"0x{os.urandom(16).hex()}"
            run(
                *("x509", "-req", "-in", str(request), "-CA", str(authority.certificate)),
                *("-CAkey", str(authority.key), "-set_serial", serial, "-days", _DAYS),
                *("-extfile", str(file), "-out", str(made.certificate)),
            )
        pair.store(made)


def _alternatives(names: Sequence[str]) -> str:
    return "subjectAltName=" + ",".join(plain(name) for name in names)


def plain(name: str) -> str:
    """A name that is no syntax for openssl. Raises CertificateError."""
    if not name or any(c in name for c in "/,=+$#\\\n\r\0\"'"):
        raise CertificateError(f"{name!r} can't stand in a certificate")
    return name


def run(*arguments: str, data: bytes = b"") -> bytes:
    """Run openssl with some input; gives its output.

    Raises:
        CertificateError: openssl is missing, failed, or took too long.
    """
    done = _call(arguments, data)
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise CertificateError(f"openssl {arguments[0]} failed: {' '.join(last)}")
    return done.stdout


def _call(arguments: Sequence[str], data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    with contextlib.ExitStack() as stack:
        passed: tuple[int, ...] = ()
        if _has_long_name(arguments):
            config = stack.enter_context(os.fdopen(os.memfd_create("openssl.cnf"), "wb", 0))
            config.write(_LONG_NAMES)
            passed = (config.fileno(),)
            environment["OPENSSL_CONF"] = f"/proc/self/fd/{config.fileno()}"
        try:
            return subprocess.run(
                ["openssl", *arguments],
                input=data,
                capture_output=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
                env=environment,
                pass_fds=passed,
            )
        except FileNotFoundError:
            raise CertificateError(
                "the openssl command is needed to make certificates: install it "
                "(apt-get install openssl)"
            ) from None
        except subprocess.TimeoutExpired:
            raise CertificateError("openssl took too long to make a certificate") from None


def _has_long_name(arguments: Sequence[str]) -> bool:
    subjects = (after for at, after in itertools.pairwise(arguments) if at == "-subj")
    return any(len(part) > len("CN=") + _X520_NAME for each in subjects for part in each.split("/"))

"""From a kubeconfig file to what a connection needs, with the official client's own loader.

Certificates, tokens, token files and exec plugins are the loader's job; it runs in its own process
(:mod:`.kubeconfig_loader`) each time credentials are needed. Must never log or show a credential.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kubeletpy.host.key_pair import KeyPair

log = logging.getLogger(__name__)

ALPN = ["h2", "http/1.1"]
"""Protocols offered to a server in the TLS handshake, best first."""
_LOADER = Path(__file__).with_name("kubeconfig_loader.py")
_MAX_ANSWER = 1024 * 1024
"""Bytes; a token is the longest part."""
_MALFORMED = (TypeError, ValueError, AttributeError, LookupError)
"""Exceptions that values of unexpected types lead to."""
_begun: dict[str, subprocess.Popen[bytes]] = {}
"""Loaders started in advance, by kubeconfig path."""


class KubeconfigError(Exception):
    """The kubeconfig cannot be used; the message states which file and why."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach one API server and authenticate to it.

    Attributes:
        host: base URL without a trailing slash.
        ssl: for https hosts, with the client certificate if there is one.
        authorization: value of the Authorization header, or empty. Secret.
        server_hostname: name expected in the server's certificate instead of the host's, or empty.
        proxy: URL of the proxy to go through, or empty.
    """

    host: str
    ssl: ssl.SSLContext | None = None
    authorization: str = field(default="", repr=False)
    server_hostname: str = ""
    proxy: str = field(default="", repr=False)


def begin_loading(path: str) -> None:
    """Start the loader now for the :func:`connect_kubeconfig` to come.

    It takes a third of a second, during which a starting agent does its own imports.
    """
    _begun[path] = _start_loader(path)


def stop_loading(path: str) -> None:
    """Drop what :func:`begin_loading` started: the file is going to change."""
    process = _begun.pop(path, None)
    if process is not None:
        process.kill()
        process.communicate()


async def connect_kubeconfig(path: str, certificate: KeyPair | None = None) -> Connection:
    """Read a kubeconfig file's current context.

    Args:
        certificate: to authenticate with instead of any credentials in the file.

    Raises:
        KubeconfigError: the file is missing or unusable, or its exec plugin gave no credentials.
    """
    process = _begun.pop(path, None)
    if process is None:
        if not await asyncio.to_thread(Path(path).is_file):
            raise KubeconfigError(f"kubeconfig {path}: no such file")
        process = _start_loader(path)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        answer = await asyncio.to_thread(process.stdout.readline, _MAX_ANSWER)
        return _connection(path, answer, certificate)
    except (OSError, *_MALFORMED) as error:
        raise KubeconfigError(f"kubeconfig {path}: {type(error).__name__}: {error}") from None
    except asyncio.CancelledError:
        process.kill()  # an exec plugin may wait for somebody forever
        raise
    finally:
        process.stdin.close()
        await asyncio.to_thread(process.wait)
        process.stdout.close()


def _start_loader(path: str) -> subprocess.Popen[bytes]:
    # -P: nothing in the working directory may shadow a module of the loader. The loader gets the
    # agent's search path, which a zipapp or a launcher may have set, and a session of its own: a
    # Ctrl-C is for the agent.
    return subprocess.Popen(
        [sys.executable, "-P", str(_LOADER), path, *filter(None, sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def _connection(path: str, answer: bytes, certificate: KeyPair | None) -> Connection:
    """Interpret the loader's answer; the files it names exist only while the loader waits."""
    if not answer:
        raise KubeconfigError(f"kubeconfig {path}: the loader failed; its own output shows why")
    found: dict[str, Any] = json.loads(answer)
    for line in found["said"]:
        log.warning("kubeconfig", extra={"path": path, "said": line})
    if "error" in found:
        raise KubeconfigError(f"kubeconfig {path}: {found['error']}")
    if certificate is not None:
        files = {"cert_file": str(certificate.certificate), "key_file": str(certificate.key)}
        found |= {**files, "authorization": ""}
    host: str = found["host"].rstrip("/")
    token: str = found["authorization"]
    if found["exec_plugin"] and not token and not found["cert_file"]:
        raise KubeconfigError(f"kubeconfig {path}: its exec plugin gave no credentials")
    return Connection(
        host=host,
        ssl=_ssl_context(found) if urlsplit(host).scheme == "https" else None,
        authorization=token,
        server_hostname=found["server_hostname"],
        proxy=found["proxy"] or _environment_proxy(host),
    )


def _ssl_context(found: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=found["ca_file"], cadata=found["ca_data"])
    # Go accepts certificates that lack the key identifiers this flag insists on.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(ALPN)
    if found["cert_file"]:
        context.load_cert_chain(found["cert_file"], found["key_file"])
    if not found["verify"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _environment_proxy(host: str) -> str:
    """The proxy that HTTPS_PROXY and friends name for a host; looked up once, not per request."""
    parts = urlsplit(host)
    name = parts.hostname or ""
    if name in ("localhost", "127.0.0.1", "::1") or urllib.request.proxy_bypass(name):
        return ""
    return urllib.request.getproxies().get(parts.scheme, "")

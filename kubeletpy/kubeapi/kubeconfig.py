"""Kubeconfig files: the current context as written, and the credentials of a connection from it.

Blocking. Must never log what is in a file, nor show a credential.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.structs import Hidden, HidesFields, Struct
from kubeletpy.base.text import first_line
from kubeletpy.config.problems import check_depth

_CLUSTER_FILES = ("certificate-authority",)
_FILES = ("client-certificate", "client-key", "tokenFile")
_PLAIN_CLUSTER = {"server", "tls-server-name", "proxy-url", "certificate-authority"}
_PLAIN_USER = {"token", "client-certificate", "client-key"}
_MAX_BYTES = 1024 * 1024
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class KubeconfigError(Exception):
    """The kubeconfig cannot be used; the message states which file and why."""


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
        supplied = [self.user.get(f"{name}-data") for name in _FILES[:2]]
        if not all(isinstance(each, str) and each for each in supplied):
            return None
        try:
            certificate, key = (base64.b64decode(str(each)) for each in supplied)
        except (binascii.Error, ValueError):
            return None
        return certificate, key

    def is_plain(self) -> bool:
        """Whether it has a server, files that exist, inline data and a token, and nothing else."""
        for part, plain in ((self.cluster, _PLAIN_CLUSTER), (self.user, _PLAIN_USER)):
            names = [key.removesuffix("-data") for key in part]
            if not plain.issuperset(names) or len(set(names)) < len(names):
                return False
            if not all(isinstance(value, str) and value for value in part.values()):
                return False
        return "server" in self.cluster and all(each.is_file() for each in self.files())


def read_kubeconfig(path: Path) -> CurrentContext:
    """Read a kubeconfig.

    Raises:
        KubeconfigError: it is missing or can't be read.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES)
        check_depth(text, _Loader)
        found = yaml.load(text, _Loader)
        # reversed: the first of several with the same name counts, as for the official client
        contexts, clusters, users = (
            {
                str(each["name"]): each.get(kind) or {}
                for each in reversed(found.get(f"{kind}s") or ())
            }
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


# Credentials. A plain kubeconfig (certificates, a token) is read here. Token files, exec plugins,
# faults and everything unusual are the job of the official client's own loader, which runs in its
# own process (:mod:`.kubeconfig_loader`) each time credentials are needed.

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


class Connection(HidesFields, Struct, frozen=True):
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
    authorization: Hidden[str] = ""
    server_hostname: str = ""
    proxy: Hidden[str] = ""


def begin_loading(path: str) -> None:
    """Start the loader, if it is needed, for the :func:`connect_kubeconfig` to come.

    It takes a third of a second, during which a starting agent does its own imports. Blocking.
    """
    if _plain_context(path) is None:
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
        context = await asyncio.to_thread(_plain_context, path)
        if context is not None:
            return await asyncio.to_thread(_plain_connection, context, certificate)
        if not await asyncio.to_thread(Path(path).is_file):
            raise KubeconfigError(f"kubeconfig {path}: no such file")
        process = _start_loader(path)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        answer = await asyncio.to_thread(process.stdout.readline, _MAX_ANSWER)
        if not answer:
            why = "the loader failed; its own output shows why"
            raise KubeconfigError(f"kubeconfig {path}: {why}")
        return _connection(path, json.loads(answer), certificate)
    except (OSError, *_MALFORMED) as error:
        raise _unusable(path, error) from None
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


def _plain_context(path: str) -> CurrentContext | None:
    """The current context; None: the official loader has to read it, or to report its fault."""
    try:
        context = read_kubeconfig(Path(path))
    except KubeconfigError:
        return None
    return context if context.is_plain() else None


def _plain_connection(context: CurrentContext, certificate: KeyPair | None) -> Connection:
    """Connect with a plain context's credentials. Raises KubeconfigError."""
    path, cluster, user = str(context.path), context.cluster, context.user
    try:
        with ExitStack() as stack:

            def file(part: JSON, key: str) -> str | None:
                data = part.get(f"{key}-data")
                return part.get(key) if data is None else stack.enter_context(_in_memory(data))

            found = {
                "said": (),
                "host": cluster["server"],
                "ca_file": file(cluster, "certificate-authority"),
                "ca_data": None,
                "cert_file": file(user, "client-certificate"),
                "key_file": file(user, "client-key"),
                "verify": True,
                "authorization": f"Bearer {user['token']}" if "token" in user else "",
                "server_hostname": cluster.get("tls-server-name", ""),
                "proxy": cluster.get("proxy-url", ""),
                "exec_plugin": False,
            }
            return _connection(path, found, certificate)
    except (OSError, *_MALFORMED) as error:
        raise _unusable(path, error) from None


@contextmanager
def _in_memory(data: str) -> Iterator[str]:
    """The path of a file without a name that has decoded base64: OpenSSL reads only files."""
    with os.fdopen(os.memfd_create("kubeconfig"), "wb") as file:
        file.write(base64.b64decode(data))
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _unusable(path: str, error: Exception) -> KubeconfigError:
    return KubeconfigError(f"kubeconfig {path}: {type(error).__name__}: {error}")


def _connection(path: str, found: dict[str, Any], certificate: KeyPair | None) -> Connection:
    """Interpret the loader's answer; the files it names exist only while the loader waits."""
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
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""  # without the import, which takes 10 ms
    import urllib.request

    parts = urlsplit(host)
    name = parts.hostname or ""
    if name in ("localhost", "127.0.0.1", "::1") or urllib.request.proxy_bypass(name):
        return ""
    return urllib.request.getproxies().get(parts.scheme, "")

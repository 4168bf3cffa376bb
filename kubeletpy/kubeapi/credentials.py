"""From a kubeconfig file to what a connection needs, with the official client's own loader.

Certificates, tokens, token files and exec plugins are the loader's business. Must never log or show
a credential. The loader is imported here and only when called: it costs 0.2 s and 20 MB.
"""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_MALFORMED = (TypeError, ValueError, AttributeError)
"""What the loader raises when a kubeconfig's parts are not of the types it expects."""


class KubeconfigError(Exception):
    """The kubeconfig cannot be used; the message says which file and why."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach and convince one API server.

    Attributes:
        host: base URL without a trailing slash.
        ssl: for https hosts, with the client certificate if there is one.
        authorization: value of the Authorization header, or empty. Secret.
        server_hostname: name to expect in the server's certificate instead of the host's, or empty.
        proxy: URL of the proxy to go through, or empty.
    """

    host: str
    ssl: ssl.SSLContext | None = None
    authorization: str = field(default="", repr=False)
    server_hostname: str = ""
    proxy: str = field(default="", repr=False)


async def connect_kubeconfig(path: str) -> Connection:
    """Read a kubeconfig file's current context.

    Raises:
        KubeconfigError: the file is missing or unusable, or its exec plugin gave no credentials.
    """
    if not await asyncio.to_thread(Path(path).is_file):
        raise KubeconfigError(f"kubeconfig {path}: no such file")
    import yaml
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.client.rest import RESTClientObject
    from kubernetes.aio.config import ConfigException, kube_config

    configuration = Configuration()
    # Go accepts certificates that lack the key identifiers this flag insists on.
    configuration.disable_strict_ssl_verification = True
    load: Any = kube_config.load_kube_config
    try:
        loader = await load(
            config_file=path, client_configuration=configuration, persist_config=False
        )
        host: str = configuration.host.rstrip("/")
        secure = urlsplit(host).scheme == "https"
        context = RESTClientObject(configuration).ssl_context if secure else None
    except (ConfigException, yaml.YAMLError, OSError, LookupError, *_MALFORMED) as error:
        # Only the error's kind and text of the loader: it names keys and files, not values.
        raise KubeconfigError(f"kubeconfig {path}: {type(error).__name__}: {error}") from None
    token: str = configuration.api_key.get("BearerToken", "")
    user = loader._user  # the loader logs a failed exec plugin and goes on without credentials
    if user and "exec" in user and not token and not configuration.cert_file:
        raise KubeconfigError(f"kubeconfig {path}: its exec plugin gave no credentials")
    return Connection(
        host=host,
        ssl=context,
        authorization=token,
        server_hostname=configuration.tls_server_name or "",
        proxy=configuration.proxy or _environment_proxy(host),
    )


def _environment_proxy(host: str) -> str:
    """The proxy HTTPS_PROXY and friends name for a host; asked once, not at every request."""
    parts = urlsplit(host)
    name = parts.hostname or ""
    if name in ("localhost", "127.0.0.1", "::1") or urllib.request.proxy_bypass(name):
        return ""
    return urllib.request.getproxies().get(parts.scheme, "")

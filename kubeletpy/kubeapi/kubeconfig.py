"""The current context of a kubeconfig: its server and its credentials, as the file has them.

Blocking. Must never log what is in a file.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any

import yaml

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.structs import Struct
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
        given = [self.user.get(f"{name}-data") for name in _FILES[:2]]
        if not all(isinstance(each, str) and each for each in given):
            return None
        try:
            certificate, key = (base64.b64decode(str(each)) for each in given)
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

"""The hashes that state whether a container's definition, or its configuration, has changed.

The definition's hash covers only name and image and equals the kubelet's own, so that either agent
adopts the other's containers without a restart. The configuration's hash covers everything: it
states whether an existing container is what would be made now. Source: docs/reference/names.csv:
io.kubernetes.container.hash.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import fnv1a_32
from kubeletpy.remote.generated import api_pb2 as cri

_GO_JSON_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
CONFIG_HASH = "io.kubeletpy.container.configHash"
"""For root only, like the rest of what a container is made with."""


def container_hash(container: api.Container) -> str:
    """Hexadecimal without padding, as the container's annotation carries it."""
    return _hash(container.get("name") or "", container.get("image") or "")


@lru_cache(maxsize=2048)
def _hash(name: str, image: str) -> str:
    document = json.dumps(
        {"image": image, "name": name}, ensure_ascii=False, separators=(",", ":")
    ).translate(_GO_JSON_ESCAPES)
    encoded = document.encode("utf-8", "replace")
    dump = f"([]uint8)[{' '.join(map(str, encoded))}]"
    return format(fnv1a_32(dump.encode("ascii")), "x")


def config_hash(config: cri.ContainerConfig, termination_path: str) -> str:
    """The hash of a config without itself and the host side of the mount at ``termination_path``.

    The termination message file, which is mounted there, is made anew at each try.
    """
    copied = cri.ContainerConfig()
    copied.CopyFrom(config)
    for mount in copied.mounts:
        if mount.container_path == termination_path:
            mount.host_path = ""
    copied.annotations.pop(CONFIG_HASH, None)
    return hashlib.sha256(copied.SerializeToString(deterministic=True)).hexdigest()

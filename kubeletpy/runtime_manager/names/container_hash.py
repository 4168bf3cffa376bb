"""The hash that says whether a container's definition changed: only name and image count.

The kubelet's own value, so that either agent adopts the other's containers without a restart.
Source: docs/reference/names.csv: io.kubernetes.container.hash.
"""

from __future__ import annotations

import json
from functools import lru_cache

from kubeletpy.api import types as api
from kubeletpy.pods.fnv import fnv1a_32

_GO_JSON_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


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

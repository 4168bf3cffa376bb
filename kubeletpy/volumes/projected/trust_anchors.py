"""The certificates of ClusterTrustBundles: which bundles a source selects, and its one file. Pure.

Source: k8s.io/kubernetes/pkg/kubelet/clustertrustbundle; KEP-3257.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import meets
from kubeletpy.volumes.files.paths import PayloadError

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def certificates(text: str) -> Iterator[bytes]:
    """The certificates (DER) in a PEM text, in order; headers and everything else are left out."""
    lines: list[str] | None = None
    for line in map(str.strip, text.splitlines()):
        if line == _BEGIN:
            lines = []
        elif line == _END and lines is not None:
            with contextlib.suppress(binascii.Error, ValueError):
                yield base64.b64decode("".join(lines), validate=True)
            lines = None
        elif lines is not None and ":" not in line:  # a header of the block has a colon
            lines.append(line)


def block(der: bytes) -> bytes:
    """One certificate as a PEM block, in lines of 64."""
    text = base64.b64encode(der).decode()
    lines = (text[start : start + 64] for start in range(0, len(text), 64))
    return "\n".join((_BEGIN, *lines, _END, "")).encode()


class Bundle(Struct, frozen=True):
    """One ClusterTrustBundle: what selects it, and its certificates (DER)."""

    name: str
    signer: str
    labels: Mapping[str, str]
    anchors: frozenset[bytes]

    @property
    def size(self) -> int:
        """Bytes of its certificates."""
        return sum(map(len, self.anchors))


def bundle_of(obj: JSON) -> Bundle:
    """The bundle of an API object; PEM blocks that are no certificate are skipped, as upstream."""
    metadata, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    return Bundle(
        metadata.get("name") or "",
        spec.get("signerName") or "",
        metadata.get("labels") or {},
        frozenset(certificates(str(spec.get("trustBundle") or ""))),
    )


def anchors_of(source: Mapping[str, Any], bundles: Mapping[str, Bundle]) -> bytes:
    """The file of a clusterTrustBundle source, as PEM; empty where it is optional and none is.

    Each certificate is there once, in an order that changes only with the certificates: the
    kubelet's differs at each of its starts.

    Args:
        source: the source.
        bundles: all, by name.

    Raises:
        PayloadError: nothing is selected.
    """
    name, signer = source.get("name"), source.get("signerName")
    if name is not None:
        chosen = [bundles[name]] if name in bundles else []
        missing = f'clustertrustbundle "{name}" not found'
    elif signer is not None:
        selector = source.get("labelSelector")
        chosen = [
            each
            for each in bundles.values()
            if each.signer == signer and selector is not None and _selects(selector, each.labels)
        ]
        missing = f'no ClusterTrustBundle of signer "{signer}" has the labels of labelSelector'
        if selector is None:
            missing += ": it is missing, and selects none"
    else:
        raise PayloadError(
            "clusterTrustBundle: name or signerName must be set", Cause(CauseKind.TRUST_BUNDLE)
        )
    if not chosen and not source.get("optional"):
        raise PayloadError(missing, Cause(CauseKind.TRUST_BUNDLE))
    return b"".join(map(block, sorted(frozenset[bytes]().union(*(b.anchors for b in chosen)))))


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects these labels; an empty one selects all."""
    equal = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in equal.items()):
        return False
    return all(meets(each, labels) for each in selector.get("matchExpressions") or ())

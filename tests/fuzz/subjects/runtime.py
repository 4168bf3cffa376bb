"""Answers of the runtime and of plugins."""

from __future__ import annotations

from kubeletpy.runtime_manager.names import labels
from tests.fuzz.target import JSON_WORDS, target, text

KEYS = (labels.POD_NAME, labels.POD_UID, labels.CONTAINER_NAME, labels.HASH, labels.RESTART_COUNT)
TEXTS = (labels.PRE_STOP_HANDLER, labels.PORTS)


@target(
    seeds=(b"a\0u\0c\0001234\0005\0" + b'{"exec":{"command":["a"]}}\0[{"containerPort":80}]',),
    words=(*JSON_WORDS, b"\0", b'"httpGet":{"port":'),
)
def container_labels(data: bytes) -> None:
    """Labels and annotations that the runtime gives back, which others may have written."""
    values = dict(zip((*KEYS, *TEXTS), text(data).split("\0"), strict=False))
    labels.pod_labels(values)
    labels.read_labels(values)
    labels.read_container_annotations(values)
    assert labels.read_restart_count(values) >= 0

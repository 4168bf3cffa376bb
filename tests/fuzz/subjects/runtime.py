"""Answers of the runtime and of plugins."""

from __future__ import annotations

from kubeletpy.runtime_manager import names
from tests.fuzz.target import JSON_WORDS, target, text

KEYS = (names.POD_NAME, names.POD_UID, names.CONTAINER_NAME, names.HASH, names.RESTART_COUNT)
TEXTS = (names.PRE_STOP_HANDLER, names.PORTS)


@target(
    seeds=(b"a\0u\0c\0001234\0005\0" + b'{"exec":{"command":["a"]}}\0[{"containerPort":80}]',),
    parts=(*JSON_WORDS, b"\0", b'"httpGet":{"port":'),
)
def container_labels(data: bytes) -> None:
    """Labels and annotations that the runtime gives back, which others may have written."""
    values = dict(zip((*KEYS, *TEXTS), text(data).split("\0"), strict=False))
    names.pod_labels(values)
    names.read_labels(values)
    names.read_container_annotations(values)
    assert names.read_restart_count(values) >= 0

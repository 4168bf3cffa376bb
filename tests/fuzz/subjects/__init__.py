"""All targets, one file a subject."""

from tests.fuzz.subjects import (
    certificates,
    checkpoints,
    configuration,
    http2,
    images,
    kernel,
    logs,
    manifests,
    numbers,
    objects,
    patches,
    probes,
    requests,
    runtime,
    selectors,
    streams,
)

__all__ = [
    "certificates",
    "checkpoints",
    "configuration",
    "http2",
    "images",
    "kernel",
    "logs",
    "manifests",
    "numbers",
    "objects",
    "patches",
    "probes",
    "requests",
    "runtime",
    "selectors",
    "streams",
]

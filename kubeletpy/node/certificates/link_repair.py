"""At startup, replaces a broken stored certificate by the one before it.

Must come before anybody reads the certificate: a kubeconfig may name the link itself.
"""

from __future__ import annotations

import asyncio
import logging

from kubeletpy.node.certificates.store import CertificateStore

log = logging.getLogger(__name__)


async def repair_link(store: CertificateStore, now: float) -> None:
    """Repair and log it; continue if nothing can be done. ``now``: Unix seconds."""
    try:
        file = await asyncio.to_thread(store.repair_link, now)
    except OSError as error:
        log.warning(
            "stored certificates can't be read",
            extra={"directory": str(store.directory), "why": str(error)},
        )
        return
    if file is not None:
        log.warning(
            "the stored certificate is broken; the one before it is in use again",
            extra={"link": str(store.current_path), "file": str(file)},
        )

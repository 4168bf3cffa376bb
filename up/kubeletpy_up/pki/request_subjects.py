"""The subject of a certificate request, read before the registry handles the request.

Untrusted requests may be long, and the registry works within one step of the event loop, which
must not block. Must never decide: that is for admission.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Any

from kubeletpy.base.host.pki import CertificateError
from kubeletpy_up.pki import csr_rules

_AT_ONCE = 2


class SubjectReader:
    """Reads requests on threads, a few at once."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def common_name(self, obj: Any) -> str | None:
        """The subject of a CertificateSigningRequest that a client sent; None if unreadable.

        Requests for signers other than those of nodes are not read: None.
        """
        spec = obj.get("spec") if isinstance(obj, dict) else None
        if not isinstance(spec, dict) or spec.get("signerName") not in csr_rules.SIGNERS:
            return None
        from kubeletpy.base.host import x509

        try:
            pem = base64.b64decode(str(spec.get("request") or ""))
            async with self._turns:
                return (await asyncio.to_thread(x509.read_request, pem)).common_name
        except (binascii.Error, ValueError, CertificateError):
            return None

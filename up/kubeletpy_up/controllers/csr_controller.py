"""Approves and signs nodes' certificate requests, as a cluster's controller manager does.

Client certificates of nodes are approved automatically, as in clusters set up by kubeadm; serving
certificates wait for ``kubectl certificate approve``. Must never sign what is not approved.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Callable

from kubeletpy.base.api.times import format_time, parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import CertificateError, Names
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import Lasting, cancel_tasks
from kubeletpy_up.errors import ApiError
from kubeletpy_up.pki import csr_rules
from kubeletpy_up.pki.csr_rules import REQUESTS
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import CONTROLLER
from kubeletpy_up.storage.history import Change

logger = logging.getLogger(__name__)

LIFETIME_S = 365 * 24 * 3600.0
"""The controller manager's --cluster-signing-duration."""
BACKDATE_S = 300.0
RETRY_S = 30.0
SHORT_S = 8 * 3600.0
"""Certificates with a shorter lifetime are not backdated: there is too little to spare."""


class CertificateController(Component):
    """Approves and signs a registry's requests while it runs. Needs a running event loop.

    Args:
        authority: signs the certificates.
        lifetime: the longest of a certificate, in seconds.
    """

    registry: Registry
    authority: KeyPair
    lifetime: float = LIFETIME_S

    def __post_init__(self) -> None:
        self._waiting: dict[str, None] = {}
        self._retries: dict[str, asyncio.TimerHandle] = {}
        self._threads = Lasting()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Start; requests that are already pending are handled next."""
        self._unsubscribe = self.registry.store.subscribe(self._on_change)
        for (_, name), _ in self.registry.store.entries(REQUESTS):
            self._waiting[name] = None
        self._woken.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="certificates")

    async def stop(self) -> None:
        """Stop, and wait for a signature that is being made. Requests are left unchanged."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()
        task, self._task = self._task, None
        await cancel_tasks((task,))
        await self._threads.close()

    def expire(self) -> None:
        """Remove requests that have been kept long enough."""
        now = self.registry.clock.now()
        old = [
            name
            for (_, name), entry in self.registry.store.entries(REQUESTS)
            if csr_rules.kept_until(
                entry.object, parse_time(entry.object["metadata"]["creationTimestamp"])
            )
            < now
        ]
        for name in old:
            self.registry.delete(CONTROLLER, REQUESTS, name)

    def _on_change(self, change: Change) -> None:
        if change.resource == REQUESTS and change.type != "DELETED":
            self._again(change.object["metadata"]["name"])

    def _again(self, name: str) -> None:
        if self._task is not None:
            self._waiting[name] = None
            self._woken.set()

    def _retry_later(self, name: str) -> None:
        if (earlier := self._retries.get(name)) is not None:
            earlier.cancel()
        loop = asyncio.get_running_loop()
        self._retries[name] = loop.call_later(RETRY_S, self._retry, name)

    def _retry(self, name: str) -> None:
        del self._retries[name]
        self._again(name)

    async def _run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                name = next(iter(self._waiting))
                del self._waiting[name]
                try:
                    await self._check(name)
                except (ApiError, CertificateError, OSError) as error:
                    logger.warning(
                        "A certificate request was not handled",
                        extra={"csr": name, "error": str(error)},
                    )
                    if isinstance(error, OSError):  # such as a full disk
                        self._retry_later(name)
                except Exception:  # the boundary of a request: the next one is handled anyway
                    logger.exception("Signing a certificate request failed", extra={"csr": name})

    async def _check(self, name: str) -> None:
        found = self.registry.find(REQUESTS, "", name)
        if found is None:
            return
        approving = csr_rules.waits_for_approval(found)
        if not approving and not csr_rules.waits_for_signature(found):
            return
        from kubeletpy.base.host import x509  # already loaded, to check the API's own certificates

        pem = _request(found)
        try:
            names = await self._threads.finish(asyncio.to_thread(x509.read_request, pem))
        except CertificateError as error:
            self._fail(found, str(error))
            return
        if approving:
            message = csr_rules.approval(found, names)
            if message:
                self._decide(found, "Approved", "AutoApproved", message, "approval")
            return
        refused = csr_rules.problem(found["spec"], names)
        if refused:
            self._fail(found, refused)
            return
        await self._sign(found, pem, names)

    async def _sign(self, found: JSON, pem: bytes, names: Names) -> None:
        from kubeletpy.base.host import x509

        now = self.registry.clock.now()
        desired = found["spec"].get("expirationSeconds")
        lifetime = min(self.lifetime, desired) if desired else self.lifetime
        begin = now if lifetime < SHORT_S else now - BACKDATE_S
        try:
            certificate = await self._threads.finish(
                asyncio.to_thread(
                    x509.sign_request,
                    pem,
                    self.authority,
                    names,
                    usages=found["spec"]["usages"],
                    not_before=begin,
                    not_after=begin + lifetime,
                )
            )
        except CertificateError as error:
            self._fail(found, str(error))
            return
        status = {**found["status"], "certificate": base64.b64encode(certificate).decode()}
        self._update({**found, "status": status}, "status")

    def _fail(self, found: JSON, why: str) -> None:
        self._decide(found, "Failed", "SignerValidationFailure", why, "status")

    def _decide(self, found: JSON, kind: str, reason: str, message: str, path: str) -> None:
        moment = format_time(self.registry.clock.now())
        self._update(csr_rules.with_condition(found, kind, reason, message, moment), path)

    def _update(self, changed: JSON, path: str) -> None:
        name = changed["metadata"]["name"]
        self.registry.update(CONTROLLER, REQUESTS, changed, name=name, subresource=path)


def _request(found: JSON) -> bytes:
    try:
        return base64.b64decode(str(found["spec"].get("request") or ""))
    except (binascii.Error, ValueError):
        return b""

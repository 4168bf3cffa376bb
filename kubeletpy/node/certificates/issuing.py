"""Gets one certificate from the cluster: create a request, then watch it until it is decided.

Create is safe to repeat: a request's name follows from its key and content, and the key stays on
disk. So the same request is found again after a lost response or a crash. Must never approve one.
"""

from __future__ import annotations

import asyncio
import logging
import random

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.pki import Names
from kubeletpy.base.structs import Struct
from kubeletpy.base.tasks import background
from kubeletpy.kubeapi.errors import AlreadyExists
from kubeletpy.kubeapi.protocol import CERTIFICATESIGNINGREQUESTS, KubeApi, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector
from kubeletpy.node.certificates import request
from kubeletpy.node.certificates.rotation import CsrOutcome, CsrVerdict, verdict
from kubeletpy.node.certificates.store import CertificateStore

log = logging.getLogger(__name__)

WAIT_S = 15 * 60.0
"""How long one attempt waits for a decision (docs/reference/constants.csv: CSR wait)."""


class NotIssued(Exception):
    """A request failed; the text names it. ``final``: a new key is needed."""

    def __init__(self, name: str, why: str, *, final: bool) -> None:
        super().__init__(f"certificate signing request {name}: {why}")
        self.final = final


class Issued(Struct, frozen=True):
    """A certificate (PEM, leaf first) and its key (PEM)."""

    certificate: bytes
    key: bytes


async def issue(
    api: KubeApi,
    store: CertificateStore,
    names: Names,
    signer: str,
    *,
    prefix: str = "csr-",
    rng: random.Random | None = None,
) -> Issued:
    """Request a certificate and wait for it, at most WAIT_S.

    Raises:
        ApiError: the request can't be created.
        NotIssued: denied, failed, deleted, or nobody decided in time.
        CertificateError, OSError: the key can't be used, read or written.
    """

    def prepare() -> tuple[bytes, bytes, str]:
        from kubeletpy.base.host import x509

        key = store.pending_key()
        name = request.request_name(prefix, x509.public_key(key), names, signer)
        return key, x509.new_request(key, names), name

    key, wanted, name = await asyncio.to_thread(prepare)
    try:
        found = await api.create(
            CERTIFICATESIGNINGREQUESTS, request.request_object(name, signer, wanted)
        )
        log.info("certificate requested", extra={"csr": name, "signer": signer})
    except AlreadyExists:
        found = await api.get(CERTIFICATESIGNINGREQUESTS, name)
        log.info(
            "continuing with an earlier certificate request", extra={"csr": name, "signer": signer}
        )
    certificate = await _decided(api, name, found, rng)
    return Issued(certificate, key)


async def _decided(api: KubeApi, name: str, found: JSON, rng: random.Random | None) -> bytes:
    result = verdict(found)
    if result.outcome in (CsrOutcome.PENDING, CsrOutcome.APPROVED):
        result = await _wait(api, name, str(found["metadata"].get("uid", "")), rng)
    if result.outcome is CsrOutcome.ISSUED:
        return result.certificate
    raise NotIssued(name, f"{result.outcome.value}: {result.why}", final=True)


async def _wait(api: KubeApi, name: str, uid: str, rng: random.Random | None) -> CsrVerdict:
    waiting: asyncio.Future[CsrVerdict] = asyncio.get_running_loop().create_future()

    def check_answer(items: list[JSON]) -> None:
        if waiting.done():
            return
        same = [item for item in items if item["metadata"].get("uid") == uid]
        if not same:
            waiting.set_exception(NotIssued(name, "it was deleted", final=False))
            return
        result = verdict(same[0])
        if result.outcome not in (CsrOutcome.PENDING, CsrOutcome.APPROVED):
            waiting.set_result(result)

    def changed(event: WatchEvent) -> None:
        check_answer([] if event.type == "DELETED" else [event.object])

    reflector = Reflector(
        api,
        CERTIFICATESIGNINGREQUESTS,
        on_replace=check_answer,
        on_event=changed,
        field_selector=f"metadata.name={name}",
        rng=rng,
    )
    async with background(reflector.run(), f"csr-{name}"):
        try:
            async with asyncio.timeout(WAIT_S):
                return await waiting
        except TimeoutError:
            minutes = round(WAIT_S / 60)
            raise NotIssued(name, f"nobody decided within {minutes} minutes", final=False) from None

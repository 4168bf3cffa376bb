"""Keeps one certificate of the node valid: requests it, stores it, renews it before it expires.

The one in use is :attr:`CertificateManager.current`; its users are notified of a new one. Failures
are retried forever with a backoff; must never give up a certificate that is still valid, and never
approve a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock, steady_now
from kubeletpy.base.host.pki import CertificateError, Names
from kubeletpy.base.structs import Component, Struct, field
from kubeletpy.base.tasks import background, until_one_ends, wait_within
from kubeletpy.kubeapi.errors import AlreadyExists, ApiError, Forbidden, NotFound, Unauthorized
from kubeletpy.kubeapi.kubeconfig import KubeconfigError
from kubeletpy.kubeapi.protocol import CERTIFICATESIGNINGREQUESTS, KubeApi, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector
from kubeletpy.node.certificates import request
from kubeletpy.node.certificates.request import (
    CLIENT_LOST_S,
    CsrOutcome,
    CsrVerdict,
    rotation_deadline,
    unsatisfied,
    verdict,
)
from kubeletpy.node.certificates.store import CertificateStore, StoredPair, stamp_of

# One request: create it, then watch it until it is decided.
#
# Create is safe to repeat: a request's name follows from its key and content, and the key stays
# on disk. So the same request is found again after a lost response or a crash.

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

    key, desired, name = await asyncio.to_thread(prepare)
    try:
        found = await api.create(
            CERTIFICATESIGNINGREQUESTS, request.request_object(name, signer, desired)
        )
        log.info("certificate requested", extra={"csr": name, "signer": signer})
    except AlreadyExists:
        found = await api.get(CERTIFICATESIGNINGREQUESTS, name)
        log.info(
            "continuing with an earlier certificate request", extra={"csr": name, "signer": signer}
        )
    certificate = await _decided(api, name, found, rng or random.Random())
    return Issued(certificate, key)


async def _decided(api: KubeApi, name: str, found: JSON, rng: random.Random) -> bytes:
    result = verdict(found)
    if result.outcome in (CsrOutcome.PENDING, CsrOutcome.APPROVED):
        result = await _wait(api, name, str(found["metadata"].get("uid", "")), rng)
    if result.outcome is CsrOutcome.ISSUED:
        return result.certificate
    raise NotIssued(name, f"{result.outcome.value}: {result.why}", final=True)


async def _wait(api: KubeApi, name: str, uid: str, rng: random.Random) -> CsrVerdict:
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


FIRST_RETRY_S, LAST_RETRY_S = 2.0, 32.0
JITTER = 0.1
LEAST_USE = 0.5
"""The fraction of a new certificate's remaining lifetime that is used in any case."""
LONGEST_WAIT_S = 60.0
"""A deadline is wall-clock time, and clocks get set: check again at least this often."""


class CertificateLost(Exception):
    """There is no valid client certificate, and the API does not give us a new one."""


class _NamesChanged(Exception):
    """The requested names are outdated."""


class Purpose(Struct, frozen=True):
    """The purpose of a certificate.

    Attributes:
        name: for log messages.
        signer: who signs it.
        vital: the agent can do nothing without it, and exits when it is lost for good.
        first_prefix: name prefix of requests while there is no certificate.
        failed: called at each failure.
        replaced: called with how many seconds the previous certificate had been valid.
    """

    name: str
    signer: str
    vital: bool = False
    first_prefix: str = "csr-"
    failed: Callable[[], None] = lambda: None
    replaced: Callable[[float], None] = lambda seconds: None


class CertificateManager(Component):
    """One certificate. Create it inside a running event loop, then ``load``, then ``run``.

    Args:
        names: the names of the next certificate; None: nothing can be requested yet.
        api: a connection for requests, given whether the current certificate is valid.
        on_change: called when ``current`` has changed.
    """

    purpose: Purpose
    store: CertificateStore
    clock: Clock
    names: Callable[[], Names | None]
    api: Callable[[bool], AbstractAsyncContextManager[KubeApi]]
    on_change: Callable[[], Awaitable[None]] | None = None
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._pair: StoredPair | None = None
        self._deadline = 0.0
        self._due_after = 0.0
        """The same on the event loop's clock: due then, too, if the wall clock was set back."""
        self._renew_now = False
        self._poked = asyncio.Event()
        self._storing = asyncio.Lock()
        self._available_at = self.clock.now()
        self._answered: Names | None = None
        """The names requested for the current certificate: requesting them again yields no more."""
        self._server_answers = False

    @property
    def current(self) -> StoredPair | None:
        """The pair in use; None if there is none or it has expired."""
        pair = self._pair
        if pair is None or self.clock.now() > pair.certificate.not_after:
            return None
        return pair

    @property
    def ttl(self) -> float:
        """Seconds until the certificate expires (negative: ago); infinite without one."""
        if self._pair is None:
            return float("inf")
        return float(int(self._pair.certificate.not_after - self.clock.now()))

    async def load(self, *, renew_now: bool = False) -> None:
        """Load what is on disk; ``renew_now``: it is only borrowed, request our own at once."""
        self._renew_now = renew_now
        try:
            self._use_pair(await asyncio.to_thread(self.store.load))
        except (CertificateError, OSError) as error:
            log.warning(
                "a stored certificate can't be used; requesting a new one",
                extra={"certificate": self.purpose.name, "why": str(error)},
            )

    async def reload_if_changed(self) -> None:
        """Reload the files if another program has changed them, for example by a renewal."""
        async with self._storing:
            await self._reload_if_changed()

    async def _reload_if_changed(self) -> None:
        pair = self._pair
        if pair is not None and stamp_of(pair.files) == pair.stamp:
            return
        try:
            found = await asyncio.to_thread(self.store.load)
        except (CertificateError, OSError) as error:
            log.warning(
                "the certificate's files have changed and can't be used; the old one stays in use",
                extra={"certificate": self.purpose.name, "why": str(error)},
            )
            return
        if found is not None and (pair is None or found.stamp != pair.stamp):
            self._use_pair(found)
            log.info(
                "a certificate that another program wrote is in use",
                extra={"certificate": self.purpose.name, "seconds": int(self.ttl)},
            )
            await self._report_change()
            self._poked.set()

    def poke(self) -> None:
        """The certificate's names may have changed."""
        self._poked.set()

    async def run(self) -> None:
        """Keep it valid until cancelled. Raises CertificateLost (vital ones only)."""
        while True:
            await self._until_due()
            await self._renew()

    async def obtain(self) -> None:
        """Get one and stop there, if it is not to be renewed. Raises CertificateLost."""
        await self._until_due()
        await self._renew()

    def _use_pair(self, pair: StoredPair | None) -> None:
        self._pair = pair
        if pair is not None:
            self._renew_at(rotation_deadline(pair.certificate, self.rng.random()))

    def _renew_at(self, deadline: float) -> None:
        """``deadline`` in Unix seconds."""
        self._deadline = deadline
        self._due_after = steady_now() + deadline - self.clock.now()

    async def _report_change(self) -> None:
        if self.on_change is not None:
            await self.on_change()

    def _due_in(self) -> float | None:
        """Seconds until renewal; None: there is nothing to request."""
        names = self.names()
        if names is None:
            return None
        current = self.current
        if current is None or self._renew_now:
            return 0.0
        why = unsatisfied(current.certificate, names)
        if why and names != self._answered:
            log.info(
                "the certificate no longer covers the node's names",
                extra={"certificate": self.purpose.name, "why": why},
            )
            return 0.0
        left = min(self._deadline - self.clock.now(), self._due_after - steady_now())
        return max(0.0, left)

    async def _until_due(self) -> None:
        while True:
            self._poked.clear()
            due = self._due_in()
            if due == 0:
                return
            await wait_within(self._poked, None if due is None else min(due, LONGEST_WAIT_S))

    async def _renew(self) -> None:
        """Retry until it works or is no longer needed."""
        delay = FIRST_RETRY_S
        while self._due_in() == 0:
            try:
                issued, names = await self._issue()
                async with self._storing:
                    await self._adopt(issued, names)
                return
            except _NamesChanged:
                continue
            except (ApiError, NotIssued, CertificateError, KubeconfigError, OSError) as error:
                await self._failed(error)
            await asyncio.sleep(delay * (1 + JITTER * self.rng.random()))
            delay = min(delay * 2, LAST_RETRY_S)

    async def _issue(self) -> tuple[Issued, Names]:
        """Request a certificate for the current names, until they change."""
        names = self.names()
        if names is None:
            raise _NamesChanged
        valid = self.current is not None
        prefix = self.purpose.first_prefix if not valid else "csr-"
        async with (
            self.api(valid) as api,
            background(
                issue(api, self.store, names, self.purpose.signer, prefix=prefix, rng=self.rng)
            ) as asking,
        ):
            while not asking.done():
                self._poked.clear()
                async with background(self._poked.wait()) as poked:
                    await until_one_ends(asking, poked)
                if not asking.done() and (self.names() != names or self._due_in() != 0):
                    raise _NamesChanged
            return asking.result(), names

    async def _adopt(self, issued: Issued, answers: Names) -> None:
        old, now = self._pair, self.clock.now()

        def store() -> StoredPair:
            from kubeletpy.base.host import x509

            if x509.read_certificate(issued.certificate).not_after <= now:
                raise CertificateError("the issued certificate has already expired")
            found = self.store.update(issued.certificate, issued.key, now)
            self.store.drop_pending_key()
            return found

        try:
            pair = await asyncio.to_thread(store)
        except CertificateError:
            # from an old request, or for another key: start over with a new request
            await asyncio.to_thread(self.store.drop_pending_key)
            raise
        self._renew_now = False
        self._server_answers = True
        self._use_pair(pair)
        self._answered = answers
        # a certificate that arrives late in its lifetime must not be renewed again and again
        left = pair.certificate.not_after - now
        self._renew_at(max(self._deadline, now + left * LEAST_USE))
        if old is not None:
            self.purpose.replaced(now - old.certificate.not_before)
        log.info(
            "a new certificate is in use",
            extra={"certificate": self.purpose.name, "seconds": int(self.ttl)},
        )
        await self._report_change()

    async def _failed(self, error: Exception) -> None:
        self.purpose.failed()
        log.warning(
            "the certificate could not be renewed; trying again",
            extra={"certificate": self.purpose.name, "why": str(error)},
        )
        if isinstance(error, NotIssued) and error.final:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self.store.drop_pending_key)
        if isinstance(error, ApiError):
            self._server_answers = isinstance(error, Unauthorized | Forbidden | NotFound)
        now = self.clock.now()
        if self.current is not None:
            self._available_at = now
        elif self._pair is not None:
            self._available_at = max(self._available_at, self._pair.certificate.not_after)
        lost = self.purpose.vital and self._server_answers and self.current is None
        if lost and now - self._available_at >= CLIENT_LOST_S:
            raise CertificateLost(
                f"no valid client certificate for five minutes, and the API refuses us: {error}"
            )

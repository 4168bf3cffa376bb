"""Keeps one certificate of the node valid: requests it, stores it, renews it before it expires.

The one in use is :attr:`CertificateManager.current`; its users are notified of a new one. Failures
are retried forever with a backoff; must never give up a certificate that is still valid.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from kubeletpy.base.clock import Clock, steady_now
from kubeletpy.base.host.pki import CertificateError, Names
from kubeletpy.base.structs import Struct
from kubeletpy.base.tasks import background, until_one_ends
from kubeletpy.kubeapi.errors import ApiError, Forbidden, NotFound, Unauthorized
from kubeletpy.kubeapi.kubeconfig import KubeconfigError
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.node.certificates.issuing import Issued, NotIssued, issue
from kubeletpy.node.certificates.rotation import CLIENT_LOST_S, rotation_deadline, unsatisfied
from kubeletpy.node.certificates.store import CertificateStore, StoredPair, stamp_of

log = logging.getLogger(__name__)

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


class CertificateManager:
    """One certificate. Create it inside a running event loop, then ``load``, then ``run``.

    Args:
        names: the names of the next certificate; None: nothing can be requested yet.
        api: a connection for requests, given whether the current certificate is valid.
        on_change: called when ``current`` has changed.
    """

    def __init__(
        self,
        purpose: Purpose,
        store: CertificateStore,
        clock: Clock,
        *,
        names: Callable[[], Names | None],
        api: Callable[[bool], AbstractAsyncContextManager[KubeApi]],
        on_change: Callable[[], Awaitable[None]] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._purpose = purpose
        self._store = store
        self._clock = clock
        self._names = names
        self._api = api
        self._on_change = on_change
        self._rng = rng or random.Random()
        self._pair: StoredPair | None = None
        self._deadline = 0.0
        self._due_after = 0.0
        """The same on the event loop's clock: due then, too, if the wall clock was set back."""
        self._renew_now = False
        self._poked = asyncio.Event()
        self._storing = asyncio.Lock()
        self._available_at = clock.now()
        self._answered: Names | None = None
        """The names requested for the current certificate: requesting them again yields no more."""
        self._server_answers = False

    @property
    def current(self) -> StoredPair | None:
        """The pair in use; None if there is none or it has expired."""
        pair = self._pair
        if pair is None or self._clock.now() > pair.certificate.not_after:
            return None
        return pair

    @property
    def ttl(self) -> float:
        """Seconds until the certificate expires (negative: ago); infinite without one."""
        if self._pair is None:
            return float("inf")
        return float(int(self._pair.certificate.not_after - self._clock.now()))

    async def load(self, *, renew_now: bool = False) -> None:
        """Load what is on disk; ``renew_now``: it is only borrowed, request our own at once."""
        self._renew_now = renew_now
        try:
            self._use_pair(await asyncio.to_thread(self._store.load))
        except (CertificateError, OSError) as error:
            log.warning(
                "a stored certificate can't be used; requesting a new one",
                extra={"certificate": self._purpose.name, "why": str(error)},
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
            found = await asyncio.to_thread(self._store.load)
        except (CertificateError, OSError) as error:
            log.warning(
                "the certificate's files have changed and can't be used; the old one stays in use",
                extra={"certificate": self._purpose.name, "why": str(error)},
            )
            return
        if found is not None and (pair is None or found.stamp != pair.stamp):
            self._use_pair(found)
            log.info(
                "a certificate that another program wrote is in use",
                extra={"certificate": self._purpose.name, "seconds": int(self.ttl)},
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
            self._renew_at(rotation_deadline(pair.certificate, self._rng.random()))

    def _renew_at(self, deadline: float) -> None:
        """``deadline`` in Unix seconds."""
        self._deadline = deadline
        self._due_after = steady_now() + deadline - self._clock.now()

    async def _report_change(self) -> None:
        if self._on_change is not None:
            await self._on_change()

    def _due_in(self) -> float | None:
        """Seconds until renewal; None: there is nothing to request."""
        names = self._names()
        if names is None:
            return None
        current = self.current
        if current is None or self._renew_now:
            return 0.0
        why = unsatisfied(current.certificate, names)
        if why and names != self._answered:
            log.info(
                "the certificate no longer covers the node's names",
                extra={"certificate": self._purpose.name, "why": why},
            )
            return 0.0
        left = min(self._deadline - self._clock.now(), self._due_after - steady_now())
        return max(0.0, left)

    async def _until_due(self) -> None:
        while True:
            self._poked.clear()
            due = self._due_in()
            if due == 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else min(due, LONGEST_WAIT_S)):
                    await self._poked.wait()

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
            await asyncio.sleep(delay * (1 + JITTER * self._rng.random()))
            delay = min(delay * 2, LAST_RETRY_S)

    async def _issue(self) -> tuple[Issued, Names]:
        """Request a certificate for the current names, until they change."""
        names = self._names()
        if names is None:
            raise _NamesChanged
        valid = self.current is not None
        prefix = self._purpose.first_prefix if not valid else "csr-"
        async with (
            self._api(valid) as api,
            background(
                issue(api, self._store, names, self._purpose.signer, prefix=prefix, rng=self._rng)
            ) as asking,
        ):
            while not asking.done():
                self._poked.clear()
                async with background(self._poked.wait()) as poked:
                    await until_one_ends(asking, poked)
                if not asking.done() and (self._names() != names or self._due_in() != 0):
                    raise _NamesChanged
            return asking.result(), names

    async def _adopt(self, issued: Issued, answers: Names) -> None:
        old, now = self._pair, self._clock.now()

        def store() -> StoredPair:
            from kubeletpy.base.host import x509

            if x509.read_certificate(issued.certificate).not_after <= now:
                raise CertificateError("the issued certificate has already expired")
            found = self._store.update(issued.certificate, issued.key, now)
            self._store.drop_pending_key()
            return found

        try:
            pair = await asyncio.to_thread(store)
        except CertificateError:
            # from an old request, or for another key: start over with a new request
            await asyncio.to_thread(self._store.drop_pending_key)
            raise
        self._renew_now = False
        self._server_answers = True
        self._use_pair(pair)
        self._answered = answers
        # a certificate that arrives late in its lifetime must not be renewed again and again
        left = pair.certificate.not_after - now
        self._renew_at(max(self._deadline, now + left * LEAST_USE))
        if old is not None:
            self._purpose.replaced(now - old.certificate.not_before)
        log.info(
            "a new certificate is in use",
            extra={"certificate": self._purpose.name, "seconds": int(self.ttl)},
        )
        await self._report_change()

    async def _failed(self, error: Exception) -> None:
        self._purpose.failed()
        log.warning(
            "the certificate could not be renewed; trying again",
            extra={"certificate": self._purpose.name, "why": str(error)},
        )
        if isinstance(error, NotIssued) and error.final:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._store.drop_pending_key)
        if isinstance(error, ApiError):
            self._server_answers = isinstance(error, Unauthorized | Forbidden | NotFound)
        now = self._clock.now()
        if self.current is not None:
            self._available_at = now
        elif self._pair is not None:
            self._available_at = max(self._available_at, self._pair.certificate.not_after)
        lost = self._purpose.vital and self._server_answers and self.current is None
        if lost and now - self._available_at >= CLIENT_LOST_S:
            raise CertificateLost(
                f"no valid client certificate for five minutes, and the API refuses us: {error}"
            )

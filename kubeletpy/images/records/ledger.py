"""Keeps pull records: an intent before a pull, a record after it, and answers from memory.

A kill -9 during a pull must never let its image pass as preloaded. So the intent is on disk before
the runtime is called. It is removed only once the record exists, or once a check after a failed
pull shows that it changed nothing. Source: docs/reference/behaviour.md, g2, g3. Must never keep or
show a credential: records hold fingerprints.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import Lasting
from kubeletpy.config import KubeletSettings
from kubeletpy.images.credentials import Credential
from kubeletpy.images.records import model as records
from kubeletpy.images.records.store import RecordFiles, RecordStore
from kubeletpy.images.uses import PullRateExceeded
from kubeletpy.metrics.resources import PullRecordMetrics
from kubeletpy.remote.errors import Code, CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService

logger = logging.getLogger(__name__)

UNCERTAIN = (Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.CANCELLED)
"""Ends of a call after which the runtime may go on with it."""
ListImages = Callable[[], Awaitable[Sequence[cri.Image]]]
FindCredentials = Callable[[], Awaitable[Sequence[Credential]]]


class IntentNotRecorded(Exception):
    """A pull that can't be recorded must not begin; the text contains the reason."""


class RecordsUnreadable(Exception):
    """The directories of the records are unusable."""


class PullInProgress(Component):
    """One pull, from its intent to its end."""

    ledger: PullRecords
    image: str
    intent: records.Intent

    def __post_init__(self) -> None:
        self.recorded = False
        self.changed_nothing = False
        """The pull has failed, and the node has the image, or lacks it, as before."""

    async def succeeded(self, image_ref: str, credential: Credential | None) -> None:
        """Record that the image has arrived; ``credential`` is None if none was needed.

        Completed even if the pod is deleted meanwhile.
        """
        self.recorded = True
        await self.ledger.finish(self.image, self.intent, image_ref, records.grants_of(credential))


class PullRecords(Component):
    """Writes the pull records of one node, and answers from them who may use an image."""

    store: RecordStore
    verification: records.Verification
    list_images: ListImages
    metrics: PullRecordMetrics

    def __post_init__(self) -> None:
        self._opened = False
        self._lasting = Lasting()

    async def start(self) -> None:
        """Open the records for a starting agent. Raises RecordsUnreadable."""
        try:
            await self.open()
        except OSError as error:
            raise RecordsUnreadable(
                f"image_manager below --root-dir can't be read: {error}"
            ) from error

    async def open(self) -> None:
        """Read the disk once; leftover intents of images on the node become records.

        Raises:
            OSError: the directories are unusable.
        """
        if self._opened:
            return
        async with self.store.lock:
            if self._opened:
                return
            for image in await self.store.load():
                intent = self.store.intents.get_or_create(records.full_name(image))
                intent.names.add(image)
                intent.uncertain = True
            self._opened = True
            if len(self.store.intents):
                try:
                    await self._settle()
                except OSError as error:
                    # a full disk must not keep the agent from starting: the agent is what frees it
                    logger.warning("unfinished pulls not settled", extra={"error": str(error)})
            self.store.count()

    async def may_use(self, image: str, image_ref: str, credentials: FindCredentials) -> bool:
        """Whether a pod may use an image that is on the node without a pull.

        Args:
            image: as in the pod.
            image_ref: the runtime's id of it.
            credentials: what the pod could present to the registry; looked up only when it matters.
        """
        try:
            await self.open()
            record = await self.store.find(image_ref)
        except (records.MalformedRecord, OSError) as error:
            logger.warning(
                "pull record not readable: the image is pulled again",
                extra={"image": image, "image_ref": image_ref, "error": str(error)},
            )
            outcome = records.MustPullResult.ERROR
        else:
            outcome = await self._verify(image, record, image_ref, credentials)
        self.metrics.access_checked(outcome)
        return outcome.allows

    async def _verify(
        self,
        image: str,
        record: records.PulledRecord | None,
        image_ref: str,
        credentials: FindCredentials,
    ) -> records.MustPullResult:
        pulled_here = record is not None or records.full_name(image) in self.store.intents
        if not self.verification.needed(image, pulled_here=pulled_here):
            return records.MustPullResult.POLICY_ALLOWED
        repository = records.repository_as_supplied(image)
        reported = records.by_record(record, repository)
        if isinstance(reported, records.MustPullResult):
            return reported
        proof = records.by_credentials(reported, await credentials())
        if not proof.learned.empty:
            try:
                await self._lasting.finish(self._grow(image_ref, repository, proof.learned))
            except OSError as error:
                _not_written(image, error)
        return proof.outcome

    @asynccontextmanager
    async def pulling(self, image: str) -> AsyncIterator[PullInProgress]:
        """Wraps a pull of an image, named as in the pod.

        The intent of a pull that fails stays unless the runtime has answered and the pull has
        changed nothing: an error may come after the image has.

        Raises:
            IntentNotRecorded: the intent can't be written.
        """
        try:
            await self.open()
        except OSError as error:
            raise _unrecorded(error) from error
        name = records.full_name(image)
        intent = self.store.intents.get_or_create(name)
        intent.pulls += 1
        pull = PullInProgress(self, image, intent)
        certain = False
        try:
            await self._lasting.finish(self._announce(image, intent))
            yield pull
            certain = True
        except (IntentNotRecorded, PullRateExceeded):
            certain = True
            raise
        except CRIError as error:
            certain = error.code not in UNCERTAIN and pull.changed_nothing
            raise
        finally:
            if not pull.recorded:
                intent.uncertain = intent.uncertain or not certain
                await self._lasting.finish(self._end(name, intent))

    async def finish(
        self, image: str, intent: records.Intent, image_ref: str, grants: records.Grants
    ) -> None:
        """Record a pull that succeeded, then drop its intent."""
        await self._lasting.finish(self._finish(image, intent, image_ref, grants))

    async def prune(self, present: Collection[str], before: float) -> None:
        """Drop the records of removed images, and settle uncertain intents.

        Args:
            present: refs of all images on the node, listed after ``before``.
            before: Unix seconds; younger records are kept.
        """
        try:
            await self.open()
            await self._lasting.finish(self._prune(present, before))
        except OSError as error:
            logger.warning("pull records not pruned", extra={"error": str(error)})
        self.store.count()

    async def close(self) -> None:
        """Wait for pending writes."""
        await self._lasting.close()

    async def _settle(self) -> None:
        """Images of uncertain pulls that are on the node get records that grant nobody access."""
        try:
            arrived = records.ids_by_name(await self.list_images())
        except CRIError as error:
            logger.warning("unfinished pulls not looked up", extra={"error": str(error)})
            return
        for name, intent in self.store.intents.uncertain():
            if (image_ref := arrived.get(name)) is not None:
                await self.store.grow(image_ref, "", records.NOBODY)
                intent.uncertain = False
                await self.store.withdraw(name, intent)
        for name, intent in self.store.intents.excess(self.store.max_intents, arrived):
            intent.uncertain = False
            await self.store.withdraw(name, intent)

    async def _announce(self, image: str, intent: records.Intent) -> None:
        async with self.store.lock:
            try:
                await self.store.announce(image, intent)
            except OSError as error:
                raise _unrecorded(error) from error
            finally:
                self.store.count()

    async def _prune(self, present: Collection[str], before: float) -> None:
        async with self.store.lock:
            await self.store.prune(present, before)
            if any(self.store.intents.uncertain()):
                await self._settle()

    async def _grow(self, image_ref: str, repository: str, grants: records.Grants) -> None:
        async with self.store.lock:
            await self.store.grow(image_ref, repository, grants)
            self.store.count()

    async def _finish(
        self, image: str, intent: records.Intent, image_ref: str, grants: records.Grants
    ) -> None:
        try:
            await self._grow(image_ref, records.repository_as_supplied(image), grants)
            intent.uncertain = False
        except OSError as error:
            intent.uncertain = True
            _not_written(image, error)
        await self._end(records.full_name(image), intent)

    async def _end(self, name: str, intent: records.Intent) -> None:
        intent.pulls -= 1
        async with self.store.lock:
            try:
                await self.store.withdraw(name, intent)
                if len(self.store.intents) > 2 * self.store.max_intents:
                    await self._settle()
            except OSError as error:
                intent.uncertain = True
                logger.warning("pull intent not removed", extra={"error": str(error)})
            self.store.count()


def _unrecorded(error: OSError) -> IntentNotRecorded:
    return IntentNotRecorded(f"failed to record image pull intent: {error}")


def _not_written(image: str, error: OSError) -> None:
    logger.warning("pull record not written", extra={"image": image, "error": str(error)})


_RECORDS_PER_POD = 5
_INTENTS_PER_POD = 2


def pull_records(
    settings: KubeletSettings,
    root: Path,
    images: ImageService,
    clock: Clock,
    metrics: PullRecordMetrics,
) -> PullRecords | None:
    """Return the node's records below ``root``, not opened yet, or None if their gate is off."""
    if not settings.feature_gates.enabled("KubeletEnsureSecretPulledImages"):
        return None
    parallel = settings.max_parallel_image_pulls or 0
    store = RecordStore(
        RecordFiles(root),
        clock,
        metrics,
        max_intents=_INTENTS_PER_POD * max(settings.max_pods, parallel),
        max_records=_RECORDS_PER_POD * settings.max_pods,
    )
    verification = records.Verification(
        records.VerificationPolicy(settings.image_pull_credentials_verification_policy),
        settings.preloaded_images_verification_allowlist,
    )
    return PullRecords(store, verification, images.list_images, metrics)

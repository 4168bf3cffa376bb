"""The certificates of this node's pods: one request per pod and source, kept in memory only.

A task per source requests, waits and refreshes; a pod is woken when its certificate is there. The
requests of this node are watched while any pod has such a source. An agent that starts requests new
certificates: keys are only here and in the pod's volume. Must never log a key or write one
anywhere.

Source: docs/reference/behaviour-storage.md, sx.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.host.pki import CertificateError
from kubeletpy.base.structs import Component, Hidden, HidesFields, Struct, field
from kubeletpy.base.tasks import cancel_tasks, wait_within
from kubeletpy.kubeapi.errors import ApiError, Forbidden, NotFound, Unavailable
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.kubeapi.protocol import SERVICEACCOUNTS, KubeApi, Resource, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector, first_served
from kubeletpy.metrics.volumes import PodCertificateMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.files.paths import CertificateInput, PayloadError
from kubeletpy.volumes.projected.pod_certificates import state as states
from kubeletpy.volumes.projected.pod_certificates.state import (
    CertificateRequestStatus,
    SourceState,
    account_of,
    answer_of,
    request_object,
)
from kubeletpy.volumes.projected.tokens import call_for_new_pod

if TYPE_CHECKING:
    from kubeletpy.volumes.projected.pod_certificates.keys import ProvenKey

logger = logging.getLogger(__name__)

VERSIONS = tuple(
    Resource(
        "certificates.k8s.io", version, "podcertificaterequests", True, "PodCertificateRequest"
    )
    for version in ("v1", "v1beta1")
)
"""The first one that the server has is used: v1 came with 1.37."""
FIRST_ANSWER_S = 1.0
"""How long a pod waits for its first certificate; it is woken when that comes later."""
REQUESTS_AT_ONCE = 4
_MAX_WAIT_S = 3600.0
"""The clock may be set during a wait: it is read at least this often."""


class _CertificateSource(HidesFields, Struct):
    """One podCertificate source of one pod."""

    pod: Pod
    spec: Mapping[str, Any]
    state: SourceState = field(default_factory=SourceState)
    key: Hidden[ProvenKey | None] = None
    """Made for a request that could not be created yet."""
    requesting: bool = False
    """A request is being created."""
    changes: asyncio.Event = field(default_factory=asyncio.Event)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is a certificate or a refusal."""
    task: asyncio.Task[None] | None = None


class PodCertificates(Component):
    """Keeps a certificate for each podCertificate source of the pods of this node."""

    # ``node_uid`` returns the uid of the Node object; empty: it is not known yet.
    api: KubeApi
    node_name: str
    node_uid: Callable[[], str]
    recorder: EventRecorder
    clock: Clock
    metrics: PodCertificateMetrics
    rng: random.Random

    def __post_init__(self) -> None:
        self._sources: dict[str, dict[tuple[str, int], _CertificateSource]] = {}
        self._answers: dict[tuple[str, str], CertificateRequestStatus] = {}
        """Namespace and name of a request -> its status."""
        self._starting = asyncio.Lock()
        self._resource = VERSIONS[0]
        self._reflector: Reflector | None = None
        self._watch: asyncio.Task[None] | None = None
        self._requests = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._one_key = asyncio.Semaphore(1)
        """RSA keys cost seconds of CPU: they are made one after the other."""
        self._wake: Callable[[str], None] = lambda uid: None

    def on_change(self, wake: Callable[[str], None]) -> None:
        """Have ``wake(pod uid)`` called when a certificate of a pod was issued or refused."""
        self._wake = wake

    async def credentials(
        self, pod: Pod, volume: str, index: int, spec: Mapping[str, Any]
    ) -> CertificateInput:
        """Key and certificates of the source at that index of a pod's volume.

        Raises:
            PayloadError: there is none, or there will be no new one; it names signer and state.
        """
        of_pod = self._sources.setdefault(pod.uid, {})
        source = of_pod.get((volume, index))
        if source is None:
            source = of_pod[volume, index] = _CertificateSource(pod, spec)
            name = f"certificate of {pod.key}"
            source.task = asyncio.create_task(self._keep(source), name=name)
        await wait_within(source.settled, FIRST_ANSWER_S)
        held = source.state.held
        if held is None or source.state.refusal is not None:
            alone = self.api.alone
            why = states.why_missing(source.state, spec, pod.namespace, alone=alone)
            raise PayloadError(why)
        return CertificateInput(held.key, held.chain)

    def release(self, uid: str) -> None:
        """Forget a pod that has ended."""
        for source in self._sources.pop(uid, {}).values():
            if source.task is not None:
                source.task.cancel()
        self._prune()
        self._count()
        if not self._sources and self._watch is not None:
            self._watch.cancel()
            self._watch = self._reflector = None

    async def close(self) -> None:
        """Forget all keys and stop following."""
        tasks = [each.task for of_pod in self._sources.values() for each in of_pod.values()]
        tasks.append(self._watch)
        for uid in list(self._sources):
            self.release(uid)
        await cancel_tasks(tasks)

    async def _keep(self, source: _CertificateSource) -> None:
        """Request, wait and refresh until the pod ends."""
        while True:
            source.changes.clear()
            sent = source.state.sent
            found = self._answers.get((source.pod.namespace, sent.name)) if sent else None
            now, jitter = self.clock.now(), self.rng.random()
            before = source.state
            step = states.advance(before, found, source.pod.namespace, now, jitter)
            self._apply_step(source, before, step)
            if step.request:
                await self._request(source)
                continue
            wait = _MAX_WAIT_S if step.until is None else max(step.until - now, 0.0)
            await wait_within(source.changes, min(wait, _MAX_WAIT_S))

    def _apply_step(
        self, source: _CertificateSource, before: SourceState, step: states.SourceStep
    ) -> None:
        source.state = step.state
        for reason, message in step.events:
            self.recorder.event(pod_reference(source.pod), WARNING, reason, message)
        if step.state.held is not before.held or step.state.refusal is not before.refusal:
            logger.info(
                "podCertificate: %s",
                step.reason,
                extra={"pod": source.pod.key, "signer": source.spec.get("signerName")},
            )
            source.settled.set()
            self._prune()
            self._wake(source.pod.uid)
        self._count()

    async def _request(self, source: _CertificateSource) -> None:
        """Create a request; what goes wrong is part of the state."""
        pod, signer = source.pod, source.spec.get("signerName")
        source.requesting = True
        try:
            await self._followed()
            key = await self._key(source)
            async with self._requests:
                create = partial(self._create, source, key)
                created = await call_for_new_pod(create, Forbidden, NotFound)
            name = created["metadata"]["name"]
        except (ApiError, CertificateError, KeyError, TypeError) as error:
            why = _why(error)
            logger.warning(
                "podCertificate: the request could not be created",
                extra={"pod": pod.key, "signer": signer, "why": why},
            )
            now, jitter = self.clock.now(), self.rng.random()
            source.state = states.not_requested(source.state, why, now, jitter)
        else:
            now, jitter = self.clock.now(), self.rng.random()
            source.state = states.requested(source.state, name, key.key, now, jitter)
            source.key = None
        finally:
            source.requesting = False

    async def _create(self, source: _CertificateSource, key: ProvenKey) -> JSON:
        pod = source.pod
        account = await self.api.get(SERVICEACCOUNTS, account_of(pod), pod.namespace)
        node_uid = self.node_uid()
        if not node_uid:
            raise Unavailable("the Node object is not known yet")
        request = request_object(
            pod,
            source.spec,
            key.proof,
            account_uid=account["metadata"]["uid"],
            node_name=self.node_name,
            node_uid=node_uid,
            api_version=self._resource.api_version,
        )
        return await self.api.create(self._resource, request, pod.namespace)

    async def _key(self, source: _CertificateSource) -> ProvenKey:
        """A new key, or that of the request that could not be created. Raises CertificateError."""
        if source.key is None:
            async with self._one_key:
                key_type = str(source.spec.get("keyType") or "")
                source.key = await asyncio.to_thread(_new_key, key_type)
        return source.key

    async def _followed(self) -> None:
        """Watch this node's requests. Raises ApiError while they can't be watched."""
        mine = f"spec.nodeName={self.node_name}"
        async with self._starting:
            if self._reflector is None:
                self._resource = await first_served(self.api, VERSIONS, field_selector=mine)
                self._reflector = self._follow(mine)
            reflector = self._reflector
        await reflector.first_answer(FIRST_ANSWER_S)

    def _follow(self, selector: str) -> Reflector:
        if not self._sources:
            raise Unavailable("the pods with certificates have ended")
        reflector = Reflector(
            self.api,
            self._resource,
            on_replace=self._replaced,
            on_event=self._changed,
            field_selector=selector,
            rng=self.rng,
        )
        run = reflector.run()
        self._watch = asyncio.create_task(run, name="watch pod certificate requests")
        return reflector

    def _replaced(self, items: list[JSON]) -> None:
        self._answers = {_key_of(each): answer_of(each) for each in items if self._is_ours(each)}
        self._wake_sources()

    def _changed(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._answers.pop(_key_of(event.object), None)
        elif self._is_ours(event.object):
            self._answers[_key_of(event.object)] = answer_of(event.object)
        self._wake_sources((event.object.get("spec") or {}).get("podUID"))

    def _is_ours(self, obj: JSON) -> bool:
        """Whether a request is one of ours; its name is only known when its creation has ended."""
        of_pod = self._sources.get((obj.get("spec") or {}).get("podUID") or "", {})
        name = obj["metadata"].get("name")
        return any(each.requesting or _request_name(each) == name for each in of_pod.values())

    def _prune(self) -> None:
        """Drop the answers that nobody waits for."""
        sources = [each for of_pod in self._sources.values() for each in of_pod.values()]
        if not any(each.requesting for each in sources):
            names = {(each.pod.namespace, _request_name(each)) for each in sources}
            self._answers = {key: each for key, each in self._answers.items() if key in names}

    def _wake_sources(self, uid: str | None = None) -> None:
        """Have the sources of a pod (None: of all) re-check the answers."""
        for each, of_pod in self._sources.items():
            if uid in (None, each):
                for source in of_pod.values():
                    source.changes.set()

    def _count(self) -> None:
        now = self.clock.now()
        self.metrics.show(
            Counter(
                (str(each.spec.get("signerName") or ""), states.condition(each.state, now))
                for of_pod in self._sources.values()
                for each in of_pod.values()
            )
        )


def _new_key(key_type: str) -> ProvenKey:
    from kubeletpy.volumes.projected.pod_certificates.keys import new_key

    return new_key(key_type)


def _key_of(obj: JSON) -> tuple[str, str]:
    return obj["metadata"].get("namespace") or "", obj["metadata"].get("name") or ""


def _request_name(source: _CertificateSource) -> str:
    return source.state.sent.name if source.state.sent is not None else ""


def _why(error: Exception) -> str:
    if isinstance(error, ApiError):
        return error.message
    return str(error) if isinstance(error, CertificateError) else "the answer cannot be read"

"""Registers the node and keeps its status up to date.

A change of health is written at once (:meth:`NodeManager.poke`); an unchanged status is written
only every report period. Must never decide what is healthy: others report it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import run_together, wait_within
from kubeletpy.kubeapi.errors import AlreadyExists, ApiError, Forbidden, NotFound
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, EventRecorder, node_reference
from kubeletpy.kubeapi.protocol import NODES, KubeApi
from kubeletpy.kubeapi.transport import RepairPace
from kubeletpy.node import build
from kubeletpy.node.build import (
    ImageSummary,
    NodeHealth,
    RuntimeInfo,
    condition_events,
    first_status,
    is_changes,
    status_patch,
)
from kubeletpy.node.facts import MachineFacts, NodeOptions
from kubeletpy.pods.pod import NO_DEVICES, DeviceCounts
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService
from kubeletpy.status.conditions import is_ready

# Startup: how long its steps took, reported once each.
#
# Source: the kubelet's node startup latency tracker.


class StartupMetrics(Protocol):
    """Where the steps are reported, in seconds; None: the machine's boot time is unknown."""

    def registered(
        self, pre_kubelet: float | None, pre_registration: float, registration: float
    ) -> None:
        """Report the node's creation: kubelet_node_startup_STEP_duration_seconds of three steps.

        The steps are pre_kubelet, pre_registration and registration.
        """

    def ready(self, post_registration: float, whole: float | None) -> None:
        """Report the first Ready: post_registration, and the startup from the machine's boot on."""


class NodeStartup(Component):
    """Measures the steps from the machine's boot to the node's first Ready.

    For a node that the API already had there is nothing to report: it was started before.
    """

    metrics: StartupMetrics
    clock: Clock
    booted_at: float | None
    """Unix seconds, as ``started_at`` of this process."""
    started_at: float

    def __post_init__(self) -> None:
        self._first_try: float | None = None
        self._registered: float | None = None
        self._ready = False

    def registering(self) -> None:
        """The node is about to be registered."""
        if self._first_try is None:
            self._first_try = self.clock.now()

    def registered(self) -> None:
        """The API has created the node."""
        if self._first_try is None or self._registered is not None:
            return
        self._registered = now = self.clock.now()
        booted = self.booted_at
        self.metrics.registered(
            None if booted is None else self.started_at - booted,
            self._first_try - self.started_at,
            now - self._first_try,
        )

    def ready(self) -> None:
        """The API shows the node as Ready."""
        if self._registered is None or self._ready:
            return
        self._ready = True
        now, booted = self.clock.now(), self.booted_at
        self.metrics.ready(now - self._registered, None if booted is None else now - booted)


log = logging.getLogger(__name__)

FIRST_RETRY_S, LAST_RETRY_S = 0.1, 7.0
JITTER = 0.04
METADATA_REPAIR_S, LONGEST_REPAIR_S = 10.0, 600.0
"""Between two repairs of labels or annotations that others remove."""
IMAGES_FRESH_S = 30.0
IMAGES_WAIT_S = 2.0
"""How long the status waits for the image list; after that it shows the last one."""


_IDENTITY = re.compile(r'"system:node:([a-z0-9.-]{1,253})"')


def refusal(error: ApiError, node_name: str) -> str:
    """Why the node can't be registered, with the remedy for credentials of another node."""
    named = _IDENTITY.search(str(error)) if isinstance(error, Forbidden) else None
    if named is None or named[1] == node_name:
        return str(error)
    return (
        f"the credentials are those of node {named[1]}, and this node is named {node_name}: start "
        f"the agent with --hostname-override={named[1]}, or with credentials of {node_name}"
    )


class NodeManager(Component):
    """One node's object in the API."""

    kube_api: KubeApi
    clock: Clock
    options: NodeOptions
    facts: MachineFacts
    node_ips: Sequence[str]
    recorder: EventRecorder
    health: Callable[[], NodeHealth]
    """Called at each write, like ``runtime_info``."""
    runtime_info: Callable[[], RuntimeInfo]
    list_images: Callable[[], Awaitable[Sequence[ImageSummary]]]
    """May fail."""
    startup: NodeStartup
    newest: Callable[[], api.Node | None] | None = None
    """The newest object that the API has shown, by watch or response, without any value of our own;
    None: the last response."""
    deleted: Callable[[], bool] = lambda: False
    """Whether the API had the Node, and has it no more: nothing is written then."""
    not_found: Callable[[], None] = lambda: None
    """Called when a write is answered that way."""
    replaced: Callable[[], None] = lambda: None
    """Called when a Node of another uid is served, which somebody has created."""
    answered: Callable[[], None] = lambda: None
    """Called each time that the API has shown us the node."""
    volumes_in_use: Callable[[], list[str] | None] = lambda: None
    """Attachable volumes of which there is something on the node; None: not known yet."""
    volumes_in_use_written: Callable[[], None] = lambda: None
    """Called when the API has those that were given last."""
    devices: Callable[[Mapping[str, str]], DeviceCounts] = lambda reported: NO_DEVICES
    """Those of device plugins; given the capacity that the API shows."""
    rng: random.Random | None = None

    def __post_init__(self) -> None:
        self._rng = self.rng or random.Random()
        self._node: api.Node | None = None
        self._poked = asyncio.Event()
        self._current = asyncio.Event()
        self._images: Sequence[ImageSummary] = ()
        self._images_at = float("-inf")
        self._report_at = float("-inf")
        """When an unchanged status is due, on the loop's clock."""
        self._boot_id = ""
        self._unsure = False
        """A write has failed and may have been done anyway: what is shown may be outdated."""
        self._served_uid = ""
        self._pace = RepairPace(METADATA_REPAIR_S, LONGEST_REPAIR_S)
        self._unregistered = ""
        self.registered = asyncio.Event()
        """Set once the API has the node."""
        self.ready = asyncio.Event()
        """Set once the API shows the node as Ready, and this process has written its status."""

    def problem(self) -> str:
        """Why the API does not have the node yet; empty when it has, or nothing has failed."""
        if self.registered.is_set() or not self._unregistered:
            return ""
        return f"the API can't be used: the node is not registered: {self._unregistered}"

    @property
    def node(self) -> api.Node | None:
        """The node as the API last showed it to us; None before registration."""
        return self._node

    @property
    def uid(self) -> str:
        """The Node's uid; empty before registration."""
        return _uid(self._node)

    def node_reported(self) -> None:
        """The API has shown the Node by watch: one that was created anew is served at once."""
        if self.registered.is_set() and self._is_replaced(self._newest()):
            self.poke()

    def _newest(self) -> api.Node | None:
        return self._node if self.newest is None else self.newest()

    def poke(self) -> None:
        """Something shown in the status has changed: write it now."""
        self._poked.set()
        self._current.clear()

    async def up_to_date(self) -> None:
        """Wait until the API has the node's status as it is now."""
        await self._current.wait()

    async def run(self) -> None:
        """Register, then keep the status up to date until cancelled."""
        if self.options.register:
            self.startup.registering()
        await self._register()
        await self._until_known()
        while True:
            self._poked.clear()
            try:
                if await self._exists():
                    await self._keep_metadata()
                    await self._write_status()
                    if not self._poked.is_set():
                        self._current.set()
                    if self._node is not None and is_ready(self._node.get("status") or {}):
                        self.ready.set()
            except ApiError as error:
                if isinstance(error, NotFound):
                    self.not_found()
                log.warning(
                    "could not write the node status; trying again",
                    extra={"node": self.options.name, "why": str(error)},
                )
            period = self.options.status_update_s * (1 + JITTER * self._rng.random())
            await wait_within(self._poked, period)

    async def _until_known(self) -> None:
        """A restart alone must not show a node that was Ready as anything else."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            self._poked.clear()
            reported: api.NodeStatus = (self._node or {}).get("status") or {}
            waited, period = loop.time() - begun, self.options.status_update_s
            first = first_status(reported, self.health(), waited, period)
            if not first.wait:
                log.debug("first status", extra={"node": self.options.name, "why": first.why})
                return
            await wait_within(self._poked, first.wait)

    async def _status(self, old: api.NodeStatus) -> api.NodeStatus:
        self._poked.clear()
        return build.node_status(
            self.facts,
            self.options,
            self.runtime_info(),
            node_ips=self.node_ips,
            hostname=self.options.name,
            images=await self._fresh_images(),
            health=self.health(),
            old=old,
            now=self.clock.now(),
            devices=self.devices(old.get("capacity") or {}),
        )

    async def _fresh_images(self) -> Sequence[ImageSummary]:
        now = asyncio.get_running_loop().time()
        if now - self._images_at > IMAGES_FRESH_S:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IMAGES_WAIT_S):
                    self._images = await self.list_images()
            self._images_at = now
        return self._images

    async def _register(self) -> None:
        delay = FIRST_RETRY_S
        while True:
            try:
                await self._register_once()
            except ApiError as error:
                self._unregistered = refusal(error, self.options.name)
                log.warning(
                    "could not register the node; trying again",
                    extra={"node": self.options.name, "why": self._unregistered},
                )
                await asyncio.sleep(delay * (0.75 + self._rng.random() / 2))
                delay = min(delay * 2, LAST_RETRY_S)
                continue
            self._served_uid = self.uid
            self.registered.set()
            return

    async def _register_once(self) -> None:
        name = self.options.name
        if not self.options.register:
            self._remember(await self.kube_api.get(NODES, name))
            return
        existing, _ = await run_together(self._find(), self._fresh_images())
        status = build.with_volumes_in_use(await self._status({}), self.volumes_in_use(), {})
        desired = self._desired(status)
        if existing is None:
            try:
                created = await self.kube_api.create(NODES, cast(JSON, desired))
            except (AlreadyExists, Forbidden):
                # Forbidden too: an admission plugin may refuse to create what already exists
                existing = await self.kube_api.get(NODES, name)
            else:
                self.startup.registered()
                self._remember(created)
                self._wrote(asyncio.get_running_loop().time(), in_step=True)
                self._record_condition_events({}, desired["status"])
                return
        patch = build.metadata_patch(cast(api.Node, existing), desired)
        if patch is not None:
            existing = await self.kube_api.patch(NODES, name, patch)
        self._remember(existing)

    def _desired(self, status: api.NodeStatus) -> api.Node:
        """The Node as it would be registered."""
        name, architecture = self.options.name, self.facts.architecture
        return build.new_node(self.options, name, architecture, status)

    async def _exists(self) -> bool:
        """Whether the API has the Node; one that was created anew is taken over."""
        if self.deleted():
            found = await self._find()
            if found is None:
                return False
            self._remember(found)
        newest = self._newest()
        if newest is not None and self._is_replaced(newest):
            await self._take_over(newest)
        return True

    def _is_replaced(self, node: api.Node | None) -> bool:
        return _uid(node) not in ("", self._served_uid)

    async def _take_over(self, node: api.Node) -> None:
        patch = build.metadata_patch(node, self._desired({})) if self.options.register else None
        if patch is not None:
            self._remember(await self.kube_api.patch(NODES, self.options.name, patch))
        else:
            self._remember(cast(JSON, node))
        log.warning(
            "the Node object was created anew by somebody else; it is served from now on",
            extra={"node": self.options.name, "uid": _uid(node)},
        )
        self._served_uid = _uid(node)
        self.replaced()

    async def _find(self) -> JSON | None:
        """The Node object of an earlier start; None: there is none, or it may not be read."""
        try:
            return await self.kube_api.get(NODES, self.options.name)
        except (NotFound, Forbidden):
            return None

    def _remember(self, node: JSON) -> None:
        self._node = cast(api.Node, node)
        status: api.NodeStatus = self._node.get("status") or {}
        self._boot_id = status.get("nodeInfo", {}).get("bootID", "")
        if is_ready(status):
            self.startup.ready()
        self.answered()

    async def _keep_metadata(self) -> None:
        """Correct the labels that only we may set: operating system and architecture.

        Other labels and annotations of the registration are written again if they were removed.
        """
        node, now = self._newest(), asyncio.get_running_loop().time()
        if node is None:
            return
        patch = build.machine_labels(node, self.facts.architecture)
        if patch is None and self.options.register and self._pace.due(now):
            patch = build.removed_metadata(node, self._desired({}))
            if patch is not None:
                self._pace.repaired(now)
        if patch is not None:
            self._remember(await self.kube_api.patch(NODES, self.options.name, patch))

    async def _write_status(self) -> None:
        assert self._node is not None, "status is written after registration"
        newest = self._newest() or self._node
        old = newest.get("status") or {}
        status = await self._status(old)
        in_use = self.volumes_in_use()
        status = build.with_volumes_in_use(status, in_use, old)
        now = asyncio.get_running_loop().time()
        differences = is_changes(old, status)
        if not self._unsure and now < self._report_at and not differences:
            self.volumes_in_use_written()
            return
        changes = status_patch(old, status, unsure=self._unsure)
        if self._unsure and in_use is not None:
            changes["volumesInUse"] = in_use
        patch: JSON = {"status": changes}
        if self._boot_id and self._boot_id != self.facts.boot_id:
            self.recorder.event(
                node_reference(self.options.name, self.uid),
                WARNING,
                Reason.REBOOTED,
                f"Node {self.options.name} has been rebooted, boot id: {self.facts.boot_id}",
            )
        in_step = differences or self._unsure
        self._unsure = True
        answer = await self.kube_api.patch(NODES, self.options.name, patch, subresource="status")
        self._unsure = False
        self._remember(answer)
        if self._is_replaced(self._node):
            self.poke()  # created anew since: it has only what differs from the former one
        self._wrote(now, in_step=in_step)
        self.volumes_in_use_written()
        self._record_condition_events(old, status)

    def _wrote(self, now: float, *, in_step: bool) -> None:
        period = self.options.status_report_s
        self._report_at = now + until_report(period, self._rng.random(), in_step=in_step)

    def _record_condition_events(self, old: api.NodeStatus, new: api.NodeStatus) -> None:
        reference = node_reference(self.options.name, self.uid)
        for reason in condition_events(old, new):
            message = f"Node {self.options.name} status is now: {reason}"
            self.recorder.event(reference, NORMAL, reason, message)


def _uid(node: api.Node | None) -> str:
    return "" if node is None else node["metadata"].get("uid") or ""


def until_report(period: float, chance: float, *, in_step: bool) -> float:
    """Seconds until a status that stays unchanged is written again.

    Up to half a period earlier or later when many nodes may have written at once, so that they do
    not go on together.

    Args:
        chance: a random number from 0 to 1.
        in_step: the last write showed a change, or followed a failed one.

    Source: docs/reference/behaviour.md, o2.
    """
    return period * (0.5 + chance) if in_step else period


# The images in the node's status.

LARGEST_SIZE = 2**63 - 1
"""Bytes of an image: the API has int64, the CRI uint64. An image that is larger would have each
status of the node refused."""
LONGEST_NAME = 1024
"""Characters of an image's name; a longer one is left out of the node's status, whose size the API
limits."""


async def image_summaries(images: ImageService) -> Sequence[ImageSummary]:
    """All images; none when the runtime does not list them."""
    try:
        found = await images.list_images()
    except CRIError as error:
        log.debug("images not listed", extra={"why": str(error)})
        return ()
    return [_summary(image) for image in found]


def _summary(image: cri.Image) -> ImageSummary:
    """An image as the API accepts it, whatever the runtime reports."""
    names = (*image.repo_digests, *image.repo_tags)
    return ImageSummary(
        [name for name in names if len(name) <= LONGEST_NAME], min(image.size, LARGEST_SIZE)
    )

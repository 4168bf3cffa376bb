"""Finds the uids of static pods whose manifests have none: see :mod:`.static_uid`.

Reads the runtime and the API when a source first delivers its pods, and a file that keeps adopted
uids. A manifest that was adopted once keeps its uid over restarts, reboots and switches.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.state_file import StateFile, read_state
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import run_together
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import PODS, KubeApi
from kubeletpy.pods.pod import CONFIG_SEEN, Pod
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.names import HASH, pod_labels, read_labels, sandbox_rank
from kubeletpy.syncloop.sources.static_uid import (
    ADOPTED,
    REMADE,
    RunningStaticPod,
    UidChoice,
    UidReason,
    choose_uid,
)

log = logging.getLogger(__name__)

MIRRORS_S = 5.0
"""Seconds in which the API must return the mirror pods."""
MAX_RECORDED = 1000
"""Adopted uids that are kept: the newest."""
RECORD = "static_pod_uids"
"""The file's name below the root directory."""

Decided = Callable[[str, Sequence[Decision]], None]


class StaticUids(Component):
    """Chooses uids, and records those that were adopted."""

    runtime: RuntimeService
    kube_api: KubeApi | None
    # The file with adopted UIDs.
    record: Path
    # Records a decision about a pod.
    decided: Decided = lambda uid, decisions: None

    def __post_init__(self) -> None:
        self._recorded = _read(self.record)
        self._file = StateFile(
            self.record, self._capture, "adopted uids not recorded; trying again"
        )
        self._read: set[str] = set()
        """Sources that have been read."""

    async def settle(
        self, source: str, pods: Sequence[api.Pod], changed: Mapping[str, float | None]
    ) -> Mapping[str, str]:
        """The uids that pods of a source have instead of the computed ones.

        Only pods that the source has when it is first read can be adopted: what a manifest becomes
        later is a change.

        Args:
            pods: as read.
            changed: the computed uids, and when each one's file was last changed.

        Raises:
            CRIError: the runtime does not report its pods.
        """
        if source not in self._read:
            await self._adopt(source, [Pod(each) for each in pods], changed)
            self._read.add(source)
        return {uid: self._recorded[uid] for uid in changed if uid in self._recorded}

    async def _adopt(
        self, source: str, pods: Sequence[Pod], changed: Mapping[str, float | None]
    ) -> None:
        choices = await self.choices(source, pods, changed)
        adopted = {pod.uid: one.uid for pod, one in choices if one.reason in ADOPTED}
        fresh = {pod.uid for pod, one in choices if one.reason in REMADE | {UidReason.OWN}}
        kept = {
            uid: one for uid, one in self._recorded.items() if uid not in fresh | adopted.keys()
        }
        recorded = dict(list({**kept, **adopted}.items())[-MAX_RECORDED:])
        if recorded != self._recorded:
            self._recorded = recorded
            self._file.write_soon()
            await self._file.store()
        for pod, one in choices:
            if one.reason in ADOPTED:
                log.info(
                    "static pod adopted", extra={"pod": pod.key, "uid": one.uid, "why": one.text}
                )
                self.decided(one.uid, (Decision("keep the static pod that runs", one.text),))
            elif one.reason in REMADE:
                log.warning("static pod made anew", extra={"pod": pod.key, "why": one.text})
                self.decided(pod.uid, (Decision("replace the static pod that runs", one.text),))

    def _capture(self) -> Callable[[], str]:
        return partial(json.dumps, {"uids": self._recorded})

    async def close(self) -> None:
        """Wait for a write in progress."""
        await self._file.close()

    async def choices(
        self, source: str, pods: Sequence[Pod], changed: Mapping[str, float | None]
    ) -> list[tuple[Pod, UidChoice]]:
        """The choice for each pod with a computed uid. Changes nothing. Raises CRIError."""
        requested = [pod for pod in pods if pod.uid in changed]
        if not requested:
            return []
        running = await self._running()
        here = {pod.uid: running.get((pod.namespace, pod.name), []) for pod in requested}
        unknown = [
            pod for pod in requested if here[pod.uid] and self._may_adopt(pod, here[pod.uid])
        ]
        found = await run_together(*(self._mirror(pod) for pod in unknown))
        mirrors = {pod.uid: mirror for pod, mirror in zip(unknown, found, strict=True)}
        return [
            (
                pod,
                choose_uid(
                    pod,
                    source,
                    here[pod.uid],
                    recorded=self._recorded.get(pod.uid, ""),
                    changed_at=changed[pod.uid],
                    mirror=mirrors.get(pod.uid),
                ),
            )
            for pod in requested
        ]

    def _may_adopt(self, pod: Pod, running: Sequence[RunningStaticPod]) -> bool:
        return not {pod.uid, self._recorded.get(pod.uid)} & {each.uid for each in running}

    async def _running(self) -> dict[tuple[str, str], list[RunningStaticPod]]:
        sandboxes, containers = await run_together(
            self.runtime.list_pod_sandbox(), self.runtime.list_containers()
        )
        hashes: dict[str, dict[str, str]] = {}
        for each in sorted(containers, key=lambda one: one.created_at):
            owner = read_labels(each.labels)
            noted = each.annotations.get(HASH, "")
            hashes.setdefault(owner.pod_uid, {})[owner.container_name] = noted
        found: dict[tuple[str, str], list[RunningStaticPod]] = {}
        for sandbox in sorted(sandboxes, key=sandbox_rank, reverse=True):
            pod = read_labels(sandbox.labels)
            if sandbox.state != cri.SANDBOX_READY or not pod.pod_uid:
                continue
            annotations = dict(sandbox.annotations)
            found.setdefault((pod.pod_namespace, pod.pod_name), []).append(
                RunningStaticPod(
                    pod.pod_uid,
                    _seconds(annotations.get(CONFIG_SEEN, "")),
                    pod_labels(sandbox.labels),
                    annotations,
                    hashes.get(pod.pod_uid, {}),
                )
            )
        return found

    async def _mirror(self, pod: Pod) -> JSON | None:
        if self.kube_api is None:
            return None
        try:
            async with asyncio.timeout(MIRRORS_S):
                return await self.kube_api.get(PODS, pod.name, pod.namespace)
        except (ApiError, TimeoutError):
            return None


def _seconds(text: str) -> float:
    try:
        return parse_time(text)
    except (ValueError, OverflowError):
        return 0.0


def _read(path: Path) -> dict[str, str]:
    try:
        found = json.loads(read_state(path))
        return {str(key): str(value) for key, value in found["uids"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        log.warning("adopted uids can't be read", extra={"path": str(path), "error": str(error)})
        return {}

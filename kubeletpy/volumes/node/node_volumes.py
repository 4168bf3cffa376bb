"""The volume manager: gathers the sources of a pod's volumes, sets them up, tears them down.

A sync of an unchanged pod costs a comparison: files are examined only when an object, field or
token that they come from has changed. No state is needed after a crash: the next agent finds the
volumes on disk. Must never log or show the content of a file.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kubeletpy.base.clock import Clock
from kubeletpy.base.host.errors import Cause, CauseKind, NoThread
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Component, Hidden, HidesFields, Struct, field
from kubeletpy.base.tasks import run_together
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.families import Families
from kubeletpy.metrics.volumes import VolumeMetrics
from kubeletpy.pods.pod import Mount, Pod
from kubeletpy.volumes.claims.model import OperationFailed, SetUp, StillUnderWay, VolumeError
from kubeletpy.volumes.containers.environment import object_key
from kubeletpy.volumes.containers.pod_mounts import PodMounts
from kubeletpy.volumes.files.atomic import read_file
from kubeletpy.volumes.files.disk import REQUIRED, MountRights
from kubeletpy.volumes.files.paths import (
    PayloadError,
    PodPaths,
    TokenInput,
    TrustInput,
    UnsafePath,
    payload_path,
)
from kubeletpy.volumes.files.safe_path import may_give_to_group, may_give_to_user
from kubeletpy.volumes.node.accounts import VolumeAccounts
from kubeletpy.volumes.operations.waiting import VolumesWait
from kubeletpy.volumes.pod_volumes import set_up as pod_volumes_set_up
from kubeletpy.volumes.pod_volumes.payload import (
    MAX_POD_BYTES,
    DownwardInput,
    FileOwner,
    Input,
    sources_of,
)
from kubeletpy.volumes.pod_volumes.planned import (
    FILE_KINDS,
    ObjectRef,
    PlannedVolume,
    Unanswered,
    VolumePlan,
    plan_volumes,
    waits_only,
)
from kubeletpy.volumes.projected.token_claims import MAX_TOKEN_BYTES, TokenKey
from kubeletpy.volumes.projected.tokens import DEFAULT_SECONDS, PodTokens, TokenError
from kubeletpy.volumes.volume_manager import VolumeManager

if TYPE_CHECKING:
    from kubeletpy.kubeapi.tracked_object import PodObjects
    from kubeletpy.volumes.projected.pod_certificates.certificates import PodCertificates
    from kubeletpy.volumes.projected.trust_bundles import TrustBundles

T = TypeVar("T")

TEAR_DOWNS_AT_ONCE = 2
"""Removing what containers have written can take long: it must not occupy all threads."""

OUTCOMES_A_TURN = 500
"""Volumes of a pod that are counted in one turn of the event loop: about 10 ms."""

BUSY_WAITS = (0.05, 0.1, 0.3)
"""Seconds before each retry of unmounting a volume in which a file is open."""
NO_BUNDLES = (
    "clusterTrustBundle is not supported: feature gate ClusterTrustBundleProjection is off, or "
    "this node has no API"
)

NO_CERTIFICATES = (
    "podCertificate is not supported: feature gate PodCertificateRequest is off, or this node has "
    "no API"
)


class _PodState(HidesFields, Struct):
    """State of one pod's volumes."""

    spec: Mapping[str, Any]
    plan: VolumePlan
    paths: PodPaths
    owner: FileOwner
    mounts: Mapping[str, Sequence[Mount]]
    made_of: Hidden[dict[str, tuple[Input, ...]]] = field(default_factory=dict)
    """Volume name -> what it was last made of; only volumes that were set up."""
    bytes: dict[str, int] = field(default_factory=dict)
    """Volume name -> size of its files as last found."""
    unanswered: Unanswered = field(default_factory=Unanswered)
    causes: dict[str, Cause] = field(default_factory=dict)
    """Volume name -> the machine's fault for which it could not be set up or updated."""

    def bytes_besides(self, work: Sequence[pod_volumes_set_up.VolumeWork]) -> int:
        """Size of the files of the pod's other volumes."""
        others = {volume.name for volume in self.plan.volumes}
        others -= {item.volume.name for item in work}
        return sum(self.bytes.get(name, 0) for name in others)


class NodeVolumes(Component):
    """All volumes of the pods of this node, as pod workers use them."""

    pods_dir: Path
    """``{root}/pods``"""
    objects: PodObjects
    """The configMaps and secrets of pods."""
    tokens: PodTokens
    recorder: EventRecorder
    clock: Clock
    claims: VolumeManager | None = None
    """Handles volumes of claims, drivers and disks; None: there are none."""
    allocatable: Mapping[str, str] | None = None
    """The node's allocatable resources, as quantities."""
    metrics: VolumeMetrics | None = None
    bundles: TrustBundles | None = None
    """None: ClusterTrustBundles are not projected."""
    certificates: PodCertificates | None = None
    """None: certificates of pods are not projected."""
    features: pod_volumes_set_up.VolumeFeatures = pod_volumes_set_up.NO_FEATURES
    """The fields that are obeyed."""
    rights: MountRights = field(default_factory=lambda: REQUIRED)
    """Whether directories may replace mounts."""

    def __post_init__(self) -> None:
        self._accounts = VolumeAccounts(self.metrics or VolumeMetrics(Families()))
        self._pods_dir = str(self.pods_dir)
        self._pods: dict[str, _PodState] = {}
        self._busy: dict[str, asyncio.Future[Any]] = {}
        self._tear_downs = asyncio.Semaphore(TEAR_DOWNS_AT_ONCE)
        self._patient = PatientThreads()

    async def set_up(self, pod: Pod) -> Mapping[str, Sequence[Mount]]:
        """Set up or update all volumes that the pod uses.

        A volume that containers already use stays unchanged if it cannot be updated; an event
        contains the reason.

        Raises:
            VolumeError: a volume is missing.
        """
        state = self._state(pod)
        if not (state.plan.volumes or state.plan.problems or state.plan.claimed):
            return {}
        await self._settled(pod.uid)
        work = await self._changed(pod, state, state.plan.volumes)
        silent = {item.volume.name for item in work if waits_only(item.inputs)}
        state.unanswered.seen(silent, asyncio.get_running_loop().time())
        problems = dict(state.plan.problems)
        if work:
            failed = await self._make(pod, state, work)
            problems |= await self._fatal(pod, state, failed)
        claimed = await self._claimed(pod, state, problems)
        if problems:
            raise self._error(pod, state, problems)
        if state.plan.claimed:
            return PodMounts(pod, state.plan, state.paths, claimed)
        return state.mounts

    async def refresh(self, pod: Pod) -> None:
        """Update the files that a terminating pod's containers have.

        Volumes that were never set up are left alone. A volume whose object can't be read any more
        (a deleted configMap, in a namespace that is deleted) stays unchanged, without an event.

        Raises:
            VolumeError: some could not be updated.
        """
        state = self._state(pod)
        of_files = [v for v in state.plan.volumes if v.kind in FILE_KINDS]
        if not of_files:
            return
        await self._settled(pod.uid)
        unsure = [v for v in of_files if v.name not in state.made_of]
        if unsure:  # this agent has started while the pod terminated
            missing = await asyncio.to_thread(
                lambda: {
                    v.name
                    for v in unsure
                    if not pod_volumes_set_up.is_established(v, state.paths, self.rights)
                }
            )
            of_files = [v for v in of_files if v.name not in missing]
        work = await self._changed(pod, state, of_files)
        failed = await self._make(pod, state, work) if work else {}
        if failed:
            raise VolumeError(f"not updated: {'; '.join(_listed(failed))}")

    async def _make(
        self, pod: Pod, state: _PodState, work: Sequence[pod_volumes_set_up.VolumeWork]
    ) -> Mapping[str, str]:
        """Set volumes up or update them; returns those that failed, with the reason."""
        setting = pod_volumes_set_up.PodSetting(
            pod,
            state.paths,
            state.owner,
            (self.allocatable or {}).get("memory"),
            self.clock.now(),
            max(0, MAX_POD_BYTES - state.bytes_besides(work)),
            self.features,
            self.rights,
        )
        apart = any(item.volume.kind == "hostPath" for item in work)
        act = partial(pod_volumes_set_up.set_up_all, work, setting)
        try:
            outcomes = await self._in_thread(pod.uid, act, self._patient if apart else None)
        except NoThread as error:
            names = " ".join(item.volume.name for item in work)
            raise VolumeError(f"unmounted volumes=[{names}]: {error}") from error
        now = asyncio.get_running_loop().time()
        for first in range(0, len(outcomes), OUTCOMES_A_TURN):
            if first:
                await asyncio.sleep(0)
            self._accounts.worked(pod.uid, outcomes[first : first + OUTCOMES_A_TURN], now)
        failed = {made.volume.name: made.problem for made in outcomes if made.problem}
        state.causes = {made.volume.name: made.cause for made in outcomes if made.cause is not None}
        for item in work:
            if item.volume.name not in failed:
                state.made_of[item.volume.name] = tuple(item.inputs)
        state.bytes.update((made.volume.name, made.bytes) for made in outcomes)
        return failed

    async def _claimed(
        self, pod: Pod, state: _PodState, problems: Mapping[str, str]
    ) -> Mapping[str, SetUp]:
        """The volumes that other components set up. Raises VolumeError."""
        if not state.plan.claimed:
            return {}
        if self.claims is None:
            names = " ".join(volume.name for volume in state.plan.claimed)
            raise VolumeError(f"unmounted volumes=[{names}]: this node has no plugins for them")
        try:
            return await self.claims.set_up(pod, state.plan.claimed)
        except VolumesWait as wait:
            for name, problem in problems.items():
                self._report_mount_failure(pod, state, name, problem)
            names = " ".join([*problems, *wait.waits])
            why = "; ".join([*_listed(problems), str(wait)])
            if wait.node_is_full:
                # the kubelet's wording
                text = (
                    "Node has reached its volume attachment limit, rejecting pod. unmounted "
                    f"volumes=[{names}], unattached volumes=[{' '.join(wait.node_is_full)}], "
                    f"failed to process volumes=[{' '.join(problems)}]: {why}"
                )
                raise VolumeError(text, node_is_full=True) from wait
            text = f"unmounted volumes=[{names}]: {why}"
            raise VolumeError(text, reported=wait.reported) from wait

    async def resize(self, pod: Pod, volume: str, size: int) -> None:
        """Give a mounted volume in memory another size in bytes.

        Raises:
            VolumeSizeError: it has the size that it had.
        """
        await self._settled(pod.uid)
        directory = PodPaths(self._pods_dir, pod.uid).volume("emptyDir", volume)
        await self._in_thread(
            pod.uid, partial(pod_volumes_set_up.resize_tmpfs, directory, size, self.rights)
        )

    async def tear_down(self, pod_uid: str) -> None:
        """Tear down all volumes of a pod whose containers have exited.

        Raises:
            VolumeError: something is still in use or cannot be removed.
        """
        await self._settled(pod_uid)
        paths = PodPaths(self._pods_dir, pod_uid)
        if self.claims is not None:
            await self._end_claimed(self.claims, paths)
        ended = await self._take_down(pod_uid, paths)
        self._accounts.taken_down(pod_uid, ended)
        self._pods.pop(pod_uid, None)
        self.objects.release(pod_uid)
        self.tokens.forget(pod_uid)
        if self.bundles is not None:
            self.bundles.release(pod_uid)
        if self.certificates is not None:
            self.certificates.release(pod_uid)

    def release_orphan(self, pod_uid: str) -> None:
        """Tear down what a pod has left on disk. Blocks. Raises OSError, UnsafePath."""
        if pod_uid in self._pods:
            # it came while the sweep was in progress
            raise OSError(f"the volumes of pod {pod_uid} are in use")
        if self.claims is not None:
            self._end_orphan(self.claims, pod_uid)
        try:
            self._accounts.swept(
                len(pod_volumes_set_up.take_down(PodPaths(self._pods_dir, pod_uid)))
            )
        except OSError:
            self._accounts.swept(0, failed=True)
            raise

    async def _end_claimed(self, claims: VolumeManager, paths: PodPaths) -> None:
        """Have plugins tear down what they mounted for a pod. Raises VolumeError."""
        await claims.known.wait()
        try:
            if keep := claims.state.paths(paths.uid):
                await self._patient.run(pod_volumes_set_up.unmount_inside, paths, keep)
            await claims.tear_down(paths.uid)
        except OperationFailed as error:
            reported = not isinstance(error, StillUnderWay)
            raise VolumeError(str(error), reported=reported) from error
        except (OSError, UnsafePath) as error:
            raise VolumeError(f"{error}{await self._held_by(error)}") from error

    def _end_orphan(self, claims: VolumeManager, pod_uid: str) -> None:
        """Have plugins tear down a terminated pod's volumes, without waiting. Blocks; OSError."""
        keep = claims.orphan_paths(pod_uid)
        if keep is None:
            return
        pod_volumes_set_up.unmount_inside(PodPaths(self._pods_dir, pod_uid), keep)
        claims.end_orphan(pod_uid)
        raise OSError(errno.EBUSY, "its volumes are being taken down by their plugins", pod_uid)

    async def _take_down(self, pod_uid: str, paths: PodPaths) -> list[tuple[str, float]]:
        """Tear down a pod's volumes; a file may still be open for a moment."""
        begun = asyncio.get_running_loop().time()
        for wait in (*BUSY_WAITS, None):
            try:
                async with self._tear_downs:
                    return await self._in_thread(
                        pod_uid, partial(pod_volumes_set_up.take_down, paths)
                    )
            except (OSError, UnsafePath) as error:
                if wait is None or getattr(error, "errno", None) != errno.EBUSY:
                    plugin = (
                        pod_volumes_set_up.plugin_of(str(getattr(error, "filename", "")), paths)
                        or "N/A"
                    )
                    seconds = asyncio.get_running_loop().time() - begun
                    self._accounts.not_taken_down(plugin, seconds)
                    raise VolumeError(f"{error}{await self._held_by(error)}") from error
            await asyncio.sleep(wait)
        raise AssertionError("the last try returns or raises")

    async def _held_by(self, error: Exception) -> str:
        """The processes that keep a volume from being unmounted, for people; empty: none found."""
        from kubeletpy.volumes.files.disk import held_by

        return await held_by(str(error), str(getattr(error, "filename", None) or ""))

    def _state(self, pod: Pod) -> _PodState:
        """The state of a pod's volumes, planned again if its spec has changed."""
        known = self._pods.get(pod.uid)
        if known is not None and (known.spec is pod.spec or known.spec == pod.spec):
            return known
        paths, plan = PodPaths(self._pods_dir, pod.uid), plan_volumes(pod)
        if plan.refused:
            raise VolumeError(plan.refused)
        try:
            mounts = {} if plan.problems else PodMounts(pod, plan, paths)
        except UnsafePath as error:
            raise VolumeError(str(error)) from error
        state = _PodState(pod.spec, plan, paths, file_owner(pod, self.rights), mounts)
        if known is not None:
            before = {volume.name: volume for volume in known.plan.volumes}
            state.made_of = {
                volume.name: known.made_of[volume.name]
                for volume in plan.volumes
                if volume.name in known.made_of and volume == before[volume.name]
            }
            state.bytes = dict(known.bytes)
        self._pods[pod.uid] = state
        self._accounts.planned(pod.uid, plan.volumes, asyncio.get_running_loop().time())
        self.objects.register(
            pod.uid,
            {object_key(ref, pod.namespace) for ref in plan.objects},
            {object_key(ref, pod.namespace) for ref in plan.env_objects},
        )
        return state

    async def _changed(
        self, pod: Pod, state: _PodState, volumes: Sequence[PlannedVolume]
    ) -> list[pod_volumes_set_up.VolumeWork]:
        """Those of ``volumes`` whose sources have changed."""
        of_files = [volume for volume in volumes if volume.kind in FILE_KINDS]
        answers = await run_together(
            *(self._inputs(pod, state.spec, volume) for volume in of_files)
        )
        inputs = {volume.name: found for volume, found in zip(of_files, answers, strict=True)}
        return [
            pod_volumes_set_up.VolumeWork(volume, found)
            for volume in volumes
            if state.made_of.get(volume.name) != (found := inputs.get(volume.name, ()))
        ]

    async def _inputs(
        self, pod: Pod, spec: Mapping[str, Any], volume: PlannedVolume
    ) -> tuple[Input, ...]:
        """The current state of each source of a volume."""
        return tuple(
            [
                await self._input(pod, spec, volume, kind, source, index=index)
                for index, (kind, source) in enumerate(sources_of(volume))
            ]
        )

    async def _input(
        self,
        pod: Pod,
        spec: Mapping[str, Any],
        volume: PlannedVolume,
        kind: str,
        source: Mapping[str, Any],
        *,
        index: int,
    ) -> Input:
        try:
            if kind == "podCertificate":
                if self.certificates is None:
                    return PayloadError(NO_CERTIFICATES)
                return await self.certificates.credentials(pod, volume.name, index, source)
            if kind == "downwardAPI":
                return DownwardInput(pod, spec, pod.labels, pod.annotations, self.allocatable)
            if kind == "serviceAccountToken":
                left = partial(self._left_token, pod.uid, volume, source)
                return TokenInput(await self.tokens.get(pod, _token_key(pod, source), left))
            if kind == "clusterTrustBundle":
                if self.bundles is None:
                    return PayloadError(NO_BUNDLES, Cause(CauseKind.TRUST_BUNDLE_GATE))
                return TrustInput(await self.bundles.anchors(pod.uid, source))
            if kind == "configMap":
                ref = ObjectRef("configMap", source.get("name") or "")
            elif kind == "secret":
                ref = ObjectRef("secret", source.get("secretName") or source.get("name") or "")
            else:
                return None
            return await self.objects.get(object_key(ref, pod.namespace))
        except (ApiError, PayloadError, TokenError) as error:
            return error

    async def _left_token(self, uid: str, volume: PlannedVolume, source: Mapping[str, Any]) -> str:
        """The token that an earlier agent left in a volume; empty if none can be read."""
        try:
            directory = PodPaths(self._pods_dir, uid).volume(volume.kind, volume.name)
            path = payload_path(source.get("path") or "")
            read = partial(read_file, self._pods_dir, directory, path, MAX_TOKEN_BYTES)
            return (await asyncio.to_thread(read)).decode("ascii")
        except (OSError, UnsafePath, ValueError):
            return ""

    async def _fatal(
        self, pod: Pod, state: _PodState, failed: Mapping[str, str]
    ) -> Mapping[str, str]:
        """The failures that keep the pod from starting."""
        fatal: dict[str, str] = {}
        for volume in state.plan.volumes:
            if volume.name not in failed:
                continue
            in_use = volume.name in state.made_of or await asyncio.to_thread(
                pod_volumes_set_up.is_established, volume, state.paths, self.rights
            )
            if in_use:
                self._report_mount_failure(pod, state, volume.name, failed[volume.name])
            else:
                fatal[volume.name] = failed[volume.name]
        return fatal

    def _error(self, pod: Pod, state: _PodState, problems: Mapping[str, str]) -> VolumeError:
        for name, problem in problems.items():
            self._report_mount_failure(pod, state, name, problem)
        text = f"unmounted volumes=[{' '.join(problems)}]: {'; '.join(_listed(problems))}"
        causes = (state.causes[name] for name in problems if name in state.causes)
        return VolumeError(text, reported=True, cause=next(causes, None))

    def _report_mount_failure(self, pod: Pod, state: _PodState, volume: str, problem: str) -> None:
        if not state.unanswered.is_event(volume, asyncio.get_running_loop().time()):
            return
        message = f'MountVolume.SetUp failed for volume "{volume}" : {problem}'
        self.recorder.event(pod_reference(pod), WARNING, Reason.FAILED_MOUNT, message)

    async def _settled(self, uid: str) -> None:
        """Wait for file work of a pod that outlived its cancelled sync."""
        busy = self._busy.get(uid)
        if busy is not None and not busy.done():
            await asyncio.wait([busy])

    async def _in_thread(
        self, uid: str, work: Callable[[], T], executor: PatientThreads | None = None
    ) -> T:
        """Do file work of one pod; it continues when the caller is cancelled."""
        running = asyncio.get_running_loop().run_in_executor(executor, work)
        self._busy[uid] = running
        running.add_done_callback(partial(self._done, uid))
        return await asyncio.shield(running)

    def _done(self, uid: str, finished: asyncio.Future[Any]) -> None:
        if self._busy.get(uid) is finished:
            del self._busy[uid]
        if not finished.cancelled():
            finished.exception()  # retrieved even if nobody waits for it any more


def file_owner(pod: Pod, rights: MountRights = REQUIRED) -> FileOwner:
    """The owners of a pod's files: its fsGroup, and the user that all its containers run as.

    An agent that does without mounts gives files only to users and groups to which it may.
    """
    of_pod = pod.spec.get("securityContext") or {}
    users = {
        (container.get("securityContext") or {}).get("runAsUser", of_pod.get("runAsUser"))
        for _, container in pod.all_containers()
    }
    user = users.pop() if len(users) == 1 else None
    group = of_pod.get("fsGroup")
    if rights.required:
        return FileOwner(user, group)
    return FileOwner(
        user if user is not None and may_give_to_user(user) else None,
        group if group is not None and may_give_to_group(group) else None,
    )


def _listed(problems: Mapping[str, str]) -> list[str]:
    return [f'volume "{name}": {problem}' for name, problem in problems.items()]


def _token_key(pod: Pod, source: Mapping[str, Any]) -> TokenKey:
    return TokenKey(
        pod.spec.get("serviceAccountName") or "default",
        source.get("audience") or "",
        source.get("expirationSeconds") or DEFAULT_SECONDS,
    )

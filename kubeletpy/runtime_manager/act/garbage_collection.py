"""Remove dead containers and sandboxes with the files that belong to them.

:class:`ContainerGarbageCollector` removes what :mod:`gc_selection` selects, and a sync what is in
its way. Must never remove what runs, nor anything that the runtime could not be queried about.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kubeletpy.base.clock import Clock, SteadyClock, steady_now
from kubeletpy.base.host.files import remove_tree
from kubeletpy.base.structs import Component, Struct, replace
from kubeletpy.kubeapi.events.recorder import EventRecorder
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from kubeletpy.remote.errors import CRIError, FailedPrecondition, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.container_files import remove_logs, remove_termination_file
from kubeletpy.runtime_manager.act.kill_pod import Killer
from kubeletpy.runtime_manager.act.mutations import Mutations
from kubeletpy.runtime_manager.act.resize_pod import ResourcesInEffect
from kubeletpy.runtime_manager.act.sync_run import (
    CREATE_ERROR,
    NotDesired,
    StatusDraft,
    SyncRun,
    fail,
)
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.names import POD_UID, UnsafeName, log_link, read_labels
from kubeletpy.runtime_manager.plan import gc_selection
from kubeletpy.runtime_manager.plan.actions import StartContainer
from kubeletpy.runtime_manager.plan.crash_loop import CrashLoopBackoff
from kubeletpy.runtime_manager.read.status_reader import OwnStarts

logger = logging.getLogger(__name__)

_ENDED = (ContainerState.EXITED, ContainerState.UNKNOWN)


class Remover(Component):
    """Removes records of dead containers and sandboxes."""

    runtime: RuntimeService
    mutations: Mutations
    settings: RuntimeSettings
    root_dir: str

    async def container(self, container_id: str, *, keep_logs: bool = False) -> None:
        """Remove a dead container with its log, its links and its termination file.

        Raises:
            CRIError: it could not be removed; FailedPrecondition when it is running.
        """
        try:
            status = (await self.runtime.container_status(container_id)).status
        except NotFound:
            return
        if status.state == cri.CONTAINER_RUNNING:
            raise FailedPrecondition(
                "RemoveContainer", "the container is running", target=container_id
            )
        owner = read_labels(status.labels)
        with contextlib.suppress(NotFound):
            await self.mutations.finish(owner.pod_uid, self.runtime.remove_container(container_id))
        for mount in status.mounts:
            remove_termination_file(
                self.root_dir, owner.pod_uid, owner.container_name, mount.host_path
            )
        if keep_logs:
            return
        try:
            link = log_link(
                self.settings.container_logs_dir,
                owner.pod_name,
                owner.pod_namespace,
                owner.container_name,
                status.id,
            )
        except UnsafeName:
            link = ""
        remove_logs(self.settings.pod_logs_dir, status.log_path, link)

    async def sandbox(self, sandbox_id: str, pod_uid: str) -> None:
        """Stop a sandbox, which frees its network, and remove it.

        Raises:
            CRIError: it could not be stopped or removed.
        """
        with contextlib.suppress(NotFound):
            await self.mutations.finish(pod_uid, self._stop_and_remove(sandbox_id))

    async def ended_init_containers(self, run: SyncRun, *, keep: int = 1) -> None:
        """Keep the newest ``keep`` ended records of each init container: retries would pile up.

        Until the API has how they ended, what a status can show of each stays; in a new sandbox
        they do not count as runs of that sandbox
        (:mod:`kubeletpy.runtime_manager.plan.init_containers`). So does what was still running when
        this sync began: nobody has seen yet how it ended.
        """
        if not run.request.reported():
            keep = max(keep, gc_selection.REPORTED)
        for container in run.pod.init_containers:
            ended = [
                record
                for record in run.status.containers
                if record.name == container["name"]
                and (
                    record.state in _ENDED
                    or (not keep and record.state is not ContainerState.RUNNING)
                )
            ]
            for number, record in enumerate(ended[keep:], keep):
                # without a record, the next start derives its attempt from the newest log
                await self._quietly(run, record.id, keep_logs=number == 0)

    async def _quietly(self, run: SyncRun, container_id: str, *, keep_logs: bool) -> None:
        """Remove a record that is merely in the way; garbage collection tries again."""
        try:
            await self.container(container_id, keep_logs=keep_logs)
        except CRIError as error:
            logger.info(
                "container record not removed",
                extra={"pod": run.pod.key, "container_id": container_id, "error": str(error)},
            )
        else:
            run.draft.removed(container_id)

    async def _stop_and_remove(self, sandbox_id: str) -> None:
        await self.runtime.stop_pod_sandbox(sandbox_id)
        await self.runtime.remove_pod_sandbox(sandbox_id)


class _Listed(Struct, frozen=True):
    """The fields of an entry of the runtime's list that a round needs."""

    id: str
    sandbox_id: str
    pod_uid: str
    exited: bool

    @classmethod
    def from_cri(cls, entry: cri.Container) -> _Listed:
        uid = entry.labels.get(POD_UID, "")
        return cls(entry.id, entry.pod_sandbox_id, uid, entry.state == cri.CONTAINER_EXITED)


class ContainerGarbageCollector(Component):
    """Runs one round at a time, as called by the agent's timer."""

    runtime: RuntimeService
    mutations: Mutations
    killer: Killer
    remover: Remover
    policy: gc_selection.GCPolicy
    own_starts: OwnStarts
    # Forgets the pods that have been removed.
    in_effect: ResourcesInEffect
    # Forgets the containers that have been removed; counts by ``life``.
    crash_loops: CrashLoopBackoff
    settings: RuntimeSettings
    clock: Clock
    life: SteadyClock

    def __post_init__(self) -> None:
        self._listed_at: dict[str, float] = {}
        """When containers were listed first, by id: seconds of the event loop's clock."""

    async def collect(
        self,
        *,
        all_sources_ready: bool,
        removable: Callable[[str], bool],
        reported: Callable[[str], bool] = lambda uid: True,
    ) -> int:
        """Remove dead containers and sandboxes beyond what is kept; returns how many containers.

        ``removable(pod_uid)`` states whether everything of that pod may go (docs: GC and eviction),
        ``reported(pod_uid)`` whether the API has how its containers ended.

        Raises:
            CRIError: the runtime could not list what it has. A record that cannot be removed is
                logged and left for the next round.
        """
        self.crash_loops.collect(self.life.now())
        containers, ended = await self._listed()
        dead = await self._without_abandoned(ended)
        going = gc_selection.containers_to_remove(
            dead, self.policy, removable, all_sources_ready=all_sources_ready, reported=reported
        )
        del dead, ended
        removed = await self._remove_containers(going)
        left = [container for container in containers if container.id not in removed]
        sandboxes = await self.runtime.list_pod_sandbox()
        in_use = frozenset(container.sandbox_id for container in left)
        known = {container.pod_uid for container in left}
        known |= {sandbox.labels.get(POD_UID, "") for sandbox in sandboxes}
        unneeded = gc_selection.sandboxes_to_remove(sandboxes, in_use, removable)
        del sandboxes  # a removal may take minutes: no answer of the runtime is held meanwhile
        for sandbox_id, uid in unneeded:
            try:
                await self.remover.sandbox(sandbox_id, uid)
            except CRIError as error:
                _not_removed("sandbox", sandbox_id, error)
        await self._remove_files(left, removable, all_sources_ready)
        self.mutations.forget_except(known)
        self.in_effect.forget_except(known)
        return len(removed)

    async def has_containers(self, uid: str) -> bool:
        """Whether the runtime has any container of a pod, dead or alive. Raises CRIError."""
        chosen = cri.ContainerFilter(label_selector={POD_UID: uid})
        return bool(await self.runtime.list_containers(chosen))

    async def _listed(self) -> tuple[list[_Listed], list[gc_selection.DeadContainer]]:
        """All containers, and those that do not run; none holds the runtime's answer."""
        containers = await self.runtime.list_containers()
        now = steady_now()
        self._listed_at = {c.id: self._listed_at.get(c.id, now) for c in containers}
        known_for = {each: now - at for each, at in self._listed_at.items()}
        dead = gc_selection.dead_containers(containers, self.policy, self.clock.now(), known_for)
        return [_Listed.from_cri(container) for container in containers], dead

    async def _remove_containers(self, going: Sequence[gc_selection.DeadContainer]) -> set[str]:
        removed: set[str] = set()
        for container in going:
            try:
                if container.unknown:
                    await self._stop(container)
                await self.remover.container(container.id)
            except CRIError as error:
                _not_removed("container", container.id, error)
            else:
                removed.add(container.id)
        return removed

    async def _without_abandoned(
        self, dead: Sequence[gc_selection.DeadContainer]
    ) -> list[gc_selection.DeadContainer]:
        """Mark containers whose start was canceled with an agent: the one before it is the newest
        that has an end to show. A list does not contain why a container ended."""
        units: dict[tuple[str, str], list[gc_selection.DeadContainer]] = {}
        for container in sorted(dead, key=lambda each: each.rank, reverse=True):
            units.setdefault((container.pod_uid, container.name), []).append(container)
        marked = []
        for newest_first in units.values():
            for number, container in enumerate(newest_first):
                if number == len(newest_first) - 1 or not await self._is_abandoned(container.id):
                    marked += newest_first[number:]
                    break
                marked.append(replace(container, unstarted=True))
        return marked

    async def _is_abandoned(self, container_id: str) -> bool:
        try:
            status = (await self.runtime.container_status(container_id)).status
        except CRIError as error:
            logger.debug("container not inspected", extra={"error": str(error)})
            return False
        return self.own_starts.is_abandoned(status)

    async def _stop(self, container: gc_selection.DeadContainer) -> None:
        record = ContainerStatus(container.id, container.name, ContainerState.UNKNOWN)
        status = PodRuntimeStatus(container.pod_uid, "", "", containers=(record,))
        await self.killer.stop_pod(None, status, None, StatusDraft(status))

    async def _remove_files(
        self,
        containers: Iterable[_Listed],
        removable: Callable[[str], bool],
        all_sources_ready: bool,
    ) -> None:
        live = [container.id for container in containers if not container.exited]
        if all_sources_ready:
            root = Path(self.settings.pod_logs_dir)
            names = await asyncio.to_thread(_directories, root)
            for name in gc_selection.log_directories_to_remove(names, removable):
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(remove_tree, str(root / name))
        links_root = Path(self.settings.container_logs_dir)
        dangling = await asyncio.to_thread(_dangling_links, links_root, self.settings.pod_logs_dir)
        going = gc_selection.dead_links_to_remove(dangling, live)
        await asyncio.to_thread(_unlink_all, links_root, going)


def _directories(root: Path) -> list[str]:
    try:
        return [path.name for path in root.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []


def _dangling_links(root: Path, target_root: str) -> list[str]:
    """Links whose target is absent for good.

    Includes all such links into our log directory, because the agent has a list of live containers.
    Other links count only where the target's directory is absent too, as when the node was removed
    or kept its logs elsewhere. Otherwise, the log of another program's live container may just be
    in rotation.
    """
    try:
        return [path.name for path in root.iterdir() if _leads_nowhere(path, Path(target_root))]
    except OSError:
        return []


def _leads_nowhere(path: Path, target_root: Path) -> bool:
    try:
        if not path.is_symlink() or path.exists():
            return False
        target = path.parent / path.readlink()
        return target_root in target.parents or not target.parent.exists()
    except OSError:  # removed meanwhile
        return False


def _unlink_all(root: Path, names: Iterable[str]) -> None:
    for name in names:
        try:
            (root / name).unlink(missing_ok=True)
        except OSError as error:
            logger.warning("log link not removed", extra={"link": name, "error": str(error)})


def _not_removed(what: str, name: str, error: CRIError) -> None:
    logger.info(f"{what} not removed", extra={"id": name, "error": str(error)})


async def remove_unstarted(
    run: SyncRun,
    action: StartContainer,
    runtime: RuntimeService,
    recorder: EventRecorder,
    own_starts: OwnStarts,
    *,
    but: str,
) -> int:
    """Remove what an earlier attempt created but never started, except the container ``but``.

    The runtime may still be starting it, on behalf of an agent that is dead now: it then
    refuses the removal, and two containers of one name never run. containerd 1.6 may also
    refuse to remove one whose start was canceled, because it leaves the task behind: that one
    holds its name, and stays until containerd restarts.

    Returns:
        The number after the attempts whose names are taken.

    Raises:
        StartFailed: the runtime does not remove it.
        NotDesired: it is running by now.
    """
    kept = {r.id: r.attempt for r in run.status.containers if r.name == action.name}
    for record in run.status.containers:
        if record.name != action.name or record.state is not ContainerState.CREATED:
            continue
        if record.id == but:
            continue
        found: cri.ContainerStatus | None = None
        try:
            found = (await runtime.container_status(record.id)).status
            if found.state != cri.CONTAINER_CREATED and not own_starts.is_abandoned(found):
                # it is running by now: to remove it would kill it
                run.draft.touch(record.id, record.sandbox_id)
                raise NotDesired
            await runtime.remove_container(record.id)
        except NotFound:
            logger.debug("container no longer exists", extra={"container_id": record.id})
        except CRIError as error:
            if found is None or found.state == cri.CONTAINER_CREATED:
                fail(recorder, run, action, CREATE_ERROR, error.details or str(error.code))
            logger.warning(
                "the runtime does not remove a container whose start was canceled "
                "(containerd 1.6 does not until it restarts); the next one gets another name",
                extra={"container_id": record.id, "error": str(error)},
            )
            continue
        del kept[record.id]
        run.draft.removed(record.id)
    return max(kept.values(), default=-1) + 1

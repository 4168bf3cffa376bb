"""Start one container: image, attempt, config, create, start, post-start, in this order.

Each failing step ends the start with its own code, which kubectl shows as the container's waiting
reason. Source: docs/reference/behaviour.md, c9. Must never decide whether to start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kubeletpy.base.api import types as api
from kubeletpy.base.host.errors import cause_of
from kubeletpy.base.structs import Component, replace
from kubeletpy.images.image_manager import ImageManager
from kubeletpy.images.policy import ImageError
from kubeletpy.images.reference import LocalImage
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, EventRecorder
from kubeletpy.metrics.pods import PodStartMetrics
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import note, span
from kubeletpy.pods.environment import EnvironmentInputs, NodeFacts
from kubeletpy.pods.pod import Mount, Pod
from kubeletpy.pods.runtime_status import ContainerConfigError, ContainerState, KillReason
from kubeletpy.pods.shape import pull_policy_problem
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act import sync_run
from kubeletpy.runtime_manager.act.container_files import (
    create_termination_file,
    keep_hook,
    link_log,
    log_sizes,
    make_log_directory,
)
from kubeletpy.runtime_manager.act.garbage_collection import remove_unstarted
from kubeletpy.runtime_manager.act.hooks_runner import LifecycleHookRunner
from kubeletpy.runtime_manager.act.kill_pod import Killer
from kubeletpy.runtime_manager.act.mutations import Mutations, StartKind, StartSlots
from kubeletpy.runtime_manager.act.resize_pod import record_supplied
from kubeletpy.runtime_manager.config.container_config import (
    ContainerInputs,
    build_container_config,
    why_stop_signal_ignored,
)
from kubeletpy.runtime_manager.config.settings import RuntimeSettings, UserNamespaceRange
from kubeletpy.runtime_manager.names import (
    CONFIG_HASH,
    KEPT_PRE_STOP,
    UnsafeName,
    config_hash,
    container_log_directory,
    log_link,
    pre_stop_text,
)
from kubeletpy.runtime_manager.plan.actions import (
    StartContainer,
    attempt_by_logs,
    last_run_reported,
    target_id,
)
from kubeletpy.runtime_manager.protocol import (
    ActuatedResources,
    ContainerAdditions,
    ContainerProvider,
    HookFailed,
)
from kubeletpy.runtime_manager.read.status_reader import OwnStarts, hide_secrets

if TYPE_CHECKING:
    from kubeletpy.runtime_manager.act.ignored_fields import IgnoredFields

logger = logging.getLogger(__name__)

MOUNT_FAILED = "ImageVolumeMountFailed"
"""Prefix of a runtime's error about an image that is mounted as a volume (CRI errors)."""


class ContainerStarter(Component):
    """Starts the containers that the plan of a sync contains, one by one."""

    runtime: RuntimeService
    images: ImageManager
    killer: Killer
    mutations: Mutations
    slots: StartSlots
    recorder: EventRecorder
    metrics: PodStartMetrics
    hooks: LifecycleHookRunner
    # Records what each container is made with.
    actuated: ActuatedResources
    # Is notified of the starts that fail.
    own_starts: OwnStarts
    settings: RuntimeSettings
    # The kubelet's root directory.
    root_dir: str
    # Add to containers besides their spec, and are called in this order.
    providers: Sequence[ContainerProvider]
    # The ids that a pod is mapped to, or None for the node's own; raises ContainerConfigError.
    user_namespace: Callable[[Pod], UserNamespaceRange | None]

    def __post_init__(self) -> None:
        self._ignored_fields: IgnoredFields | None = None

    def connection_changed(self, connected: bool) -> None:
        """The connection to the runtime was lost or is back: another one may be behind it now."""
        self._ignored_fields = None

    async def start(
        self, run: sync_run.SyncRun, action: StartContainer, turn: sync_run.Turn
    ) -> None:
        """Start a container.

        Raises:
            StartFailed: with the code and message of the step that failed.
            NotDesired: the pod is to end; the container may have been created, but was not started.
        """
        try:
            image = await self._image(run, action, action.container)
            mounts = await self._mounted_images(run, action)
            if turn.after is not None:
                await turn.after.wait()
            # before it takes a slot: a device plugin may keep it waiting
            supplied = await self._gather_additions(run, action, mounts)
            async with self.slots.slot(StartKind.CONTAINER):
                if run.request.is_terminating():
                    raise sync_run.NotDesired
                config = await self._config(run, action, image, supplied)
                container_id = await self.mutations.finish(
                    run.pod.uid, self._create_and_start(run, action, config, turn)
                )
        finally:
            self.images.release(run.pod, action.name)
            turn.created.set()
        await self._check_stop_signal(run, action, container_id)
        await self._post_start(run, action, container_id)

    async def _mounted_images(
        self, run: sync_run.SyncRun, action: StartContainer
    ) -> Sequence[Mount]:
        """The container's mounts; the images among them are on the node."""
        mounts = list(run.request.volume_mounts.get(action.name, ()))
        for index, mount in enumerate(mounts):
            if mount.image:
                desired: api.Container = {"name": action.name, "image": mount.image}
                if mount.image_pull_policy:
                    desired["imagePullPolicy"] = mount.image_pull_policy
                try:
                    image = await self._image(run, action, desired)
                except sync_run.StartFailed as failed:
                    failed.error = replace(failed.error, mounted_image=mount.image)
                    raise
                mounts[index] = replace(mount, image_ref=image.ref)
        return mounts

    async def _image(
        self, run: sync_run.SyncRun, action: StartContainer, desired: api.Container
    ) -> LocalImage:
        """Get an image onto the node: the container's, or one that it mounts."""
        if problem := pull_policy_problem(desired):
            message = f"container {action.name} has a malformed field: {problem}"
            sync_run.fail(self.recorder, run, action, sync_run.CONFIG_ERROR, message)
        try:
            return await self.images.ensure_image_exists(
                run.pod, desired, action.kind, run.request.pull_secrets, run.sandbox_config
            )
        except ImageError as error:
            self.recorder.event(
                run.reference(action), WARNING, Reason.FAILED, f"Error: {error.code}"
            )
            raise sync_run.StartFailed(
                error.code,
                error.message,
                error.retry_at,
                reported_retry_at=error.tries_at,
                cause=cause_of(error),
            ) from error

    async def _gather_additions(
        self, run: sync_run.SyncRun, action: StartContainer, mounts: Sequence[Mount]
    ) -> ContainerAdditions:
        """Collect from the providers what the container is made with besides its spec."""
        supplied = ContainerAdditions(
            EnvironmentInputs(facts=NodeFacts(pod_ips=run.pod_ips)), mounts
        )
        try:
            for provider in self.providers:
                supplied = await provider.provide(run.pod, action.container, supplied)
        except (ContainerConfigError, UnsafeName, OSError) as error:
            sync_run.fail(
                self.recorder, run, action, sync_run.CONFIG_ERROR, str(error), error=error
            )
        return supplied

    async def _config(
        self,
        run: sync_run.SyncRun,
        action: StartContainer,
        image: LocalImage,
        supplied: ContainerAdditions,
    ) -> cri.ContainerConfig:
        pod, container, name = run.pod, action.container, action.name
        try:
            log_directory = container_log_directory(
                self.settings.pod_logs_dir, pod.namespace, pod.name, pod.uid, name
            )
            termination_log = ""
            if container.get("terminationMessagePath"):
                termination_log = create_termination_file(self.root_dir, pod.uid, name)
            inputs = ContainerInputs(
                restart_count=self._attempt(run, action, log_directory),
                image_ref=image.ref,
                image_user=image.uid if image.uid is not None else image.username or None,
                environment=supplied.environment,
                mounts=supplied.mounts,
                termination_log=termination_log,
                target_container_id=target_id(run.status, action.container),
                extra_groups=supplied.groups,
                extra_annotations=supplied.annotations,
                extra_envs=supplied.envs,
                devices=supplied.devices,
                cdi_devices=supplied.cdi_devices,
                placement=supplied.placement,
                userns=self.user_namespace(pod),
            )
            # in a thread: expanding the variables of a large pod may take a while
            config = await asyncio.to_thread(
                build_container_config, pod, container, action.kind, self.settings, inputs
            )
            config.annotations[CONFIG_HASH] = config_hash(
                config, action.container.get("terminationMessagePath") or ""
            )
            if KEPT_PRE_STOP in config.annotations:
                await asyncio.to_thread(
                    keep_hook, self.root_dir, pod.uid, name, pre_stop_text(container)
                )
            make_log_directory(log_directory)
        except (ContainerConfigError, UnsafeName, OSError) as error:
            sync_run.fail(
                self.recorder, run, action, sync_run.CONFIG_ERROR, str(error), error=error
            )
        return config

    def _attempt(self, run: sync_run.SyncRun, action: StartContainer, log_directory: str) -> int:
        """Counts on from the newest record, or from the logs when the runtime has forgotten.

        A container that was created but never started, or whose start ended with the agent that
        requested it, was not an attempt.
        """
        known = run.status.newest(action.name)
        if known is None:
            logs = log_sizes(log_directory)
            return attempt_by_logs(logs, last_run_reported(run.request.api_status, action.name))
        unstarted = known.state is ContainerState.CREATED
        uncounted = unstarted and not self.own_starts.has_failed(known.id)
        return known.restart_count + (0 if uncounted else 1)

    async def _made_already(
        self, run: sync_run.SyncRun, action: StartContainer, config: cri.ContainerConfig
    ) -> str:
        """A container of the same configuration that only has to be started; empty: none.

        Nobody has tried to start it, as far as is known: its creator may be dead.
        """
        record = run.status.newest(action.name)
        if record is None or record.state is not ContainerState.CREATED:
            return ""
        if not self.own_starts.may_adopt(record.id):
            return ""
        if record.sandbox_id not in ("", run.sandbox_id):
            return ""
        try:
            status = (await self.runtime.container_status(record.id)).status
        except CRIError as error:
            logger.debug("container not adopted", extra={"error": str(error)})
            return ""
        same = status.annotations.get(CONFIG_HASH) == config.annotations[CONFIG_HASH]
        return record.id if same and status.state == cri.CONTAINER_CREATED else ""

    async def _create_and_start(
        self,
        run: sync_run.SyncRun,
        action: StartContainer,
        config: cri.ContainerConfig,
        turn: sync_run.Turn,
    ) -> str:
        """Make one change to the runtime: it is seen through even if the sync is cancelled."""
        container_id = await self._made_already(run, action, config)
        adopted = bool(container_id)
        taken = await remove_unstarted(
            run, action, self.runtime, self.recorder, self.own_starts, but=container_id
        )
        record_supplied(self.actuated, run.pod, action.container)
        if not adopted:
            config.metadata.attempt = max(config.metadata.attempt, taken)
            container_id = await self._create(run, action, config)
        run.draft.touch(container_id, run.sandbox_id)
        turn.created.set()
        self.recorder.event(run.reference(action), NORMAL, Reason.CREATED, "Container created")
        if run.request.is_terminating():
            raise sync_run.NotDesired
        try:
            with span(TraceCall.START_CONTAINER, action.name, milestone=True):
                await self.runtime.start_container(container_id)
        except CRIError as error:
            if adopted:
                self.own_starts.refused(container_id)
            else:
                self.own_starts.failed(container_id, error.code)
            text = await asyncio.to_thread(_error_text, error, action, config)
            text = text.replace(container_id, action.name)
            sync_run.fail(self.recorder, run, action, sync_run.RUN_ERROR, text)
        self.recorder.event(run.reference(action), NORMAL, Reason.STARTED, "Container started")
        self._link_log(run, config, container_id)
        return container_id

    async def _create(
        self, run: sync_run.SyncRun, action: StartContainer, config: cri.ContainerConfig
    ) -> str:
        if config.CDI_devices or any(mount.image_sub_path for mount in config.mounts):
            await self._check_ignored_fields(run, action, config)
        try:
            with span(TraceCall.CREATE_CONTAINER, action.name, milestone=True):
                made = await self.runtime.create_container(
                    run.sandbox_id, config, run.sandbox_config
                )
        except CRIError as error:
            why = await asyncio.to_thread(_error_text, error, action, config)
            count_image_volumes(self.metrics, config, why)
            sync_run.fail(
                self.recorder, run, action, sync_run.CREATE_ERROR, with_image_volumes(config, why)
            )
        count_image_volumes(self.metrics, config)
        return made

    async def _check_ignored_fields(
        self, run: sync_run.SyncRun, action: StartContainer, config: cri.ContainerConfig
    ) -> None:
        """Refuse a container that the runtime would make without a requested part."""
        from kubeletpy.runtime_manager.act.ignored_fields import IgnoredFields

        self._ignored_fields = self._ignored_fields or IgnoredFields(self.runtime)
        why = await self._ignored_fields.why(run.sandbox_id, config, run.sandbox_config)
        if why:
            note(TraceCall.CREATE_CONTAINER, action.name, error=why)
            sync_run.fail(self.recorder, run, action, sync_run.CREATE_ERROR, why)

    def _link_log(
        self, run: sync_run.SyncRun, config: cri.ContainerConfig, container_id: str
    ) -> None:
        pod = run.pod
        link = log_link(
            self.settings.container_logs_dir,
            pod.name,
            pod.namespace,
            config.metadata.name,
            container_id,
        )
        link_log(f"{run.sandbox_config.log_directory}/{config.log_path}", link)

    async def _check_stop_signal(
        self, run: sync_run.SyncRun, action: StartContainer, container_id: str
    ) -> None:
        """Report when the container will not get the signal that its spec requests."""
        if not (action.container.get("lifecycle") or {}).get("stopSignal"):
            return
        enabled, status = self.settings.stop_signals, None
        if enabled:
            try:
                status = (await self.runtime.container_status(container_id)).status
            except CRIError as error:
                logger.debug("stop signal not checked", extra={"error": str(error)})
                return
        if why := why_stop_signal_ignored(action.container, status, enabled=enabled):
            self.recorder.event(run.reference(action), WARNING, Reason.STOP_SIGNAL_IGNORED, why)

    async def _post_start(
        self, run: sync_run.SyncRun, action: StartContainer, container_id: str
    ) -> None:
        if not (action.container.get("lifecycle") or {}).get("postStart"):
            return
        try:
            with span(TraceCall.POST_START, action.name, milestone=True):
                await self.hooks.post_start(run.pod, action.container, container_id)
        except HookFailed as error:
            # The hook's text may contain what events should not show to everyone.
            self.recorder.event(
                run.reference(action),
                WARNING,
                Reason.FAILED_POST_START_HOOK,
                "PostStartHook failed",
            )
            await self.killer.kill_container(
                run.pod,
                action.name,
                container_id,
                message="FailedPostStartHook",
                reason=KillReason.POST_START_HOOK,
            )
            raise sync_run.StartFailed(sync_run.POST_START_ERROR, str(error)) from error


def _error_text(error: CRIError, action: StartContainer, config: cri.ContainerConfig) -> str:
    """The runtime's message, without the values that the container takes from secrets.

    For threads: there may be thousands of values to search for.
    """
    variables = {entry.key: entry.value.decode("utf-8", "replace") for entry in config.envs}
    return hide_secrets(error.details or str(error.code), action.container, variables)


def count_image_volumes(
    metrics: PodStartMetrics, config: cri.ContainerConfig, problem: str = ""
) -> None:
    """Count the images that a container mounts; ``problem`` is the runtime's error, if any."""
    images = sum(bool(mount.image.image) for mount in config.mounts)
    metrics.image_volumes_requested.inc(images)
    if not problem:
        metrics.image_volumes_mounted.inc(images)
    elif problem.startswith(MOUNT_FAILED):
        metrics.image_volume_errors.inc(images)


def with_image_volumes(config: cri.ContainerConfig, problem: str) -> str:
    """Return a runtime's error, with the container's image volumes if they may be the reason.

    A runtime without image volumes takes such a mount for a bind mount without a source; one
    with them states what went wrong (:data:`MOUNT_FAILED`).
    """
    paths = [mount.container_path for mount in config.mounts if mount.image.image]
    if not paths or problem.startswith(MOUNT_FAILED):
        return problem
    return (
        f"{problem} (the container mounts images as volumes, at {', '.join(paths)}: perhaps this "
        "container runtime has no image volumes)"
    )

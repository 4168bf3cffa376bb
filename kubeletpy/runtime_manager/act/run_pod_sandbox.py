"""Make a pod's sandbox: its config, its log directory, the runtime's work and the check of it.

Must never start a container, and never lose a sandbox that the runtime has made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

from kubeletpy.base.host.errors import cause_of
from kubeletpy.base.structs import Component
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.pods import PodStartMetrics
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import note, span
from kubeletpy.pods.pod import Pod, volume_groups
from kubeletpy.pods.runtime_status import SandboxConfigError, StartError, SyncAction
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.container_files import make_log_directory
from kubeletpy.runtime_manager.act.mutations import Mutations, StartKind, StartSlots
from kubeletpy.runtime_manager.act.sync_run import NotDesired, StopSync, SyncRun
from kubeletpy.runtime_manager.config.sandbox_config import (
    ResolvConfError,
    ResolverConfig,
    build_pod_sandbox_config,
    needs_host_dns,
    pod_dns,
)
from kubeletpy.runtime_manager.config.settings import RuntimeSettings, UserNamespaceRange
from kubeletpy.runtime_manager.protocol import SandboxWatch
from kubeletpy.runtime_manager.read.status_reader import sandbox_from_cri
from kubeletpy.runtime_manager.read.status_source import StatusSource

CREATE_SANDBOX_ERROR = "CreatePodSandboxError"
CONFIG_SANDBOX_ERROR = "ConfigPodSandboxError"


class SandboxMaker(Component):
    """Makes the sandboxes of pods; each counts only once the runtime reports it."""

    runtime: RuntimeService
    source: StatusSource
    mutations: Mutations
    slots: StartSlots
    recorder: EventRecorder
    metrics: PodStartMetrics
    settings: RuntimeSettings
    # The CRI handler of a pod's RuntimeClass, "" for the default one; raises SandboxConfigError.
    runtime_handler: Callable[[Pod], Awaitable[str]]
    # The pod's cgroup, named as the runtime's cgroup driver does.
    cgroup_parent: Callable[[Pod], str]
    # The ids that a pod is mapped to, or None for the node's own; raises SandboxConfigError.
    user_namespace: Callable[[Pod], UserNamespaceRange | None]
    # Reads the host's resolver configuration; None to use none. Raises ResolvConfError.
    host_dns: Callable[[], ResolverConfig | None]
    # Notified of each sandbox, if there is one.
    watch: SandboxWatch | None

    async def prepare(self, run: SyncRun) -> None:
        """Make the sandbox that the plan contains, or take the config of the existing one.

        Raises:
            StopSync: there is no sandbox that containers could start in; the run has the reason.
            NotDesired: the pod is to end, and the runtime was not called.
        """
        pod, plan = run.pod, run.plan
        if not plan.create_sandbox and not plan.starts:
            return
        groups = await _sandbox_groups(run)
        if plan.create_sandbox:
            self.metrics.started_pods.inc()
        try:
            config = self._config(run, groups)
        except SandboxConfigError as error:
            message = f'Failed to generate sandbox config for pod "{pod.description}": {error}'
            note(TraceCall.RUN_POD_SANDBOX, f"attempt {plan.attempt}", error=str(error))
            failure = StartError(CONFIG_SANDBOX_ERROR, message, cause=cause_of(error))
            if plan.create_sandbox:
                self._fail(run, failure, str(error))
            run.sync_error = failure
            raise StopSync from error
        if plan.create_sandbox:
            await self._create(run, config)
        run.sandbox_config = config

    def _config(self, run: SyncRun, groups: Sequence[int]) -> cri.PodSandboxConfig:
        """The config of a sandbox, for its creation or for containers that start in it.

        Records what had to be cut from the DNS settings of a new one. Those of one that the runtime
        has are in effect, whatever has become of the host's file. ``groups`` are supplemental
        groups of the pod's volumes.

        Raises SandboxConfigError: the spec requests something impossible, or a file of the host
        that it needs cannot be used.
        """
        pod, exists = run.pod, not run.plan.create_sandbox
        dns, warnings = pod_dns(pod, self.settings, self._read_host_dns(pod, exists))
        config = build_pod_sandbox_config(
            pod,
            run.plan.attempt,
            self.settings,
            dns,
            cgroup_parent=self.cgroup_parent(pod),
            extra_groups=groups,
            userns=self.user_namespace(pod),
        )
        if not exists:
            for warning in warnings:
                self.recorder.event(pod_reference(pod), WARNING, warning.reason, warning.message)
        return config

    def _read_host_dns(self, pod: Pod, exists: bool) -> ResolverConfig | None:
        """Read the host's resolver configuration, if the pod needs it. Raises ResolvConfError."""
        if not needs_host_dns(pod):
            return None
        try:
            return self.host_dns()
        except ResolvConfError:
            if not exists:
                raise
            return ResolverConfig()

    async def _create(self, run: SyncRun, config: cri.PodSandboxConfig) -> None:
        """Make a sandbox and verify that it exists. Raises as :meth:`prepare`."""
        pod, attempt, why = run.pod, f"attempt {run.plan.attempt}", run.plan.kill_pod_reason
        failed = f'Failed to create sandbox for pod "{pod.description}"'
        try:
            handler = await self.runtime_handler(pod)
            make_log_directory(config.log_directory)
        except (SandboxConfigError, OSError) as error:
            note(TraceCall.RUN_POD_SANDBOX, attempt, error=str(error))
            message = f"{failed}: {error}"
            failure = StartError(CREATE_SANDBOX_ERROR, message, cause=cause_of(error))
            self._fail(run, failure, str(error))
        async with self.slots.slot(StartKind.SANDBOX):
            if run.request.is_terminating():
                raise NotDesired
            try:
                with span(TraceCall.RUN_POD_SANDBOX, attempt, milestone=True):
                    run.sandbox_id = await self.mutations.finish(
                        pod.uid, self.runtime.run_pod_sandbox(config, handler)
                    )
            except CRIError as error:
                cause = error.details or str(error.code)
                if self.watch is not None:
                    self.watch.refused(pod, handler, cause)
                self._fail(run, StartError(CREATE_SANDBOX_ERROR, f"{failed}: {cause}"), cause)
        if self.watch is not None:
            await self.watch.made(pod, run.sandbox_id, handler)
        run.add(SyncAction.CREATE_POD_SANDBOX, pod.description, None, why)
        try:
            with span(TraceCall.POD_SANDBOX_STATUS):
                status = sandbox_from_cri(await self.source.read_sandbox(run.sandbox_id))
        except CRIError as error:
            message = f"Unable to get pod sandbox status: {error.details or error.code}"
            self._warn(pod, Reason.FAILED_POD_SANDBOX_STATUS, message)
            run.sync_error = StartError("PodSandboxStatusError", message)
            raise StopSync from error
        run.draft.sandbox_ready(status)
        if not pod.host_network:
            run.pod_ips = status.ips
        if run.request.on_sandbox_ready is not None:
            run.request.on_sandbox_ready(run.draft.now(self.source.now()))

    def _fail(self, run: SyncRun, error: StartError, reported: str) -> NoReturn:
        """Record that there is no sandbox, unless the pod's end is the cause; ``reported`` is the
        event's text."""
        if not run.request.is_terminating():
            self.metrics.started_pods_errors.inc()
            message = f"Failed to create pod sandbox: {reported}"
            self._warn(run.pod, Reason.FAILED_CREATE_POD_SANDBOX, message)
            why = run.plan.kill_pod_reason
            run.add(SyncAction.CREATE_POD_SANDBOX, run.pod.description, error, why)
        raise StopSync

    def _warn(self, pod: Pod, reason: Reason, message: str) -> None:
        self.recorder.event(pod_reference(pod), WARNING, reason, message)


async def _sandbox_groups(run: SyncRun) -> list[int]:
    """The groups that the volumes of a pod add to its sandbox.

    Mounts are made when they are read, up to a thousand for a container: other work of the event
    loop gets its turn between two containers.
    """
    found: dict[int, None] = {}
    for mounts in run.request.volume_mounts.values():
        found.update(dict.fromkeys(volume_groups(run.pod, mounts)))
        await asyncio.sleep(0)
    return list(found)

"""Make a pod's sandbox: its config, its log directory, the runtime's work and the check of it.

Must never start a container, and never lose a sandbox that the runtime has made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from kubeletpy.base.host.errors import cause_of
from kubeletpy.base.structs import Component, Struct
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import note, span
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import SandboxConfigError, SandboxStatus, StartError
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.container_files import make_log_directory
from kubeletpy.runtime_manager.act.mutations import Mutations, StartKind, StartSlots
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


class SandboxFailed(Exception):
    """There is no sandbox that containers could start in."""

    def __init__(self, code: str, message: str, error: Exception | str) -> None:
        """``message`` goes to the pod's sync result, ``error`` into the event."""
        super().__init__(message)
        self.error = StartError(
            code, message, cause=None if isinstance(error, str) else cause_of(error)
        )
        self.reported = str(error)


class SandboxUnchecked(Exception):
    """The sandbox was created, but its state is not known; the next sync checks again."""


class NotDesired(Exception):
    """The pod is to end: nothing was created."""


class SandboxWithConfig(Struct, frozen=True):
    """A sandbox and the config that CreateContainer needs with it."""

    config: cri.PodSandboxConfig
    status: SandboxStatus


class SandboxMaker(Component):
    """Makes the sandboxes of pods, and returns each only once the runtime reports it."""

    runtime: RuntimeService
    source: StatusSource
    mutations: Mutations
    slots: StartSlots
    recorder: EventRecorder
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

    def config(
        self, pod: Pod, attempt: int, groups: Sequence[int], *, exists: bool
    ) -> cri.PodSandboxConfig:
        """The config of a sandbox, for its creation or for containers that start in it.

        Records what had to be cut from the DNS settings of a new one. Those of one that the runtime
        has (``exists``) are in effect, whatever has become of the host's file. ``groups`` are
        supplemental groups of the pod's volumes.

        Raises:
            SandboxFailed: the spec requests something impossible, or a file of the host that it
                needs cannot be used.
        """
        try:
            dns, warnings = pod_dns(pod, self.settings, self._read_host_dns(pod, exists))
            config = build_pod_sandbox_config(
                pod,
                attempt,
                self.settings,
                dns,
                cgroup_parent=self.cgroup_parent(pod),
                extra_groups=groups,
                userns=self.user_namespace(pod),
            )
        except SandboxConfigError as error:
            message = f'Failed to generate sandbox config for pod "{pod.description}": {error}'
            note(TraceCall.RUN_POD_SANDBOX, f"attempt {attempt}", error=str(error))
            raise SandboxFailed(CONFIG_SANDBOX_ERROR, message, error) from error
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

    async def create(
        self, pod: Pod, attempt: int, groups: Sequence[int], is_terminating: Callable[[], bool]
    ) -> SandboxWithConfig:
        """Make a sandbox and verify that it exists; ``groups`` are those of the pod's volumes.

        Raises:
            SandboxFailed: there is none.
            SandboxUnchecked: there is one, but the runtime does not show its status.
            NotDesired: ``is_terminating()`` became true before the runtime was called.
        """
        config = self.config(pod, attempt, groups, exists=False)
        try:
            handler = await self.runtime_handler(pod)
            make_log_directory(config.log_directory)
        except (SandboxConfigError, OSError) as error:
            message = f'Failed to create sandbox for pod "{pod.description}": {error}'
            note(TraceCall.RUN_POD_SANDBOX, f"attempt {attempt}", error=str(error))
            raise SandboxFailed(CREATE_SANDBOX_ERROR, message, error) from error
        async with self.slots.slot(StartKind.SANDBOX):
            if is_terminating():
                raise NotDesired
            try:
                with span(TraceCall.RUN_POD_SANDBOX, f"attempt {attempt}", milestone=True):
                    sandbox_id = await self.mutations.finish(
                        pod.uid, self.runtime.run_pod_sandbox(config, handler)
                    )
            except CRIError as error:
                cause = error.details or str(error.code)
                if self.watch is not None:
                    self.watch.refused(pod, handler, cause)
                message = f'Failed to create sandbox for pod "{pod.description}": {cause}'
                raise SandboxFailed(CREATE_SANDBOX_ERROR, message, cause) from error
        if self.watch is not None:
            await self.watch.made(pod, sandbox_id, handler)
        try:
            with span(TraceCall.POD_SANDBOX_STATUS):
                status = await self.source.read_sandbox(sandbox_id)
        except CRIError as error:
            raise SandboxUnchecked(error.details or str(error.code)) from error
        return SandboxWithConfig(config, sandbox_from_cri(status))

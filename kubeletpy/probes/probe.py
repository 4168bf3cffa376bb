"""One probe of one container: its definition and state. Must never run anything itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import ContainerKind, Pod, is_sidecar
from kubeletpy.pods.runtime_status import ProbeOutcome
from kubeletpy.probes.report import ProbeFinding, ProbeReport
from kubeletpy.probes.schedule import FIELDS, ProbeSpec, ProbeState
from kubeletpy.probes.timetable import TimetableEntry


class Probe:
    """One probe of one container."""

    __slots__ = (
        *("container", "entry", "killed_with", "kind", "last", "last_at", "pod", "pod_ip"),
        *("queued", "spec", "state", "task"),
    )

    def __init__(
        self, pod: Pod, kind: ContainerKind, container: api.Container, spec: ProbeSpec
    ) -> None:
        self.pod = pod
        self.kind = kind
        self.container = container
        self.spec = spec
        self.state = ProbeState()
        self.pod_ip = ""
        self.entry: TimetableEntry[Probe] | None = None
        self.task: asyncio.Task[ProbeFinding] | None = None
        self.last: ProbeFinding | None = None
        self.last_at = 0.0
        self.killed_with: ProbeFinding | None = None
        self.queued = False

    @property
    def labels(self) -> tuple[str, ...]:
        """Its labels in metrics."""
        pod = self.pod
        return (self.spec.kind.value, self.container["name"], pod.name, pod.namespace, pod.uid)


def probes_of(pod: Pod) -> Iterator[Probe]:
    """The probes of regular containers and sidecars."""
    for container_kind, container in pod.all_containers():
        if container_kind is ContainerKind.EPHEMERAL:
            continue
        if container_kind is ContainerKind.INIT and not is_sidecar(container):
            continue
        for kind, field in FIELDS.items():
            probe = container.get(field)
            if isinstance(probe, dict):
                yield Probe(pod, container_kind, container, ProbeSpec.from_probe(kind, probe))


def report(probe: Probe) -> ProbeReport:
    """Its last finding."""
    state, spec = probe.state, probe.spec
    succeeded = state.last is ProbeOutcome.SUCCESS
    return ProbeReport(
        probe.container["name"],
        spec.kind,
        state.result,
        probe.last,
        probe.last_at,
        state.streak,
        spec.success_threshold if succeeded else spec.failure_threshold,
        state.due,
        probe.killed_with,
    )


def field_of(probe: Probe) -> api.Probe:
    """The probe from the container's spec."""
    found: api.Probe = probe.container.get(FIELDS[probe.spec.kind], {})  # type: ignore[assignment]
    return found

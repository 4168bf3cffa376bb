"""Judges the pods of a node from its runtime, its API and its manifests. Changes nothing.

The first part tries whether CPUs and memory that pods have by position suit the agent's settings.
The agent's own managers do it in memory, on copies of the state files. Devices are left out: their
plugins have registered with the kubelet.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from kubeletpy.agent.context import Machine
from kubeletpy.agent.placement import has_placement, placement_managers
from kubeletpy.agent.runtime import runtime_settings
from kubeletpy.agent.takeover.preflight import findings as preflight_findings
from kubeletpy.agent.takeover.preflight.state_files import (
    held_devices,
    holdings_by_pod,
    recorded_resources,
)
from kubeletpy.base.api import types as api
from kubeletpy.base.clock import SystemClock
from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.base.tasks import run_together
from kubeletpy.base.wire.api_table import pod_list
from kubeletpy.config import ConfigError, KubeletSettings, NodeFlags
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import PODS, KubeApi
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.machine import read_machine_facts
from kubeletpy.pods.pod import CONFIG_SOURCE, SOURCE_FILE, MalformedPod, Pod
from kubeletpy.pods.resources import NODE_ALLOCATABLE_GATE as CLAIMS_COUNT
from kubeletpy.pods.resources import without_claims
from kubeletpy.pods.runtime_status import (
    ContainerState,
    PodRuntimeStatus,
    ProbeResults,
    RuntimePodSummary,
)
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.resources.admission.checks import NOTHING, NodeState, Rejection
from kubeletpy.resources.admission.handlers import Refusal, refused_at_start
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.resources.allocation.resources import PodResources, with_resources
from kubeletpy.resources.cgroups.setup import read_kernel_facts
from kubeletpy.resources.placement.machine import MachineTopology, TopologyUnknown, read_machine
from kubeletpy.resources.placement.static_manager import StateUnusable
from kubeletpy.runtime_manager.act.resize_pod import ResourcesInEffect
from kubeletpy.runtime_manager.plan.compute_actions import sync_intent
from kubeletpy.runtime_manager.protocol import NoPodCgroupLimits
from kubeletpy.runtime_manager.read.status_source import MessageRoots, StatusSource
from kubeletpy.syncloop.sources.file import read_manifests
from kubeletpy.syncloop.sources.manifest import renamed
from kubeletpy.syncloop.sources.static_uid import ADOPTED, UidChoice
from kubeletpy.syncloop.sources.static_uids import StaticUids

FILES = ("cpu_manager_state", "memory_manager_state")
PlaceAtStart = Callable[[Pod], Rejection | None]
"""Why the start of the agent would find no position on the machine for a pod; None: it has one."""


class PlacementNotTried(Exception):
    """The positions of pods can't be judged; the text contains the reason."""


def no_position(pod: Pod) -> Rejection | None:
    """No resource of this node is assigned by position."""
    return None


@asynccontextmanager
async def placing(
    settings: KubeletSettings,
    facts: MachineFacts,
    root: Path,
    read: Callable[[], MachineTopology] = read_machine,
) -> AsyncIterator[PlaceAtStart]:
    """Place pods, one after another, as the start of the agent would.

    Raises PlacementNotTried: with these settings and files the agent would not start.
    """
    if not has_placement(settings):
        yield no_position
        return
    with TemporaryDirectory(prefix="kubeletpy-preflight-") as directory:
        for name in FILES:
            if (root / name).exists():
                shutil.copyfile(root / name, Path(directory) / name)
        try:
            managers = placement_managers(
                settings,
                read(),
                facts,
                Path(directory),
                metrics=Metrics().placement,
                users=lambda: None,
                decided=lambda uid, decisions: None,
            )
            await managers.cpus.start()
            await managers.memory.start()
        except (ConfigError, StateUnusable, TopologyUnknown) as error:
            raise PlacementNotTried(str(error)) from error

        def place(pod: Pod) -> Rejection | None:
            found = managers.place(pod)
            return found if isinstance(found, Rejection) else None

        try:
            yield place
        finally:
            await managers.cpus.close()
            await managers.memory.close()


# The pods themselves.

AT_ONCE = 16
"""Pods that are read from the runtime at once."""
_unclear = partial(
    preflight_findings.Finding, preflight_findings.Area.PODS, preflight_findings.Severity.UNCLEAR
)


class Desired(Struct, frozen=True):
    """The pods that a node should run.

    Attributes:
        findings: sources that could not be read.
        changed: uids computed from manifests that have none, with the times of their files.
        choices: why static pods without a uid in their manifests have theirs, by it.
    """

    pods: tuple[Pod, ...]
    findings: tuple[preflight_findings.Finding, ...] = ()
    changed: Mapping[str, float | None] = field(default_factory=dict)
    choices: Mapping[str, UidChoice] = field(default_factory=dict)


class RecordedState(Struct, frozen=True):
    """Recorded facts for judging a pod, besides the pod and the runtime.

    Attributes:
        allocated: the resources allocated to pods, by uid.
        in_effect: what containers were last given.
        holdings: devices, CPUs and claims, by uid.
        held: how many devices are in use, by resource, for the uid of each pod that has any.
    """

    allocated: Mapping[str, PodResources]
    in_effect: ResourcesInEffect
    holdings: Mapping[str, preflight_findings.Holdings]
    held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class AdmissionFacts(Struct, frozen=True):
    """The node as the start of the agent would admit pods to it."""

    node: api.Node
    state: NodeState
    place: PlaceAtStart = no_position


async def desired_pods(
    settings: KubeletSettings, node_name: str, kube_api: KubeApi | None
) -> Desired:
    """The pods of the API and of manifest files. ``kube_api`` None: it could not be reached."""
    pods: list[Pod] = []
    findings: list[preflight_findings.Finding] = []
    changed: Mapping[str, float | None] = {}
    if kube_api is not None:
        try:
            listed = await kube_api.list(PODS, field_selector=f"spec.nodeName={node_name}")
        except ApiError as error:
            findings.append(_unclear("pods of the API", f"they can't be listed: {error}"))
        else:
            counted = settings.feature_gates.enabled(CLAIMS_COUNT)
            for item in listed.get("items") or ():
                try:
                    pods.append(Pod(cast(api.Pod, item) if counted else without_claims(item)))
                except MalformedPod as error:
                    findings.append(_unclear("pods of the API", str(error)))
    if settings.static_pod_path:
        path = settings.static_pod_path
        static, problems, changed = await asyncio.to_thread(_static, path, node_name)
        pods += static
        findings += problems
    if settings.static_pod_url:
        what = "static pods of a URL are not read"
        findings.append(_unclear("staticPodURL", what, "pods of that URL are judged unclear"))
    return Desired(tuple(pods), tuple(findings), changed)


def _static(
    path: str, node_name: str
) -> tuple[list[Pod], list[preflight_findings.Finding], Mapping[str, float | None]]:
    try:
        read = read_manifests(Path(path), node_name)
    except OSError as error:
        return [], [_unclear(path, f"it can't be read: {error.strerror or error}")], {}
    found = [
        _unclear(file, f"not a manifest that can be used: {why}")
        for file, why in read.problems.items()
    ]
    return [_of_file(each) for pods in read.pods.values() for each in pods], found, read.changed


def _of_file(obj: api.Pod) -> Pod:
    metadata = obj["metadata"]
    annotations = {**(metadata.get("annotations") or {}), CONFIG_SOURCE: SOURCE_FILE}
    return Pod({**obj, "metadata": {**metadata, "annotations": annotations}})


async def with_uids(desired: Desired, uids: StaticUids) -> Desired:
    """The pods with the uids that the agent gives to static pods. Raises CRIError."""
    chosen = await uids.choices(SOURCE_FILE, desired.pods, desired.changed)
    changes = {pod.uid: choice.uid for pod, choice in chosen}
    pods = tuple(Pod(renamed(pod.object, changes)) for pod in desired.pods)
    return replace(desired, pods=pods, choices={choice.uid: choice for _, choice in chosen})


def read_node_state(settings: KubeletSettings, flags: NodeFlags) -> RecordedState:
    """Read the state files. Blocking; files that can't be read count as absent."""
    root = Path(flags.root_dir)
    machine = Machine(read_machine_facts(root), read_kernel_facts(), ())
    actuated = ResourceState()
    for uid, resources in _resources(root / "actuated_pods_state").items():
        actuated.put(uid, resources)
    devices = _text(Path(flags.device_plugins_dir) / "kubelet_internal_checkpoint")
    return RecordedState(
        _resources(root / "allocated_pods_state"),
        ResourcesInEffect(
            actuated, NoPodCgroupLimits(), runtime_settings(settings, flags, machine, root)
        ),
        holdings_by_pod(
            _text(root / "cpu_manager_state"), devices, _text(root / "dra_manager_state")
        ),
        held_devices(devices),
    )


async def judge_pods(
    desired: Desired,
    runtime: RuntimeService,
    state: RecordedState,
    settings: KubeletSettings,
    root: Path,
    *,
    admission: AdmissionFacts | None,
) -> tuple[preflight_findings.PodVerdict, ...]:
    """The verdict on each pod of the node, in the order of their names.

    ``admission`` None: whether the pods would be admitted again is not known. Raises CRIError.
    """
    roots = MessageRoots(str(root), settings.pod_logs_dir)
    source = StatusSource(runtime, SystemClock(), roots)
    here = {each.uid: each for each in await source.list_pods()}
    expected = [pod for pod in desired.pods if not pod.is_mirror]
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(pod: Pod) -> preflight_findings.PodVerdict:
        async with limit:
            try:
                status = await source.read_pod_status(pod.uid, pod.name, pod.namespace)
            except CRIError as error:
                return preflight_findings.unclear(pod, f"the runtime does not report it: {error}")
        return replace(_verdict(pod, status, state), adopted=_adopted(desired, pod))

    verdicts = list(await run_together(*(one(pod) for pod in expected)))
    refusals = _refusals(expected, frozenset(here), state, admission)
    verdicts = [
        preflight_findings.refused(each, refusals[each.uid]) if each.uid in refusals else each
        for each in verdicts
    ]
    left = [each for uid, each in here.items() if uid not in {pod.uid for pod in expected}]
    known = not desired.findings
    found = _with_remains(verdicts, left, desired.choices, known=known)
    return tuple(sorted(found, key=lambda each: (each.namespace, each.name, each.uid)))


def _refusals(
    pods: Sequence[Pod],
    here: frozenset[str],
    state: RecordedState,
    admission: AdmissionFacts | None,
) -> Mapping[str, Refusal]:
    """The pods that the start of the agent would not admit; ``here``: uids in the runtime."""
    if admission is None:
        return {}
    return refused_at_start(
        [_as_allocated(pod, state) for pod in pods],
        admission.node,
        replace(admission.state, in_runtime=here),
        held=lambda uid: state.held.get(uid) or NOTHING,
        place=admission.place,
    )


def _as_allocated(pod: Pod, state: RecordedState) -> Pod:
    supplied = state.allocated.get(pod.uid)
    return pod if supplied is None else with_resources(pod, supplied)


def _adopted(desired: Desired, pod: Pod) -> str:
    """Why a static pod has the uid of the running one; empty: it has its own."""
    choice = desired.choices.get(pod.uid)
    return choice.text if choice is not None and choice.reason in ADOPTED else ""


def _verdict(
    pod: Pod, status: PodRuntimeStatus, state: RecordedState
) -> preflight_findings.PodVerdict:
    try:
        allocated = _as_allocated(pod, state)
        intent = sync_intent(allocated, status, ProbeResults(), state.in_effect.recorded(pod))
    except ValueError as error:
        return preflight_findings.unclear(pod, f"the pod can't be understood: {error}")
    return preflight_findings.judge(
        pod, status, intent, state.holdings.get(pod.uid) or preflight_findings.Holdings()
    )


def _with_remains(
    verdicts: list[preflight_findings.PodVerdict],
    left: Sequence[RuntimePodSummary],
    choices: Mapping[str, UidChoice],
    *,
    known: bool,
) -> list[preflight_findings.PodVerdict]:
    """The verdicts with what the runtime has of other pods; a static pod that runs under another
    uid is one pod."""
    found = list(verdicts)
    for each in left:
        running = ContainerState.RUNNING in each.containers.values()
        twins = [index for index, one in enumerate(found) if _is_twin(one, each)]
        if running and twins:
            twin = found[twins[0]]
            found[twins[0]] = preflight_findings.remade(twin, each.uid, choices.get(twin.uid))
        elif running or not known:
            found.append(preflight_findings.orphan(each, running, known))
    return found


def _is_twin(verdict: preflight_findings.PodVerdict, summary: RuntimePodSummary) -> bool:
    """Whether a static pod, of which nothing runs, is what the runtime has under another uid."""
    names = verdict.namespace, verdict.name
    return verdict.static and not verdict.containers and names == (summary.namespace, summary.name)


def _resources(path: Path) -> dict[str, PodResources]:
    journal = path.with_name(f"{path.name}.journal")
    lines = _text(journal).encode("utf-8", "surrogateescape")
    return recorded_resources(_text(path), lines, pod_list)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""

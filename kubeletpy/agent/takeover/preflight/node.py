"""Queries the API server and the runtime about a node, and judges its pods. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import cast

from kubeletpy.agent.context import Machine
from kubeletpy.agent.launch.runtime import pod_selectors, query_runtime
from kubeletpy.agent.node import admission_state
from kubeletpy.agent.runtime import runtime_settings
from kubeletpy.agent.takeover.preflight import findings as preflight_findings
from kubeletpy.agent.takeover.preflight.checks import runtime_findings, version_findings
from kubeletpy.agent.takeover.preflight.placement import (
    PlaceAtStart,
    PlacementNotTried,
    no_position,
    placing,
)
from kubeletpy.agent.takeover.preflight.state_files import (
    held_devices,
    holdings_by_pod,
    recorded_resources,
)
from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import SystemClock
from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.base.tasks import run_together
from kubeletpy.config import KubeletSettings, LoadedConfig, NodeFlags
from kubeletpy.config.version_choice import ResolvedVersion
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.errors import ApiError, NotFound
from kubeletpy.kubeapi.kubeconfig import KubeconfigError
from kubeletpy.kubeapi.protocol import NODES, PODS, KubeApi, Resource
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.build import RuntimeInfo, initial_node
from kubeletpy.node.facts import NodeOptions, node_name
from kubeletpy.node.lease import NAMESPACE
from kubeletpy.node.machine import read_machine_facts
from kubeletpy.node.own_node import with_own_amounts
from kubeletpy.pods.pod import CONFIG_SOURCE, SOURCE_FILE, MalformedPod, Pod
from kubeletpy.pods.resources import NODE_ALLOCATABLE_GATE as CLAIMS_COUNT
from kubeletpy.pods.resources import without_claims
from kubeletpy.pods.runtime_status import (
    ContainerState,
    PodRuntimeStatus,
    ProbeResults,
    RuntimePodSummary,
)
from kubeletpy.remote.client import RemoteRuntime, cgroup_driver
from kubeletpy.remote.connection import EndpointError
from kubeletpy.remote.errors import CRIError, Unimplemented
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.resources.admission.checks import NOTHING, NodeState
from kubeletpy.resources.admission.declared_features import NodeConfiguration, declared
from kubeletpy.resources.admission.handlers import Refusal, refused_at_start
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.resources.allocation.resources import PodResources, with_resources
from kubeletpy.resources.cgroups.setup import SYSTEMD_RUNS, read_kernel_facts
from kubeletpy.runtime_manager.act.resize_pod import ResourcesInEffect
from kubeletpy.runtime_manager.plan.compute_actions import sync_intent
from kubeletpy.runtime_manager.protocol import NoPodCgroupLimits
from kubeletpy.runtime_manager.read.status_source import MessageRoots, StatusSource
from kubeletpy.syncloop.sources.file import read_manifests
from kubeletpy.syncloop.sources.manifest import renamed
from kubeletpy.syncloop.sources.static_uid import ADOPTED, UidChoice
from kubeletpy.syncloop.sources.static_uids import RECORD, StaticUids

# Rights that the agent needs, each requested as a SelfSubjectAccessReview, which stores nothing.
# Rights that depend on a pod, such as reading its secrets, are granted with the pod and are not
# requested. Source: docs/reference/api-server.md, ae.

SELFSUBJECTACCESSREVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", False, "SelfSubjectAccessReview"
)


class Right(Struct, frozen=True):
    """One right.

    Attributes:
        resource: ``pods``, or with a subresource ``pods/status``.
        name: of the object; empty: all.
        of_node: only objects whose spec.nodeName is this node.
        purpose: what does not work without it.
    """

    verb: str
    resource: str
    purpose: str
    group: str = ""
    namespace: str = ""
    name: str = ""
    of_node: bool = False

    @property
    def text(self) -> str:
        """``list pods``, ``update leases.coordination.k8s.io kube-node-lease/node-1``."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        name = f" {self.namespace}/{self.name}".rstrip("/") if self.namespace else f" {self.name}"
        return f"{self.verb} {resource}{name}".rstrip()


def needed_rights(settings: KubeletSettings, node: str) -> Iterator[Right]:
    """The rights that an agent with these settings needs."""
    for verb in ("list", "watch"):
        yield Right(verb, "pods", "no pod of the API is run", of_node=True)
    yield Right("patch", "pods/status", "statuses of pods are not reported")
    yield Right("delete", "pods", "pods that have ended stay")
    yield Right("get", "nodes", "the node is not registered", name=node)
    yield Right("patch", "nodes/status", "the node becomes NotReady", name=node)
    if settings.register_node:
        yield Right("create", "nodes", "the node is not registered")
    lease = "coordination.k8s.io"
    for verb in ("get", "update"):
        yield Right(verb, "leases", "the node becomes NotReady", lease, NAMESPACE, node)
    for verb in ("create", "patch"):
        yield Right(verb, "events", "no events are written", namespace="default")
    for verb in ("list", "watch"):
        yield Right(verb, "services", "containers get no variables of services")
        yield Right(verb, "runtimeclasses", "pods with a RuntimeClass wait", "node.k8s.io")
        yield Right(verb, "csidrivers", "volumes of CSI drivers are not mounted", "storage.k8s.io")
    yield Right("get", "csinodes", "CSI drivers are not shown", "storage.k8s.io", name=node)
    if settings.authentication.webhook.enabled:
        text = "clients with tokens are refused"
        yield Right("create", "tokenreviews", text, "authentication.k8s.io")
    if settings.authorization.mode == "Webhook":
        text = "clients of the node's API are refused"
        yield Right("create", "subjectaccessreviews", text, "authorization.k8s.io")
    if settings.rotate_certificates or settings.server_tls_bootstrap:
        text = "certificates are not renewed"
        group = "certificates.k8s.io"
        yield Right("create", "certificatesigningrequests", text, group)


async def missing_rights(
    settings: KubeletSettings, node: str, kube_api: KubeApi
) -> list[preflight_findings.Finding]:
    """A finding for each right that the identity lacks, or that could not be requested."""
    rights = list(needed_rights(settings, node))
    answers = await run_together(*(_review_right(each, node, kube_api) for each in rights))
    return [each for each in answers if each is not None]


async def _review_right(
    right: Right, node: str, kube_api: KubeApi
) -> preflight_findings.Finding | None:
    try:
        answer = await kube_api.create(SELFSUBJECTACCESSREVIEWS, review(right, node))
    except ApiError as error:
        what = f"the API server does not report whether it is allowed: {error}"
        return preflight_findings.Finding(
            preflight_findings.Area.RIGHTS, preflight_findings.Severity.UNCLEAR, right.text, what
        )
    status = answer.get("status") or {}
    if status.get("allowed"):
        return None
    reason = status.get("reason") or "not allowed"
    return preflight_findings.Finding(
        preflight_findings.Area.RIGHTS,
        preflight_findings.Severity.BLOCKS,
        right.text,
        str(reason),
        right.purpose,
    )


def review(right: Right, node: str) -> JSON:
    """The SelfSubjectAccessReview for a right."""
    resource, _, subresource = right.resource.partition("/")
    attributes: JSON = {"verb": right.verb, "resource": resource}
    for key, value in (
        ("group", right.group),
        ("subresource", subresource),
        ("namespace", right.namespace),
        ("name", right.name),
    ):
        if value:
            attributes[key] = value
    if right.of_node:
        expected = {"key": "spec.nodeName", "operator": "In", "values": [node]}
        attributes["fieldSelector"] = {"requirements": [expected]}
    return {
        "apiVersion": SELFSUBJECTACCESSREVIEWS.api_version,
        "kind": SELFSUBJECTACCESSREVIEWS.kind,
        "spec": {"resourceAttributes": attributes},
    }


# Pods of the node, judged from its runtime, its API and its manifests.

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
            _text(root / "cpu_manager_state"),
            devices,
            _text(root / "dra_manager_state"),
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
    return recorded_resources(_text(path), _text(journal).encode("utf-8", "surrogateescape"))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""


CONNECT_S = 5.0
REQUEST_S = 15.0
EVENTS_S = 1.0
"""A runtime without events refuses the stream by then."""


class NodeAnswers(Struct, frozen=True):
    """The reports of API server and runtime."""

    findings: tuple[preflight_findings.Finding, ...]
    pods: tuple[preflight_findings.PodVerdict, ...] | None
    """None: the pods of the node could not be determined."""


async def connect_api(
    flags: NodeFlags, stack: AsyncExitStack
) -> tuple[KubeApi | None, preflight_findings.Finding | None]:
    """The API with the node's credentials, or why there is none."""
    if not flags.kubeconfig:
        return None, None
    try:
        client = await KubeClient.from_kubeconfig(flags.kubeconfig, qps=0, timeout=REQUEST_S)
    except KubeconfigError as error:
        return None, preflight_findings.Finding(
            preflight_findings.Area.CREDENTIALS,
            preflight_findings.Severity.UNCLEAR,
            flags.kubeconfig,
            str(error),
        )
    stack.push_async_callback(client.close)
    return client, None


async def query_node(
    loaded: LoadedConfig, resolved: ResolvedVersion, kube_api: KubeApi | None, stack: AsyncExitStack
) -> NodeAnswers:
    """Everything that API server and runtime report about the node."""
    settings, flags = loaded.settings, loaded.node
    root = Path(flags.root_dir)
    facts = await asyncio.to_thread(read_machine_facts, root)
    name = node_name(flags, facts.hostname)
    reported, node_problem = await _read_node(name, kube_api)
    findings = version_findings(resolved, _kubelet_version(reported))
    findings += [] if node_problem is None else [node_problem]
    desired = await desired_pods(settings, name, kube_api)
    if kube_api is None and flags.kubeconfig:
        what = "they can't be listed without credentials"
        lost = preflight_findings.Finding(
            preflight_findings.Area.PODS,
            preflight_findings.Severity.UNCLEAR,
            "pods of the API",
            what,
        )
        desired = Desired(desired.pods, (*desired.findings, lost))
    findings += desired.findings
    if kube_api is not None and not desired.findings:
        findings += await missing_rights(settings, name, kube_api)
    runtime, problem = await _connect_runtime(settings, root, stack)
    if runtime is None:
        assert problem is not None, "there is a runtime, or a reason"
        why = "the runtime does not answer"
        lost_pods = tuple(
            preflight_findings.unclear(pod, why) for pod in desired.pods if not pod.is_mirror
        )
        return NodeAnswers((*findings, problem), lost_pods)
    try:
        info, driver, events = await run_together(
            query_runtime(runtime), cgroup_driver(runtime), has_events(runtime)
        )
        runs = await asyncio.to_thread(SYSTEMD_RUNS.is_dir)
        findings += runtime_findings(
            info,
            driver,
            settings.cgroup_driver,
            systemd_runs=runs,
            events=events,
            pods=desired.pods,
        )
        state = await asyncio.to_thread(read_node_state, settings, flags)
        desired = await with_uids(desired, StaticUids(runtime, kube_api, root / RECORD))
        admission = None
        if node_problem is None:
            admission = await asyncio.to_thread(admission_facts, settings, flags, reported, info)
            try:
                place = await stack.enter_async_context(placing(settings, facts, root))
                admission = replace(admission, place=place)
            except PlacementNotTried as error:
                findings.append(_not_placed(error))
        pods = await judge_pods(desired, runtime, state, settings, root, admission=admission)
    except CRIError as error:
        return NodeAnswers((*findings, _runtime_problem(settings, str(error))), None)
    return NodeAnswers(tuple(findings), pods)


def _not_placed(error: PlacementNotTried) -> preflight_findings.Finding:
    then = "whether the pods that run keep their CPUs and memory is not known"
    return preflight_findings.Finding(
        preflight_findings.Area.PODS,
        preflight_findings.Severity.UNCLEAR,
        "positions on the machine",
        str(error),
        then,
    )


async def has_events(runtime: RuntimeService, seconds: float = EVENTS_S) -> bool:
    """Whether the runtime has an event stream: it does not end with an error at once."""
    try:
        async with asyncio.timeout(seconds), aclosing(_stream(runtime)) as events:
            async for _ in events:
                return True
    except Unimplemented:
        return False
    except (CRIError, TimeoutError):
        pass
    return True


async def _stream(runtime: RuntimeService) -> AsyncGenerator[object]:
    async for event in runtime.get_container_events():
        yield event


async def _read_node(
    name: str, kube_api: KubeApi | None
) -> tuple[api.Node | None, preflight_findings.Finding | None]:
    """The Node object, None: there is none; or why it can't be read."""
    if kube_api is None:
        return None, None
    try:
        return cast(api.Node, await kube_api.get(NODES, name)), None
    except NotFound:
        return None, None
    except ApiError as error:
        what = f"the Node object can't be read: {error}"
        then = "whether the pods that run would be admitted again is not known"
        return None, preflight_findings.Finding(
            preflight_findings.Area.PODS,
            preflight_findings.Severity.UNCLEAR,
            f"node {name}",
            what,
            then,
        )


def _kubelet_version(node: api.Node | None) -> str:
    status: api.NodeStatus = (node or {}).get("status") or {}
    return str((status.get("nodeInfo") or {}).get("kubeletVersion") or "")


def admission_facts(
    settings: KubeletSettings, flags: NodeFlags, reported: api.Node | None, info: RuntimeInfo
) -> AdmissionFacts:
    """The node that the agent would admit pods to at its start. Blocking.

    ``reported``: its object in the API, whose labels and taints count, or None if it would be
    registered.
    """
    facts, gates = read_machine_facts(Path(flags.root_dir)), settings.feature_gates
    configuration = NodeConfiguration(gates, info.features, settings.cpu_manager_policy)
    options = NodeOptions.from_settings(
        settings,
        flags,
        hostname=facts.hostname,
        port=settings.port,
        declared_features=declared(configuration),
    )
    own = initial_node(facts, options, info, node_ips=(), now=SystemClock().now())
    state = admission_state(
        settings, options, facts.kernel_version, apparmor=read_kernel_facts().apparmor
    )
    if reported is None:
        return AdmissionFacts(own, state)
    conditions = (reported.get("status") or {}).get("conditions") or ()
    pressures = [
        each["type"]
        for each in conditions
        if each["type"].endswith("Pressure") and each["status"] == "True"
    ]
    return AdmissionFacts(with_own_amounts(reported, own), replace(state, pressures=pressures))


async def _connect_runtime(
    settings: KubeletSettings, root: Path, stack: AsyncExitStack
) -> tuple[RemoteRuntime | None, preflight_findings.Finding | None]:
    try:
        runtime = RemoteRuntime(
            settings.container_runtime_endpoint,
            image_endpoint=settings.image_endpoint,
            request_timeout=REQUEST_S,
            metrics=Metrics().runtime,
            pod_selectors=partial(pod_selectors, root, settings.pod_logs_dir),
        )
        stack.push_async_callback(runtime.close)
        await runtime.connect(CONNECT_S)
    except (CRIError, EndpointError) as error:
        return None, _runtime_problem(settings, str(error))
    return runtime, None


def _runtime_problem(settings: KubeletSettings, why: str) -> preflight_findings.Finding:
    endpoint = settings.container_runtime_endpoint
    return preflight_findings.Finding(
        preflight_findings.Area.RUNTIME,
        preflight_findings.Severity.UNCLEAR,
        endpoint,
        why,
        "no pod can be judged",
    )

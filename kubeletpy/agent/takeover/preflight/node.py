"""Queries API server and runtime about a node and about the agent's rights. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import cast

from kubeletpy.agent.launch.runtime import pod_selectors, query_runtime
from kubeletpy.agent.node import admission_state
from kubeletpy.agent.takeover.preflight import node_pods
from kubeletpy.agent.takeover.preflight.checks import (
    runtime_findings,
    speed_findings,
    version_findings,
)
from kubeletpy.agent.takeover.preflight.findings import Area, Finding, PodVerdict, Severity, unclear
from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import SystemClock
from kubeletpy.base.structs import Struct, replace
from kubeletpy.base.tasks import run_together
from kubeletpy.config import KubeletSettings, LoadedConfig, NodeFlags
from kubeletpy.config.version_choice import ResolvedVersion
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.errors import ApiError, NotFound
from kubeletpy.kubeapi.kubeconfig import KubeconfigError
from kubeletpy.kubeapi.protocol import NODES, KubeApi, Resource
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.build import RuntimeInfo, initial_node
from kubeletpy.node.facts import NodeOptions, node_name
from kubeletpy.node.lease import NAMESPACE
from kubeletpy.node.machine import read_machine_facts
from kubeletpy.node.own_node import with_own_amounts
from kubeletpy.remote.client import RemoteRuntime, cgroup_driver
from kubeletpy.remote.connection import EndpointError
from kubeletpy.remote.errors import CRIError, Unimplemented
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.resources.admission.declared_features import NodeConfiguration, declared
from kubeletpy.resources.cgroups.setup import SYSTEMD_RUNS, read_kernel_facts
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


async def missing_rights(settings: KubeletSettings, node: str, kube_api: KubeApi) -> list[Finding]:
    """A finding for each right that the identity lacks, or that could not be requested."""
    rights = list(needed_rights(settings, node))
    answers = await run_together(*(_review_right(each, node, kube_api) for each in rights))
    return [each for each in answers if each is not None]


async def _review_right(right: Right, node: str, kube_api: KubeApi) -> Finding | None:
    try:
        answer = await kube_api.create(SELFSUBJECTACCESSREVIEWS, review(right, node))
    except ApiError as error:
        what = f"the API server does not report whether it is allowed: {error}"
        return Finding(Area.RIGHTS, Severity.UNCLEAR, right.text, what)
    status = answer.get("status") or {}
    if status.get("allowed"):
        return None
    reason = status.get("reason") or "not allowed"
    return Finding(Area.RIGHTS, Severity.BLOCKS, right.text, str(reason), right.purpose)


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


CONNECT_S = 5.0
REQUEST_S = 15.0
EVENTS_S = 1.0
"""A runtime without events refuses the stream by then."""


class NodeAnswers(Struct, frozen=True):
    """The reports of API server and runtime."""

    findings: tuple[Finding, ...]
    pods: tuple[PodVerdict, ...] | None
    """None: the pods of the node could not be determined."""


async def connect_api(
    flags: NodeFlags, stack: AsyncExitStack
) -> tuple[KubeApi | None, Finding | None]:
    """The API with the node's credentials, or why there is none."""
    if not flags.kubeconfig:
        return None, None
    try:
        client = await KubeClient.from_kubeconfig(flags.kubeconfig, qps=0, timeout=REQUEST_S)
    except KubeconfigError as error:
        return None, Finding(Area.CREDENTIALS, Severity.UNCLEAR, flags.kubeconfig, str(error))
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
    desired = await node_pods.desired_pods(settings, name, kube_api)
    if kube_api is None and flags.kubeconfig:
        what = "they can't be listed without credentials"
        lost = Finding(Area.PODS, Severity.UNCLEAR, "pods of the API", what)
        desired = node_pods.Desired(desired.pods, (*desired.findings, lost))
    findings += desired.findings
    if kube_api is not None and not desired.findings:
        findings += await missing_rights(settings, name, kube_api)
    runtime, problem = await _connect_runtime(settings, root, stack)
    if runtime is None:
        assert problem is not None, "there is a runtime, or a reason"
        why = "the runtime does not answer"
        lost_pods = tuple(unclear(pod, why) for pod in desired.pods if not pod.is_mirror)
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
        kernel = await asyncio.to_thread(read_kernel_facts)
        status = await runtime.status(verbose=True)
        findings += speed_findings(status.info, cgroup_v2=kernel.cgroup_v2, pods=desired.pods)
        state = await asyncio.to_thread(node_pods.read_node_state, settings, flags)
        desired = await node_pods.with_uids(desired, StaticUids(runtime, kube_api, root / RECORD))
        admission = None
        if node_problem is None:
            admission = await asyncio.to_thread(admission_facts, settings, flags, reported, info)
            try:
                place = await stack.enter_async_context(node_pods.placing(settings, facts, root))
                admission = replace(admission, place=place)
            except node_pods.PlacementNotTried as error:
                findings.append(_not_placed(error))
        pods = await node_pods.judge_pods(
            desired, runtime, state, settings, root, admission=admission
        )
    except CRIError as error:
        return NodeAnswers((*findings, _runtime_problem(settings, str(error))), None)
    return NodeAnswers(tuple(findings), pods)


def _not_placed(error: node_pods.PlacementNotTried) -> Finding:
    then = "whether the pods that run keep their CPUs and memory is not known"
    return Finding(Area.PODS, Severity.UNCLEAR, "positions on the machine", str(error), then)


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


async def _read_node(name: str, kube_api: KubeApi | None) -> tuple[api.Node | None, Finding | None]:
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
        return None, Finding(Area.PODS, Severity.UNCLEAR, f"node {name}", what, then)


def _kubelet_version(node: api.Node | None) -> str:
    status: api.NodeStatus = (node or {}).get("status") or {}
    return str((status.get("nodeInfo") or {}).get("kubeletVersion") or "")


def admission_facts(
    settings: KubeletSettings, flags: NodeFlags, reported: api.Node | None, info: RuntimeInfo
) -> node_pods.AdmissionFacts:
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
        return node_pods.AdmissionFacts(own, state)
    conditions = (reported.get("status") or {}).get("conditions") or ()
    pressures = [
        each["type"]
        for each in conditions
        if each["type"].endswith("Pressure") and each["status"] == "True"
    ]
    return node_pods.AdmissionFacts(
        with_own_amounts(reported, own), replace(state, pressures=pressures)
    )


async def _connect_runtime(
    settings: KubeletSettings, root: Path, stack: AsyncExitStack
) -> tuple[RemoteRuntime | None, Finding | None]:
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


def _runtime_problem(settings: KubeletSettings, why: str) -> Finding:
    endpoint = settings.container_runtime_endpoint
    return Finding(Area.RUNTIME, Severity.UNCLEAR, endpoint, why, "no pod can be judged")

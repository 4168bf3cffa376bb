"""Queries the API server and the runtime about a node, and judges its pods. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import cast

from kubeletpy.agent.admission import admission_state
from kubeletpy.agent.launch.runtime import pod_selectors, query_runtime
from kubeletpy.agent.takeover.preflight.findings import Area, Finding, Severity
from kubeletpy.agent.takeover.preflight.node_pods import (
    AdmissionFacts,
    Desired,
    desired_pods,
    judge_pods,
    read_node_state,
    with_uids,
)
from kubeletpy.agent.takeover.preflight.placement import PlacementNotTried, placing
from kubeletpy.agent.takeover.preflight.pods import PodVerdict, unclear
from kubeletpy.agent.takeover.preflight.rights import missing_rights
from kubeletpy.agent.takeover.preflight.runtime import runtime_findings
from kubeletpy.agent.takeover.preflight.versions import version_findings
from kubeletpy.base.api import types as api
from kubeletpy.base.clock import SystemClock
from kubeletpy.base.structs import Struct, replace
from kubeletpy.base.tasks import run_together
from kubeletpy.config import KubeletSettings, LoadedConfig, NodeFlags
from kubeletpy.config.version_choice import ResolvedVersion
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.errors import ApiError, NotFound
from kubeletpy.kubeapi.kubeconfig import KubeconfigError
from kubeletpy.kubeapi.protocol import NODES, KubeApi
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.build import RuntimeInfo, initial_node
from kubeletpy.node.machine import read_machine_facts
from kubeletpy.node.options import NodeOptions, node_name
from kubeletpy.node.own_node import with_own_amounts
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.discovery import cgroup_driver
from kubeletpy.remote.endpoint import EndpointError
from kubeletpy.remote.errors import CRIError, Unimplemented
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.resources.admission.declared_features import NodeConfiguration, declared
from kubeletpy.resources.cgroups.machine import read_kernel_facts
from kubeletpy.resources.cgroups.setup import SYSTEMD_RUNS
from kubeletpy.syncloop.sources.static_uids import RECORD, StaticUids

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
    shown, node_problem = await _read_node(name, kube_api)
    findings = version_findings(resolved, _kubelet_version(shown))
    findings += [] if node_problem is None else [node_problem]
    desired = await desired_pods(settings, name, kube_api)
    if kube_api is None and flags.kubeconfig:
        what = "they can't be listed without credentials"
        lost = Finding(Area.PODS, Severity.UNCLEAR, "pods of the API", what)
        desired = Desired(desired.pods, (*desired.findings, lost))
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
        state = await asyncio.to_thread(read_node_state, settings, flags)
        desired = await with_uids(desired, StaticUids(runtime, kube_api, root / RECORD))
        admission = None
        if node_problem is None:
            admission = await asyncio.to_thread(admission_facts, settings, flags, shown, info)
            try:
                place = await stack.enter_async_context(placing(settings, facts, root))
                admission = replace(admission, place=place)
            except PlacementNotTried as error:
                findings.append(_not_placed(error))
        pods = await judge_pods(desired, runtime, state, settings, root, admission=admission)
    except CRIError as error:
        return NodeAnswers((*findings, _runtime_problem(settings, str(error))), None)
    return NodeAnswers(tuple(findings), pods)


def _not_placed(error: PlacementNotTried) -> Finding:
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
    settings: KubeletSettings, flags: NodeFlags, shown: api.Node | None, info: RuntimeInfo
) -> AdmissionFacts:
    """The node that the agent would admit pods to at its start. Blocking.

    ``shown``: its object in the API, whose labels and taints count; None: it would be registered.
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
    if shown is None:
        return AdmissionFacts(own, state)
    conditions = (shown.get("status") or {}).get("conditions") or ()
    pressures = [
        each["type"]
        for each in conditions
        if each["type"].endswith("Pressure") and each["status"] == "True"
    ]
    return AdmissionFacts(with_own_amounts(shown, own), replace(state, pressures=pressures))


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

"""The composition root: which components an agent has, by its settings."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from kubeletpy import agent
from kubeletpy.agent.agent import Agent
from kubeletpy.agent.build import build, runtime_start
from kubeletpy.agent.context import ApiClients, Machine, Outside
from kubeletpy.config import ConfigError, NodeFlags, default_settings
from kubeletpy.metrics.trace.model import Step
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.node.eviction.keeper import EvictionKeeper
from kubeletpy.node.guards.at_start import GuardedHost
from kubeletpy.node.runtime import RuntimeUpkeep
from kubeletpy.podworkers.syncer import KubePodSyncer
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.resources.cgroups.setup import KernelFacts
from kubeletpy.runtime_manager.act.user_namespaces import UserNamespaceRanges
from kubeletpy.server.pods_api.server import PodsServer
from kubeletpy.syncloop.admission_gate import AdmissionGate
from kubeletpy.syncloop.loop import SyncLoop
from tests.kit.machines import FACTS
from tests.kit.virtual_time import LoopClock

pytestmark = pytest.mark.virtual_time

ALWAYS = [
    *("devices", "resource-claims"),
    "volumes",
    "volume-usage",
    *(
        "runtime-monitor",
        "runtime-upkeep",
        "pleg",
        "runtime-events",
        "dead-containers",
        "sync-loop",
    ),
    *("container-gc", "image-gc", "eviction", "log-rotation", "stuck-pods"),
    "deaths",
]


def made(
    root: Path,
    *,
    api: bool = True,
    guarded: GuardedHost | None = None,
    sockets: bool = False,
    recorded: int = 0,
    **fields: Any,
) -> Agent:
    """An agent with the given settings."""
    client = cast(Any, Mock())
    outside = Outside(
        machine=Machine(FACTS, KernelFacts(), ("192.0.2.1",), guarded=guarded),
        runtime=client,
        images=client,
        runtime_info=RuntimeInfo("containerd", "2.1.0"),
        clock=LoopClock(),
        api=ApiClients(client, client, client, client) if api else None,
        sockets=sockets,
    )
    flags = NodeFlags(
        root_dir=str(root),
        device_plugins_dir=str(root / "devices"),
        hostname_override="N ",
        flight_recorder_mib=recorded,
    )
    fields = {"cgroupsPerQOS": False, "enforceNodeAllocatable": [], **fields}
    return build(default_settings(**fields), flags, outside)


def names(agent: Agent) -> list[str]:
    return [task.name for task in agent.tasks]


async def test_a_node_of_a_cluster(tmp_path: Path) -> None:
    assert names(made(tmp_path)) == [
        *("node", "own-node", "node-lease", "static-pods-mirrors"),
        *("events", "event-warnings"),
        *("devices", "resource-claims"),
        "volumes",
        "volume-usage",
        "services",
        *(
            "runtime-monitor",
            "runtime-upkeep",
            "pleg",
            "runtime-events",
            "dead-containers",
            "sync-loop",
        ),
        "source-api",
        *("container-gc", "image-gc", "eviction", "log-rotation", "stuck-pods"),
        "deaths",
    ]


async def test_a_node_of_its_own(tmp_path: Path) -> None:
    assert names(made(tmp_path, api=False)) == ALWAYS


async def test_a_flight_recorder(tmp_path: Path) -> None:
    assert set(names(made(tmp_path, api=False, recorded=1))) == {*ALWAYS, "flight-recorder"}


@pytest.mark.parametrize(
    ("fields", "task"),
    [
        ({"staticPodPath": "/etc/manifests"}, "source-file"),
        ({"staticPodURL": "http://localhost/pods"}, "source-http"),
        ({"shutdownGracePeriod": "30s"}, "node-shutdown"),
    ],
)
async def test_settings_that_add_a_component(
    tmp_path: Path, fields: dict[str, Any], task: str
) -> None:
    assert set(names(made(tmp_path, api=False, **fields))) == {*ALWAYS, task}


@pytest.mark.parametrize(
    ("fields", "tasks"),
    [
        ({}, ["iptables", "ip6tables"]),
        ({"makeIPTablesUtilChains": False}, []),
        ({"makeIPTablesUtilChains": False, "kubeletCgroups": "/agent"}, ["daemon-cgroups"]),
        (
            {"makeIPTablesUtilChains": False, "systemCgroups": "/system", "cgroupRoot": "/"},
            ["daemon-cgroups"],
        ),
    ],
)
async def test_a_machine_is_guarded(
    tmp_path: Path, fields: dict[str, Any], tasks: list[str]
) -> None:
    host = GuardedHost(groups=cast(Any, Mock()))
    agent = made(tmp_path, api=False, guarded=host, **fields)
    assert names(agent) == ["own-process", "kernel-log", *tasks, *ALWAYS, "process-events"]
    assert [task.name for task in agent.tasks if task.late] == ["kernel-log"]


async def test_settings_that_remove_a_component(tmp_path: Path) -> None:
    agent = made(tmp_path, localStorageCapacityIsolation=False)
    assert agent.find(EvictionKeeper) is None
    assert "eviction" not in names(agent)


async def test_reserved_memory_without_a_memory_manager_is_no_reason_not_to_start(
    tmp_path: Path,
) -> None:
    reserved = [{"numaNode": 0, "limits": {"memory": "1100Mi"}}]
    agent = made(tmp_path, memoryManagerPolicy="None", reservedMemory=reserved)
    assert names(agent)


async def test_the_steps_of_a_pod_in_their_order(tmp_path: Path) -> None:
    syncer = made(tmp_path).component(PodWorkers).syncer
    assert isinstance(syncer, KubePodSyncer)
    assert [step.name for step in syncer.steps] == [
        Step.NETWORK,
        Step.MIRROR,
        Step.DIRECTORIES,
        Step.VOLUMES,
        Step.PULL_SECRETS,
        Step.CLAIMS,
        Step.PROBES,
        Step.RUNTIME,
    ]


@pytest.mark.parametrize(
    ("period", "between"), [("1m", 1.0), ("5m", 1.0), ("500ms", 0.5), ("0s", 1.0), ("-1s", -1.0)]
)
async def test_how_often_trees_are_measured(tmp_path: Path, period: str, between: float) -> None:
    keeper: Any = made(tmp_path, volumeStatsAggPeriod=period).component(EvictionKeeper)
    assert keeper.meter.sources.disks.seconds_between == between


@pytest.mark.parametrize("on", [False, True])
async def test_the_pods_api_has_a_gate(tmp_path: Path, on: bool) -> None:
    agent = made(tmp_path, api=False, sockets=True, featureGates={"PodsAPI": on})
    assert any(isinstance(component.instance, PodsServer) for component in agent.components) is on


@pytest.mark.parametrize("on", [True, False])
async def test_resizes_preempt_unless_the_scheduler_does(tmp_path: Path, on: bool) -> None:
    gates = {"InPlacePodVerticalScalingSchedulerPreemption": on}
    agent = made(tmp_path, featureGates=gates)
    (gate,) = [
        component.instance
        for component in agent.components
        if isinstance(component.instance, AdmissionGate)
    ]
    assert gate.resizes_preempt is not on


@pytest.mark.parametrize("on", [True, False])
async def test_resources_of_claims_count_by_their_gate(tmp_path: Path, on: bool) -> None:
    agent = made(tmp_path, featureGates={"DRANodeAllocatableResources": on})
    loop = next(
        component.instance
        for component in agent.components
        if isinstance(component.instance, SyncLoop)
    )
    claims = {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c"}]}
    pod: Any = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"nodeName": loop.merge.node_name, "containers": [{"name": "c", "image": "i"}]},
        "status": claims,
    }
    loop.merge.set_pods("api", [pod], 1.0)
    assert loop.merge.pods("api")["u"].status == (claims if on else {})


async def test_runtime_features_are_read_from_the_newest_version(tmp_path: Path) -> None:
    agent = made(tmp_path)
    upkeep, user_namespaces = (
        next(
            component.instance
            for component in agent.components
            if isinstance(component.instance, kind)
        )
        for kind in (RuntimeUpkeep, UserNamespaceRanges)
    )
    assert isinstance(upkeep, RuntimeUpkeep)
    assert isinstance(user_namespaces, UserNamespaceRanges)
    assert not user_namespaces.supporting()
    features: Any = {"name": "", "features": {"userNamespaces": True}}
    upkeep.known = RuntimeInfo("containerd", "2.2.0", [features])
    assert user_namespaces.supporting() == {""}


async def test_ids_that_no_kernel_maps_end_the_start_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"userNamespaces\.idsPerPod 65536 with maxPods 65535: "):
        made(tmp_path, maxPods=65535)


@pytest.mark.parametrize(
    ("endpoint", "root", "unit", "by_up"),
    [
        ("", "/var/lib/kubelet", "", False),
        ("unix:///run/containerd/containerd.sock", "/var/lib/kubelet", "containerd", False),
        ("/run/crio/crio.sock", "/var/lib/kubeletpy/node/kubelet", "crio", False),
        ("unix:///run/cri-dockerd.sock", "/var/lib/kubelet", "cri-docker", False),
        ("unix:///x/containerd/containerd.sock", "/x/node/kubelet", "containerd", True),
        ("unix:///run/k3s/other.sock", "/x/node/kubelet", "", False),
    ],
)
def test_what_starts_the_runtime(endpoint: str, root: str, unit: str, by_up: bool) -> None:
    for systemd in (True, False):
        found = runtime_start(endpoint, Path(root), systemd=systemd)
        assert found.unit == (f"{unit}.service" if unit and systemd else "")
        assert (found.endpoint, found.by_up) == (endpoint, by_up)


def test_signals_are_connected_in_one_module_and_no_callback_is_set_later() -> None:
    connected, assigned = set(), set()
    for path in Path(agent.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr="connect")):
                    connected.add(path.name)
                case ast.Assign(targets=[ast.Attribute(value=owner) as target]) if (
                    ast.unparse(owner) != "self"
                ):
                    assigned.add(ast.unparse(target))
    assert connected == {"build.py"}
    assert assigned == set()

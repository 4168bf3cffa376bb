"""The pods of a node, from a runtime in memory, an API and manifests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from kubeletpy.agent.takeover.preflight.findings import Holdings
from kubeletpy.agent.takeover.preflight.node import admission_facts
from kubeletpy.agent.takeover.preflight.node_pods import (
    desired_pods,
    judge_pods,
    read_node_state,
    with_uids,
)
from kubeletpy.agent.takeover.preflight.state_files import holdings_by_pod, recorded_resources
from kubeletpy.base.wire.api_table import pod_list
from kubeletpy.config import NodeFlags, default_settings
from kubeletpy.kubeapi.errors import Forbidden
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.remote.errors import Unavailable
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.resources.allocation import checkpoint_file
from kubeletpy.resources.allocation.resources import PodResources
from kubeletpy.resources.devices import checkpoint as device_checkpoint
from kubeletpy.resources.devices.model import Booking, DeviceHolder
from kubeletpy.resources.placement.state import CpuState, write_cpu_state
from kubeletpy.runtime_manager.names import container_hash
from kubeletpy.syncloop.sources.static_uids import RECORD, StaticUids
from tests.kit.api import ScriptedApi
from tests.kit.runtime import FakeRuntime

IMAGE = "registry.example/app:1"


def pod(name: str, uid: str = "", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", **metadata},
        "spec": {
            "nodeName": "n",
            "restartPolicy": "Always",
            "containers": [{"name": "app", "image": IMAGE}],
        },
    }


def run(
    runtime: FakeRuntime, name: str, uid: str = "", image: str = IMAGE, **annotations: str
) -> None:
    """Have the runtime run a pod."""
    uid = uid or f"uid-{name}"
    labels = {
        "io.kubernetes.pod.name": name,
        "io.kubernetes.pod.namespace": "ns",
        "io.kubernetes.pod.uid": uid,
    }
    runtime.sandboxes[f"s-{uid}"] = cri.PodSandboxStatus(
        id=f"s-{uid}",
        metadata=cri.PodSandboxMetadata(name=name, namespace="ns", uid=uid),
        state=cri.SANDBOX_READY,
        network=cri.PodSandboxNetworkStatus(ip="10.0.0.9"),
        labels=labels,
        annotations={f"kubernetes.io/config.{key}": value for key, value in annotations.items()},
    )
    runtime.containers[f"c-{uid}"] = cri.ContainerStatus(
        id=f"c-{uid}",
        metadata=cri.ContainerMetadata(name="app"),
        state=cri.CONTAINER_RUNNING,
        labels={**labels, "io.kubernetes.container.name": "app"},
        annotations={
            "io.kubernetes.container.hash": container_hash({"name": "app", "image": image})
        },
    )
    runtime.inside[f"c-{uid}"] = f"s-{uid}"


async def judged(
    root: Path, runtime: FakeRuntime, api: ScriptedApi | None, node: Any = None, **settings: Any
) -> dict[str, str]:
    """``node``: as the API shows it; None: it is not known."""
    made = default_settings(**settings)
    flags = NodeFlags(root_dir=str(root), device_plugins_dir=str(root / "device-plugins"))
    desired = await desired_pods(made, "n", api)
    state = read_node_state(made, flags)
    uids = StaticUids(cast(RuntimeService, runtime), api, root / RECORD)
    desired = await with_uids(desired, uids)
    facts = None if node is None else admission_facts(made, flags, node, RuntimeInfo())
    verdicts = await judge_pods(
        desired, cast(RuntimeService, runtime), state, made, root, admission=facts
    )
    return {
        "problems": "; ".join(each.text for each in desired.findings),
        **{each.name: f"{each.outcome}: {each.adopted}{each.why}" for each in verdicts},
    }


async def test_pods_of_the_api(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    run(runtime, "a")
    run(runtime, "b", image="registry.example/app:0")
    run(runtime, "left")
    mirror = pod("m", annotations={"kubernetes.io/config.mirror": "x"})
    api = ScriptedApi([{"items": [pod("a"), pod("b"), pod("new"), mirror]}])
    found = await judged(tmp_path, runtime, api)
    assert found == {
        "problems": "",
        "a": "kept: ",
        "b": "restarted: kill container app (c-uid-b): Container app definition changed, will be "
        "restarted",
        "new": "starting: create sandbox, attempt 0: the pod has no sandbox; start container app: "
        "the sandbox is new",
        "left": "stopped: neither the API nor a manifest has it; the kubelet stops it, too",
    }
    assert {each.partition(" ")[0] for each in runtime.calls} <= {
        "list_pod_sandbox",
        "list_containers",
        "pod_sandbox_status",
        "container_status",
    }


async def test_static_pods(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "fixed.json").write_text(json.dumps(pod("fixed", "uid-fixed")))
    for name in ("bare", "old"):
        bare = pod(name)
        del bare["metadata"]["uid"]
        (manifests / f"{name}.json").write_text(json.dumps(bare))
    (manifests / "broken.json").write_text('{"kind": "Po')
    run(runtime, "fixed-n", "uid-fixed")
    later = "2199-01-01T00:00:00.123456789+01:00"
    run(runtime, "bare-n", "0123", source="file", hash="0123", seen=later)
    run(runtime, "old-n", "4567", source="file", hash="4567", seen="2001-01-01T00:00:00Z")
    found = await judged(tmp_path, runtime, None, staticPodPath=str(manifests))
    assert found.pop("problems").startswith(f"{manifests}/broken.json: not a manifest")
    assert found == {
        "fixed-n": "kept: ",
        "bare-n": "kept: the manifest file has not been changed since the running pod was "
        "configured",
        "old-n": "restarted: nothing shows that the running pod was made from this manifest: its "
        "mirror pod could not be read, and the file was written after it was configured; the "
        "running pod (4567) is stopped, and a new one is started",
    }
    assert not (tmp_path / RECORD).exists()


async def test_without_the_api_no_pod_is_reported_as_stopped(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    run(runtime, "a")
    found = await judged(tmp_path, runtime, ScriptedApi([Forbidden("no", code=403)]))
    assert found["problems"].startswith("pods of the API: they can't be listed: ")
    assert found["a"] == "unclear: the pods that this node should run are not known"


async def test_a_pod_that_the_runtime_does_not_report(tmp_path: Path) -> None:
    runtime = FakeRuntime(
        errors={"container_status c-uid-a": Unavailable("ContainerStatus", "gone")}
    )
    run(runtime, "a")
    found = await judged(tmp_path, runtime, ScriptedApi([{"items": [pod("a")]}]))
    assert found["a"].startswith("unclear: the runtime does not report it: ")


async def test_a_resize_that_was_not_granted_is_no_restart(tmp_path: Path) -> None:
    requested = pod("a")
    small, large = ({"limits": {"memory": each}} for each in ("32Mi", "64Mi"))
    requested["spec"]["containers"][0] |= {
        "resources": large,
        "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
    }
    records = checkpoint_file.snapshot({"uid-a": PodResources({"app": cast(Any, small)})})
    for name in ("allocated_pods_state", "actuated_pods_state"):
        (tmp_path / name).write_text(records)
    runtime = FakeRuntime()
    run(runtime, "a")
    found = await judged(tmp_path, runtime, ScriptedApi([{"items": [requested]}]))
    assert found["a"] == "kept: "


def test_holdings() -> None:
    cpus = write_cpu_state(CpuState("static", frozenset({0}), {"u": {"c": frozenset({2, 3})}}))
    assert holdings_by_pod(cpus, "", "") == {"u": Holdings(cpus=("c: 2-3",))}
    damaged = device_checkpoint.render({}, {})[:-5]
    assert holdings_by_pod("{", damaged, "{") == {}


def test_records_with_a_journal() -> None:
    found = PodResources({"c": {}})
    line = checkpoint_file.journal_line("v", found)
    snapshot = checkpoint_file.snapshot({"u": found})
    assert recorded_resources(snapshot, line, pod_list) == {"u": found, "v": found}
    assert recorded_resources("", line + b'["w", ', pod_list) == {"v": found}
    assert recorded_resources("{", b"", pod_list) == {}


async def test_running_pods_that_would_not_be_admitted_again(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    names = ("fits", "moved", "late", "small")
    pods = [
        pod(name, creationTimestamp=f"2026-01-0{day}T00:00:00Z")
        for day, name in enumerate(names, start=1)
    ]
    for each in pods:
        run(runtime, each["metadata"]["name"])
        each["status"] = {"phase": "Running", "startTime": "2026-01-05T00:00:00Z"}
    pods[1]["spec"]["nodeSelector"] = {"disk": "ssd"}
    waiting = pod("waiting", creationTimestamp="2026-02-01T00:00:00Z")
    ended = pod("ended")
    ended["status"] = {"phase": "Succeeded"}
    node = {
        "metadata": {"name": "n", "labels": {"disk": "hdd"}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"pods": "110"}, "conditions": []},
    }
    listed = {"items": [*pods, waiting, ended]}
    api = ScriptedApi([listed, listed])
    found = await judged(tmp_path, runtime, api, node)
    assert {name for name, verdict in found.items() if "refused" in verdict} == {"moved"}
    moved = found["moved"]
    found = await judged(tmp_path, runtime, api, node, maxPods=2)
    again = "not admitted by the start of an agent or kubelet"
    full = f"refused: {again}: OutOfpods: Node didn't have enough resource: pods, requested: 1, "
    assert moved == (
        f"refused: {again}: NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match "
        "Pod's node affinity/selector"
    )
    assert found == {
        "problems": "",
        "fits": "kept: ",
        "moved": f"{full}used: 2, capacity: 2",
        "late": "kept: ",
        "small": f"{full}used: 2, capacity: 2",
        "waiting": f"{full}used: 2, capacity: 2",
        "ended": "finished: it is Succeeded",
    }


async def test_pods_with_devices_keep_them_whatever_the_node_shows(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    run(runtime, "a")
    run(runtime, "b")
    pods = [pod("a"), pod("b")]
    for each in pods:
        amounts = {"example.com/gpu": "1"}
        each["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
    bookings = {DeviceHolder("uid-a", "app", "example.com/gpu"): Booking({0: ("g0",)}, b"")}
    plugins = tmp_path / "device-plugins"
    plugins.mkdir()
    text = device_checkpoint.render(bookings, {})
    (plugins / "kubelet_internal_checkpoint").write_text(text)
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"example.com/gpu": "0"}}}
    found = await judged(tmp_path, runtime, ScriptedApi([{"items": pods}]), node)
    assert found["a"] == "kept: "
    assert found["b"].startswith("refused: ")
    assert "OutOfexample.com/gpu" in found["b"]

"""Example test of an operator, with a real API and a node that runs its pods.

    python -m pytest examples/operator_test.py

The operator below stands for yours: it makes a pod for each ConfigMap with the label `greet`. Its
test needs no cluster, no root and no containers: it runs an embedded API, an agent, and pods that
are processes. Needs kubeletpy[up] and pytest-asyncio.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from processes_runtime import ProcessRuntime

from kubeletpy.library import JSON, KubeApi, KubeClient, NodeAgent, Resource, guest_config
from kubeletpy_up.api import LocalApi

PODS = Resource("", "v1", "pods", namespaced=True, kind="Pod")
CONFIGMAPS = Resource("", "v1", "configmaps", namespaced=True, kind="ConfigMap")


async def operator(api: KubeApi) -> None:
    """Create a greeting pod for each ConfigMap."""
    found = await api.list(CONFIGMAPS, "default", label_selector="greet")
    for wish in found["items"]:
        await greet(api, wish)
    version = found["metadata"]["resourceVersion"]
    async for event in api.watch(
        CONFIGMAPS, "default", label_selector="greet", resource_version=version, timeout_seconds=60
    ):
        if event.type == "ADDED":
            await greet(api, event.object)


async def greet(api: KubeApi, wish: JSON) -> None:
    """Create the pod of one ConfigMap."""
    command = ["sh", "-c", f"echo hello {wish['data']['whom']}"]
    container = {"name": "greeter", "image": "none", "command": command}
    spec = {"containers": [container], "restartPolicy": "Never", "dnsPolicy": "Default"}
    name = wish["metadata"]["name"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    await api.create(PODS, pod, "default")


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[KubeApi]:
    """The API, as its administrator, of a cluster with one node."""
    local, runtime = LocalApi(tmp_path / "api", "node-1", port=0), ProcessRuntime()
    endpoint = await local.start()
    client = await KubeClient.from_kubeconfig(str(endpoint.admin_kubeconfig))
    config = guest_config(tmp_path / "node", "node-1", kubeconfig=endpoint.node_kubeconfig)
    try:
        async with NodeAgent(config, runtime=runtime, images=runtime) as agent:
            await agent.registered()
            yield client
    finally:
        await runtime.close()
        await client.close()
        await local.stop()


async def ended(api: KubeApi, name: str) -> JSON:
    """Wait until there is a pod of this name and it has ended."""
    while True:
        found = await api.list(PODS, "default", field_selector=f"metadata.name={name}")
        for pod in found["items"]:
            if pod["status"]["phase"] in ("Succeeded", "Failed"):
                return dict(pod)
        await asyncio.sleep(0.1)


@pytest.mark.asyncio
async def test_it_greets_whom_a_configmap_names(cluster: KubeApi) -> None:
    operating = asyncio.create_task(operator(cluster))
    wish = {"metadata": {"name": "ann", "labels": {"greet": ""}}, "data": {"whom": "Ann"}}
    await cluster.create(CONFIGMAPS, wish, "default")
    try:
        async with asyncio.timeout(30):
            greeted = await ended(cluster, "ann")
    finally:
        operating.cancel()
    assert greeted["status"]["phase"] == "Succeeded"
    assert greeted["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0

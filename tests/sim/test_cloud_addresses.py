"""The addresses of a node of which a cloud controller sets the addresses, and of its pods."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy_up.requests import ADMIN
from tests.sim.api import NODE
from tests.sim.test_scenarios import play, state, status, until
from tests.sim.user import container, pod
from tests.sim.world import NODE_IP, World

CLOUD: JSON = {"cloud_provider": "external"}
FIRST = ("203.0.113.7", "2001:db8::7")
SECOND = ("2001:db8::8", "203.0.113.8")
"""The other family is the primary one."""
STATIC = f"""
apiVersion: v1
kind: Pod
metadata: {{name: static, namespace: default}}
spec:
  hostNetwork: true
  containers: [{{name: c, image: {container("c", "run")["image"]}}}]
"""


def set_addresses(world: World, *addresses: str) -> None:
    """Plays a cloud controller: sets addresses."""
    listed = [{"type": "Hostname", "address": NODE}]
    listed += [{"type": "InternalIP", "address": each} for each in addresses]
    listed += [{"type": "ExternalIP", "address": "198.51.100.1"}, {"$patch": "replace"}]
    world.registry.patch(
        ADMIN, "nodes", NODE, {"status": {"addresses": listed}}, subresource="status"
    )


def reported(world: World, name: str, kind: str) -> tuple[str, ...]:
    """The addresses (host or pod) that the API shows; the singular field is the first of them."""
    found = status(world, name)
    listed = tuple(each["ip"] for each in found.get(f"{kind}IPs") or ())
    assert found.get(f"{kind}IP") == (listed[0] if listed else None)
    return listed


async def until_shown(world: World, name: str, addresses: tuple[str, ...]) -> None:
    """Wait until the API shows them as those of a pod on the host's network."""
    await until(world, lambda: reported(world, name, "pod") == addresses, 3)
    assert reported(world, name, "host") == addresses


async def until_running(world: World, name: str) -> None:
    """Wait until the API shows that the pod's container runs."""
    await until(world, lambda: "running" in state(world, name, "c"), 3)


def on_host(name: str, *fields: str) -> JSON:
    """A pod on the host's network that reads fields of its status."""
    env = [{"name": f.upper()[7:], "valueFrom": {"fieldRef": {"fieldPath": f}}} for f in fields]
    return pod(name, [container("c", "run", env=env)], hostNetwork=True)


def variables(world: World, name: str) -> dict[str, str]:
    """The environment of a pod's running container."""
    (found,) = (
        each
        for each in world.runtime.containers.values()
        if each.sandbox.config.metadata.name == name and each.running
    )
    return {
        each.key: each.value.decode()
        for each in found.config.envs
        if each.key.endswith(("IP", "IPS"))
    }


def test_pods_wait_for_the_addresses_and_follow_them(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        (world.static_dir / "static.yaml").write_text(STATIC)
        own = f"static-{NODE}"
        world.user.create(on_host("plain"))
        world.user.create(on_host("reads", "status.hostIP", "status.hostIPs", "status.podIPs"))
        world.user.create(on_host("reads-pod", "status.podIP"))
        world.user.create(pod("network", [container("c", "run")]))
        readers = ("reads", "reads-pod")
        await until(world, lambda: all(state(world, name, "c") for name in (*readers, "plain")))
        # nothing holds up a pod that does not read them: it may be the cloud controller
        for name in ("plain", "network", own):
            await until_running(world, name)
        await asyncio.sleep(30)
        for name in readers:
            waiting = state(world, name, "c")["waiting"]
            assert waiting["reason"] == "CreateContainerConfigError"
            assert "is not known: the Node object has no InternalIP" in waiting["message"]
        for name in (*readers, "plain", "network", own):
            assert reported(world, name, "host") == ()
        for name in (*readers, "plain", own):
            assert reported(world, name, "pod") == ()
        inside = reported(world, "network", "pod")
        assert inside

        for addresses in FIRST, SECOND:
            set_addresses(world, *addresses)
            for name in (*readers, "plain", own):
                await until_shown(world, name, addresses)
            assert reported(world, "network", "host") == addresses
            assert reported(world, "network", "pod") == inside
            for name in readers:
                await until_running(world, name)
        assert variables(world, "reads") == {
            "HOSTIP": FIRST[0],
            "HOSTIPS": ",".join(FIRST),
            "PODIPS": ",".join(FIRST),
        }
        assert variables(world, "reads-pod") == {"PODIP": FIRST[0]}
        (world.static_dir / "static.yaml").unlink()

    play(scenario, tmp_path, static=True, flags=CLOUD)


def test_a_restart_loses_no_address(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.user.create(on_host("plain"))
        world.user.create(pod("network", [container("c", "run")]))
        await until(world, lambda: world.registry.find("nodes", "", NODE) is not None)
        set_addresses(world, *FIRST)
        await until_shown(world, "plain", FIRST)
        lost: list[str] = []

        def check(change: Any) -> None:
            for name in ("plain", "network"):
                if reported(world, name, "host") != FIRST or not reported(world, name, "pod"):
                    lost.append(f"{name} after {change.resource}")

        stop = world.registry.store.subscribe(check)
        await world.kill()
        world.api_down()
        world.start()
        await asyncio.sleep(60)
        world.api_up()
        await asyncio.sleep(60)
        assert lost == []
        node: Any = world.registry.find("nodes", "", NODE)
        listed = [each["address"] for each in node["status"]["addresses"]]
        assert listed == [NODE, *FIRST, "198.51.100.1"]
        stop()

    play(scenario, tmp_path, flags=CLOUD)


@pytest.mark.parametrize(("node_ip", "before"), [(NODE_IP, (NODE_IP,)), ("0.0.0.0", (NODE_IP,))])
def test_a_node_ip_counts_until_the_cloud_controller_sets_others(
    tmp_path: Path, node_ip: str, before: tuple[str, ...]
) -> None:
    async def scenario(world: World) -> None:
        world.user.create(on_host("plain", "status.hostIP"))
        await until_shown(world, "plain", before)
        set_addresses(world, *FIRST)
        await until_shown(world, "plain", FIRST)

    play(scenario, tmp_path, flags={**CLOUD, "node_ip": node_ip})

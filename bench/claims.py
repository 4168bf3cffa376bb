"""``python -m bench.claims``: what a claim for a CSI volume costs a pod.

Uses a private containerd, with a driver that bind-mounts directories. It measures create -> Ready
and delete -> removed of a pod with a claim, compared to one without and to the driver's own calls.
It also starts 60 such pods at once, and expands a claim in use. The embedded API lets the agent's
node watch its own claims and volumes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bench.manifests import NAMESPACE, manifest
from bench.results import quantile
from bench.stand import NODE, Stand, make_stand
from bench.watching import READY, REMOVED
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.protocol import CSIDRIVERS, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, PODS
from kubeletpy.remote.generated import csi_pb2 as csi
from tools.env.process import Daemon
from tools.env.waiting import wait_until

DRIVER = "bench.csi.example.com"
_ROOT = Path(__file__).resolve().parent.parent
_names = itertools.count(1)


@dataclass(slots=True)
class Driver:
    """The driver, and direct calls to it."""

    directory: Path
    channel: grpc.aio.Channel

    async def call(self, service: str, method: str, request: Any) -> Any:
        """One call."""
        answers = {"CreateVolume": csi.CreateVolumeResponse}
        send = self.channel.unary_unary(
            f"/csi.v1.{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answers.get(method, csi.NodeStageVolumeResponse).FromString,
        )
        return await send(request, timeout=30)

    async def volume(self, name: str) -> str:
        """Create a volume; returns its handle."""
        request = csi.CreateVolumeRequest(name=name, volume_capabilities=[_capability()])
        made = await self.call("Controller", "CreateVolume", request)
        return str(made.volume.volume_id)

    async def raw(self, name: str) -> tuple[float, float]:
        """Seconds that staging and publishing take without an agent, and undoing both."""
        handle, where = await self.volume(name), self.directory / "raw"
        staged, target = str(where / f"{name}-staged"), str(where / name)
        await asyncio.to_thread(where.mkdir, exist_ok=True)
        known: dict[str, Any] = {"volume_id": handle, "volume_capability": _capability()}
        begun = time.perf_counter()
        stage = csi.NodeStageVolumeRequest(staging_target_path=staged, **known)
        await self.call("Node", "NodeStageVolume", stage)
        publish = csi.NodePublishVolumeRequest(
            staging_target_path=staged, target_path=target, **known
        )
        await self.call("Node", "NodePublishVolume", publish)
        made = time.perf_counter()
        unpublish = csi.NodeUnpublishVolumeRequest(volume_id=handle, target_path=target)
        await self.call("Node", "NodeUnpublishVolume", unpublish)
        unstage = csi.NodeUnstageVolumeRequest(volume_id=handle, staging_target_path=staged)
        await self.call("Node", "NodeUnstageVolume", unstage)
        return made - begun, time.perf_counter() - made


def _capability() -> csi.VolumeCapability:
    capability = csi.VolumeCapability(access_mode={"mode": "SINGLE_NODE_WRITER"})
    capability.mount.SetInParent()
    return capability


@asynccontextmanager
async def running_driver(stand: Stand) -> AsyncIterator[Driver]:
    """The driver as a process, registered with the agent."""
    directory = stand.directory / "driver"
    directory.mkdir()
    registry = stand.root_dir / "plugins_registry"
    process = Daemon("driver", directory)
    spec = {"attachRequired": False, "fsGroupPolicy": "File"}
    await stand.api.create(CSIDRIVERS, {"metadata": {"name": DRIVER}, "spec": spec})
    command = [sys.executable, "-m", "tests.csi_driver", str(directory)]
    command += [f"--registry={registry}", f"--option=name={DRIVER}"]
    process.start(command, {**os.environ, "PYTHONPATH": str(_ROOT)})
    try:
        ready = registry / f"{DRIVER}-reg.sock"
        await asyncio.to_thread(wait_until, ready.exists, "the driver", give_up=process.died)
        options = [("grpc.default_authority", "localhost")]
        async with grpc.aio.insecure_channel(
            f"unix:{directory / 'csi.sock'}", options=options
        ) as channel:
            yield Driver(directory, channel)
    finally:
        process.stop()


async def claim(stand: Stand, driver: Driver, name: str) -> None:
    """A claim bound to a volume of its own, as a PV binder leaves it."""
    handle = await driver.volume(name)
    size = {"storage": "16Mi"}
    wants = {
        "accessModes": ["ReadWriteOnce"],
        "volumeName": name,
        "storageClassName": "",
        "resources": {"requests": size},
    }
    made = await stand.api.create(
        PERSISTENTVOLUMECLAIMS, {"metadata": {"name": name}, "spec": wants}, NAMESPACE
    )
    has = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": size,
        "claimRef": {"namespace": NAMESPACE, "name": name, "uid": made["metadata"]["uid"]},
        "csi": {"driver": DRIVER, "volumeHandle": handle},
    }
    await stand.api.create(PERSISTENTVOLUMES, {"metadata": {"name": name}, "spec": has})
    await _status(stand, name, {"phase": "Bound", "capacity": size})


async def _status(stand: Stand, name: str, status: JSON) -> None:
    await stand.api.patch(
        PERSISTENTVOLUMECLAIMS, name, {"status": status}, NAMESPACE, subresource="status"
    )


async def start(stand: Stand, driver: Driver | None) -> tuple[str, float]:
    """Create a pod, with a claim if there is a driver; returns its name and seconds to Ready."""
    name = f"c{next(_names)}"
    made = manifest(name, NODE)
    if driver is not None:
        await claim(stand, driver, name)
        made["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v/v"}]
        made["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    begun = time.time()
    await stand.api.create(PODS, made, NAMESPACE)
    return name, await stand.pods.until(name, READY) - begun


async def end(stand: Stand, name: str) -> float:
    """Delete a pod; returns the seconds until it is removed."""
    begun = time.time()
    await stand.api.delete(PODS, name, NAMESPACE)
    return await stand.pods.until(name, REMOVED) - begun


async def expansion(stand: Stand, name: str, mebibytes: int) -> float:
    """Seconds from the API's answer to a resize until the claim has its new size."""
    size = {"storage": f"{mebibytes}Mi"}
    await stand.api.patch(PERSISTENTVOLUMES, name, {"spec": {"capacity": size}})
    pending = {"storage": "NodeResizePending"}
    await _status(stand, name, {"allocatedResources": size, "allocatedResourceStatuses": pending})
    begun = time.perf_counter()
    async with asyncio.timeout(120):
        while True:
            found = await stand.api.get(PERSISTENTVOLUMECLAIMS, name, NAMESPACE)
            if found["status"]["capacity"] == size:
                return time.perf_counter() - begun
            await asyncio.sleep(0.01)


async def run(generation: int, rounds: int, pods: int) -> None:
    """Measure and print."""
    async with make_stand(generation, floor=False) as stand:
        await asyncio.to_thread(stand.launch_agent)
        await stand.nodes.until(NODE, "Ready")
        async with running_driver(stand) as driver:
            await _measure(stand, driver, rounds, pods)
            await stand.stop_agent()


async def _measure(stand: Stand, driver: Driver, rounds: int, pods: int) -> None:
    ready: dict[bool, list[float]] = {False: [], True: []}
    removed: dict[bool, list[float]] = {False: [], True: []}
    raw_made, raw_undone = [], []
    for index in range(rounds + 1):
        made, undone = await driver.raw(f"raw{index}")
        for claimed in (False, True):
            name, seconds = await start(stand, driver if claimed else None)
            ended = await end(stand, name)
            if index:  # the first one of each is slower
                ready[claimed].append(seconds)
                removed[claimed].append(ended)
        if index:
            raw_made.append(made)
            raw_undone.append(undone)
    for what, both, raw in (
        ("create -> Ready", ready, raw_made),
        ("delete -> removed", removed, raw_undone),
    ):
        print(_line(f"{what}, no volumes", both[False]))
        print(_line(f"{what}, a CSI claim", both[True]))
        print(_line(f"{what}, the driver's two calls alone", raw))
        floor = quantile(both[False], 0.5) + quantile(raw, 0.5)
        print(f"{what}: {quantile(both[True], 0.5) / floor:.2f} of both together (aim: 1.15)")
    name, _ = await start(stand, driver)
    grown = [await expansion(stand, name, 32 + step) for step in range(rounds)]
    print(_line("claim changed -> it has its new size (aim: under 1000)", grown))
    await end(stand, name)
    for which in (None, driver):
        begun = time.time()
        names = await asyncio.gather(*(start(stand, which) for _ in range(pods)))
        what = f"{pods} pods at once, {'a CSI claim each' if which else 'no volumes'}"
        print(f"{what}: all Ready after {time.time() - begun:.1f} s")
        begun = time.time()
        await asyncio.gather(*(end(stand, name) for name, _ in names))
        print(f"{what}: all removed after {time.time() - begun:.1f} s")


def _line(what: str, seconds: list[float]) -> str:
    p50, p95 = (quantile(seconds, q) * 1000 for q in (0.5, 0.95))
    return f"{what}: p50 {p50:.0f} ms, p95 {p95:.0f} ms ({len(seconds)} samples)"


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.claims")
    parser.add_argument("--containerd", type=int, choices=(1, 2), default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--pods", type=int, default=60)
    supplied = parser.parse_args()
    if os.geteuid() != 0:
        print("bench: containers need root", file=sys.stderr)
        return 1
    asyncio.run(run(supplied.containerd, supplied.rounds, supplied.pods))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

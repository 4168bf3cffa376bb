"""Run the DRA driver for tests alone, until it is ended.

It prepares the devices that the API allocated to a claim. Three files in its directory control and
record it. ``devices.json`` has the health of its devices (device -> health), read again when it
changes. ``calls`` has a line for each call, and ``hang`` makes it hang.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from kubeletpy.remote.generated import dra_health_pb2 as pb
from tests.dra_driver.running import Handler, driver_on_node
from tests.dra_driver.services import Given, Services

CHECK_S = 0.1
REPORT_S = 5.0
"""Between reports of devices of which nothing is new; they count for 30 s."""
STATES = {"Healthy": pb.HEALTHY, "Unhealthy": pb.UNHEALTHY}
POOL = "pool"


def main() -> None:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--registry", type=Path, required=True)
    parser.add_argument("--cdi", type=Path, required=True)
    parser.add_argument("--kubectl", type=Path, required=True)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    supplied = parser.parse_args()
    asyncio.run(run(supplied))


async def run(supplied: argparse.Namespace) -> None:
    """Until it is killed."""
    directory: Path = supplied.directory

    def allocated(claim: Any) -> list[Given]:
        command = [supplied.kubectl, f"--kubeconfig={supplied.kubeconfig}", "get", "-o", "json"]
        command += ["-n", claim.namespace, "resourceclaim", claim.name]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert found["metadata"]["uid"] == claim.uid
        results = found["status"]["allocation"]["devices"]["results"]
        return [
            Given(each["device"], [each["request"].partition("/")[0]])
            for each in results
            if each["driver"] == supplied.name
        ]

    services = Noted(supplied.name, allocation=allocated, cdi_dir=supplied.cdi, directory=directory)
    socket = directory / "dra.sock"
    (supplied.registry / f"{supplied.name}-reg.sock").unlink(
        missing_ok=True
    )  # of one that was killed
    async with driver_on_node(supplied.registry, socket, services, health(directory)):
        await asyncio.Event().wait()


@dataclass(slots=True)
class Noted(Services):
    """A driver that records its calls in a file before it answers them."""

    directory: Path = Path()

    def NodePrepareResources(self, request: Any) -> Any:
        return self._noted("prepare", request, lambda: Services.NodePrepareResources(self, request))

    def NodeUnprepareResources(self, request: Any) -> Any:
        return self._noted(
            "unprepare", request, lambda: Services.NodeUnprepareResources(self, request)
        )

    def _noted(self, call: str, request: Any, work: Callable[[], Any]) -> Any:
        with (self.directory / "calls").open("a") as calls:
            calls.write(f"{call} {','.join(sorted(claim.name for claim in request.claims))}\n")
        while (self.directory / "hang").exists():
            time.sleep(CHECK_S)
        return work()


def health(directory: Path) -> Handler:
    """The service DRAResourceHealth."""

    async def watch(request: Any, context: Any) -> AsyncIterator[pb.NodeWatchResourcesResponse]:
        reported, until = None, 0.0
        while True:
            now = json.loads((directory / "devices.json").read_text())
            if now != reported or time.monotonic() > until:
                reported, until = now, time.monotonic() + REPORT_S
                yield _report(now)
            await asyncio.sleep(CHECK_S)

    described = pb.DESCRIPTOR.services_by_name["DRAResourceHealth"]
    method = grpc.unary_stream_rpc_method_handler(
        watch,
        request_deserializer=pb.NodeWatchResourcesRequest.FromString,
        response_serializer=pb.NodeWatchResourcesResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(described.full_name, {"NodeWatchResources": method})


def _report(devices: dict[str, str]) -> pb.NodeWatchResourcesResponse:
    report = pb.NodeWatchResourcesResponse()
    for name, state in devices.items():
        each = report.devices.add(health=STATES[state], last_updated_time=int(time.time()))
        each.device.pool_name, each.device.device_name = POOL, name
        if state != "Healthy":
            each.message = "too hot"
    return report


if __name__ == "__main__":
    main()

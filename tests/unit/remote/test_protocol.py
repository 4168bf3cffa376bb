"""The Protocol classes have every call of the CRI, and the client implements them."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.generated.operations import OPERATIONS
from kubeletpy.remote.protocol import ImageService, RuntimeService
from tests.kit import remote as every_call
from tests.kit.remote import NEVER_CALLED

SERVICES = {"RuntimeService": RuntimeService, "ImageService": ImageService}


def snake(name: str) -> str:
    """RunPodSandbox -> run_pod_sandbox."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def methods(protocol: type) -> set[str]:
    """The public methods of a class."""
    return {name for name in vars(protocol) if not name.startswith("_")}


@pytest.mark.parametrize("service", SERVICES)
def test_every_call_is_a_method(service: str) -> None:
    found = {m.name for m in cri.DESCRIPTOR.services_by_name[service].methods}
    calls = {snake(name) for name in found - NEVER_CALLED}
    assert methods(SERVICES[service]) == calls


@pytest.mark.parametrize("service", SERVICES)
def test_client_has_the_protocols_signatures(service: str) -> None:
    for name in methods(SERVICES[service]):
        promised = getattr(SERVICES[service], name)
        kept = getattr(RemoteRuntime, name)
        assert inspect.signature(kept) == inspect.signature(promised), name
        streams = "AsyncIterator" in str(inspect.signature(promised).return_annotation)
        assert inspect.isasyncgenfunction(kept) == streams, name
        assert kept is not promised, f"the client inherits {name} and makes no call"


def test_every_call_has_an_operation_name() -> None:
    assert set(OPERATIONS) == set(every_call.methods())


def test_protocol_and_errors_need_no_grpc() -> None:
    code = (
        "import sys, kubeletpy.remote.protocol, kubeletpy.remote.errors;"
        "sys.exit('grpc' in sys.modules or 'asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""A node with a DRA driver for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dra_driver.process import DriverProcess, device_class, resource_slice
from tests.integration.node.machine import Node

DRIVER = "gpu.example.com"
CLASS = "gpu"


@pytest.fixture(scope="module")
def driver(node2: Node) -> Iterator[DriverProcess]:
    """A DRA driver that runs, with its ResourceSlice and DeviceClass."""
    kubectl, env = node2.kubectl_program()
    made = DriverProcess(
        node2.directory / "dra-driver",
        DRIVER,
        registry=node2.root_dir / "plugins_registry",
        cdi=node2.containerd.directory / "cdi",
        kubectl=kubectl,
        kubeconfig=Path(env["KUBECONFIG"]),
    )
    made.now(d0="Healthy", d1="Healthy")
    made.start()
    node2.apply(
        resource_slice(DRIVER, node2.name, ("d0", "d1")),
        device_class(CLASS, DRIVER),
        namespace="default",
    )
    yield made
    made.kill()

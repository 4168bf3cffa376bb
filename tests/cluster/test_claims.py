"""Claims of a CSI driver, bound by the controllers and readable for the node by its authorizer.

The driver is that of the other tests (``tests/csi_driver``), backed by loop devices.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.node import WITHIN, ClusterNode
from tests.cluster.objects import claim, csi_driver, volume
from tests.integration.storage.driver import DriverProcess

pytestmark = pytest.mark.timeout(400)
NAME = "test.csi.example.com"
SCRIPT = "echo kept >/data/file; sleep 100000"


@pytest.fixture(scope="module")
def driver(node: ClusterNode) -> Iterator[DriverProcess]:
    """A driver that CSINode shows."""
    made = DriverProcess(node.directory / "csi", node.root_dir / "plugins_registry", NAME)
    node.apply(csi_driver(NAME))
    made.start()
    try:
        path = f"--for=jsonpath={{.spec.drivers[0].name}}={NAME}"
        node.kubectl("wait", path, f"csinode/{node.name}", WITHIN)
        yield made
    finally:
        made.remove()


def test_a_scheduled_pod_keeps_its_data_in_a_claim(
    node: ClusterNode, driver: DriverProcess
) -> None:
    handle = driver.volume("data")
    pod = node.pod(
        "writes",
        SCRIPT,
        {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    )
    del pod["spec"]["nodeName"]
    node.apply(volume("data", NAME, handle), claim("data"), pod)
    node.wait_ready("writes")
    assert node.read("pvc", "data", ".status.phase") == "Bound"
    file = driver.data(handle) / "file"
    node.until(file.exists, "the pod's file in the volume")
    node.kubectl("delete", "pod/writes", WITHIN)
    node.until(lambda: f"NodeUnstageVolume {handle}" in driver.calls(), "the volume's unmount")
    assert file.read_text() == "kept\n"
    node.kubectl("delete", "pvc/data", "pv/data", WITHIN)

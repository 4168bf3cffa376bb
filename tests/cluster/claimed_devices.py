"""Pods with devices of a DRA driver, allocated by the scheduler and prepared by either program."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kubeletpy.base.api.types import JSON
from tests.cluster.kubelet_node import FOREVER, KubeletNode
from tests.cluster.node import WITHIN
from tests.cluster.objects import claim_template
from tests.dra_driver.process import DriverProcess, device_class, resource_slice

DRIVER, CLASS, TEMPLATE = "switches.gpu.example.com", "switches-gpu", "gpu"
DEVICES = ("d0", "d1", "d2")


class ClaimedDevices:
    """The driver's devices on one node.

    A pod of :meth:`create` has a claim of its own, made from a template.
    """

    def __init__(self, node: KubeletNode, driver: DriverProcess) -> None:
        self._node, self._driver = node, driver
        self._claims: dict[str, str] = {}
        """Pod -> its claim."""
        self._allocated: dict[str, JSON] = {}
        """Claim -> its status, with which its pod began to run."""

    def create(self, name: str) -> None:
        """Create a pod with a device; returns when it is Ready and its container has the device."""
        node = self._node
        pod = node.pod(
            name,
            FOREVER,
            {"resources": {"claims": [{"name": "gpu"}]}},
            resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}],
        )
        del pod["spec"]["nodeName"]
        node.apply(pod)
        node.wait_ready(name)
        claim = node.read("pod", name, ".status.resourceClaimStatuses[0].resourceClaimName")
        self._claims[name] = claim
        self._allocated[claim] = self._status(claim)
        (result,) = self._allocated[claim]["allocation"]["devices"]["results"]
        (user,) = self._allocated[claim]["reservedFor"]
        assert user["name"] == name
        expected = f"DRA_{result['device'].upper()}={DRIVER}"
        variables = node.kubectl("exec", name, "--", "env").splitlines()
        assert [each for each in variables if each.startswith("DRA_")] == [expected]

    def check_kept(self, name: str) -> None:
        """Assert that a pod's claim has the same allocation and user, and was not unprepared."""
        claim = self._claims[name]
        assert self._status(claim) == self._allocated[claim]
        assert f"unprepare {claim}" not in self._driver.calls()

    def prepared(self, name: str) -> int:
        """How often the driver prepared a pod's claim."""
        return self._driver.calls().count(f"prepare {self._claims[name]}")

    def delete(self, name: str) -> None:
        """Delete a pod; the driver unprepares its claim once, and the claim is deleted."""
        self.check_kept(name)
        claim = self._claims[name]
        self._node.kubectl("delete", f"pod/{name}", WITHIN)
        self._node.kubectl("wait", "--for=delete", f"resourceclaim/{claim}", WITHIN)
        calls = [each for each in self._driver.calls() if each.endswith(f" {claim}")]
        assert calls.count(f"unprepare {claim}") == 1
        assert calls[-1] == f"unprepare {claim}"

    def assert_each_was_unprepared_once(self) -> None:
        """Assert that no claim of a deleted pod was unprepared again later."""
        calls = self._driver.calls()
        assert {calls.count(f"unprepare {each}") for each in self._claims.values()} == {1}
        assert list(self._driver.cdi.glob(f"{DRIVER}-*")) == []

    def delete_all(self) -> None:
        """Delete the pods that a failed test leaves: their claims need the driver."""
        if self._claims:
            self._node.kubectl("delete", "pods", *self._claims, "--ignore-not-found", WITHIN)

    def _status(self, claim: str) -> JSON:
        found = self._node.kubectl("get", "resourceclaim", claim, "-o", "json")
        status: JSON = json.loads(found)["status"]
        return status


@contextmanager
def claimed_devices(node: KubeletNode) -> Iterator[ClaimedDevices]:
    """A DRA driver with three devices, whose objects are deleted at the end."""
    driver = DriverProcess(
        node.directory / "dra",
        DRIVER,
        registry=node.root_dir / "plugins_registry",
        cdi=node.runtime.directory / "cdi",
        kubectl=node.kubectl_program,
        kubeconfig=node.plane.admin,
    )
    driver.now(**dict.fromkeys(DEVICES, "Healthy"))
    driver.start()
    made = ClaimedDevices(node, driver)
    try:
        node.apply(device_class(CLASS, DRIVER), claim_template(TEMPLATE, CLASS))
        with _published(node):
            yield made
    finally:
        made.delete_all()
        driver.kill()
        objects = f"deviceclass/{CLASS}", f"resourceclaimtemplate/{TEMPLATE}"
        node.kubectl("delete", *objects, "--ignore-not-found", WITHIN)


@contextmanager
def _published(node: KubeletNode) -> Iterator[None]:
    """Publish the driver's ResourceSlice, and again when it is deleted, as drivers do.

    Each program that starts deletes the slices of its node.
    """
    reported = threading.Event()
    slices = resource_slice(DRIVER, node.name, DEVICES)
    watch = ("get", "resourceslices", "--watch", "--output-watch-events", "--output=json")
    with node.kubectl_process(*watch) as process:

        def publish_again() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.endswith("\n"):  # kubectl was killed in the middle of one
                    return
                reported.set()
                if json.loads(line)["type"] == "DELETED":
                    node.apply(slices)

        publishing = threading.Thread(target=publish_again)
        publishing.start()

        def published() -> bool:
            node.apply(slices)
            return reported.is_set()

        try:
            node.until(published, "the driver's ResourceSlice in the watch")
            yield
        finally:
            process.kill()
            publishing.join()
            node.kubectl("delete", "resourceslice/slice", "--ignore-not-found", WITHIN)

"""Pods whose image is being pulled while one program that runs the node replaces another."""

from __future__ import annotations

from tests.cluster.kubelet_node import FOREVER, KubeletNode
from tests.cluster.watching import Change
from tests.kit.held_registry import HeldRegistry
from tools.env.images import busybox_image

WAITING = {"ContainerCreating", "PodInitializing"}
"""Reasons of a container that has had no failure."""


class HeldPull:
    """A pod of one switch; the registry holds its image back until the next program pulls it."""

    def __init__(self, node: KubeletNode, registry: HeldRegistry, turn: int) -> None:
        """Create the pod, and return when the runtime has half of the image."""
        self._node, self._registry = node, registry
        self.name = f"pulls-{turn}"
        image = busybox_image(extra={"turn": str(turn).encode()})
        self._image = registry.add(image, f"held:{turn}")
        node.apply(node.pod(self.name, FOREVER, {"image": self._image}))
        node.until(lambda: registry.offsets(self._image), f"the pull for {self.name}")

    def complete(self, changes: list[Change]) -> list[int]:
        """Release the image when it is pulled again; the pod then runs as if nothing had failed.

        Returns the byte of the layer at which each pull began.
        """
        node, name = self._node, self.name
        node.until(lambda: len(self._registry.offsets(self._image)) > 1, f"a second pull of {name}")
        self._registry.release(self._image)
        node.wait_ready(name)
        reported = [each.item["status"] for each in changes if each.name == name]
        statuses = [each for status in reported for each in status.get("containerStatuses") or ()]
        states = [each["state"] for each in statuses]
        waiting = {each["waiting"]["reason"] for each in states if "waiting" in each}
        assert waiting <= WAITING, waiting
        assert {status["phase"] for status in reported} <= {"Pending", "Running"}
        assert {each["restartCount"] for each in statuses} == {0}
        reasons = self._reasons()
        assert reasons.count("Pulling") == 2
        assert not {"Failed", "BackOff"} & {*reasons}, reasons
        offsets = self._registry.offsets(self._image)
        node.kubectl("delete", "pod", name, "--timeout=90s")
        return offsets

    def _reasons(self) -> list[str]:
        """The reasons of the pod's events."""
        own = f"--field-selector=involvedObject.name={self.name}"
        path = "-o=jsonpath={.items[*].reason}"
        return self._node.kubectl("get", "events", own, path).split()

"""Prepares the claims of pods, and gives their containers the devices.

Source: docs/reference/behaviour-resources.md, ru.
"""

from __future__ import annotations

from kubeletpy.api import types as api
from kubeletpy.dra.claims import ClaimProblem, container_uses, uses
from kubeletpy.pods.config_errors import ContainerConfigError
from kubeletpy.pods.pod import Pod
from kubeletpy.runtime_manager.additions import ContainerAdditions


class ClaimManager:
    """The claims of the pods of a node."""

    async def prepare(self, pod: Pod) -> None:
        """Have all claims of a pod prepared. Raises ClaimProblem."""
        names = ", ".join(each.claim for each in uses(pod))
        if names:
            raise ClaimProblem(f"claims {names}: this node has no DRA drivers")

    async def unprepare(self, pod: Pod) -> None:
        """Give back what was prepared for a pod alone. Raises ClaimProblem."""

    async def provide(
        self,
        pod: Pod,
        container: api.Container,
        pod_ips: tuple[str, ...],
        given: ContainerAdditions,
    ) -> ContainerAdditions:
        """Add the devices of its claims. Raises ContainerConfigError."""
        if container_uses(pod, container):
            raise ContainerConfigError("its resource claims are not prepared")
        return given

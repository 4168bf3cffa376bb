"""What some simulations give their agent besides runtime and API: real volumes, cgroups of pods."""

from __future__ import annotations

import random
from dataclasses import replace

from kubeletpy.parts import AgentParts
from kubeletpy.volumes.build import PodSurroundings
from kubeletpy.volumes.container_mounts import RuntimeFeatures
from tests.sim.client import Step
from tests.sim.pod_groups import GroupsOfOneLife, PodGroups


def with_volumes(parts: AgentParts, rng: random.Random) -> tuple[AgentParts, PodSurroundings]:
    """The parts with volumes below the root directory, and what must be closed with the agent."""
    surroundings = PodSurroundings(
        parts.root_dir / "pods",
        parts.kube_api,
        parts.clock,
        parts.seams,
        features=RuntimeFeatures(True, True, frozenset()),
        rng=rng,
    )
    made = replace(parts, seams=surroundings.seams, volumes=surroundings.volumes)
    return made, surroundings


def with_groups(parts: AgentParts, groups: PodGroups, step: Step) -> AgentParts:
    """The parts with a cgroup for each pod as a whole."""
    limits = GroupsOfOneLife(groups, step)
    seams = replace(parts.seams, cgroup_parent=groups.make, pod_limits=limits)
    return replace(parts, seams=seams)

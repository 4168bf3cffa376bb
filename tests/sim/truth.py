"""Record of what the runtime and the API's store really did: the ground for all invariants.

Only collects. Times are event-loop seconds.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import CONFIG_MIRROR
from tests.sim.records import Container

TERMINAL = ("Succeeded", "Failed")
STATUS_LISTS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


@dataclass(slots=True)
class Exit:
    """The end of a container that had run, or was about to."""

    container_id: str
    image: str
    code: int
    at: float
    requested: bool
    """It was stopped, and did not end by itself."""


@dataclass(slots=True)
class PodTruth:
    """One pod by uid, from its creation to long after its end."""

    uid: str
    name: str
    specs: list[JSON]
    """All versions of the spec."""
    created_at: float
    status: JSON = field(default_factory=dict)
    deleting: bool = False
    forced: bool = False
    """Its object was deleted without the node's consent."""
    released: bool = False
    """It had ended when a user deleted it: nobody waits for its sandbox then."""
    removed: bool = False
    evicted_at: float | None = None
    """When it was evicted because the node ran short of disk."""
    static: bool = False
    exits: dict[str, list[Exit]] = field(default_factory=dict)
    abandoned: set[str] = field(default_factory=set)
    """Containers whose start was canceled together with the agent: they never ran."""
    never_started: dict[str, int] = field(default_factory=dict)
    """Number of containers of a name that were removed unstarted: an attempt each."""
    reported: dict[str, int] = field(default_factory=dict)
    """Container id -> the exit code that the API has shown."""
    restarts: dict[str, int] = field(default_factory=dict)
    done_inits: set[tuple[str, str]] = field(default_factory=set)
    """(sandbox, init container) that has succeeded there, or as sidecar was started."""

    @property
    def spec(self) -> JSON:
        """The newest spec."""
        return self.specs[-1]

    @property
    def policy(self) -> str:
        """restartPolicy."""
        return str(self.spec.get("restartPolicy") or "Always")

    @property
    def terminal(self) -> bool:
        """Whether the API shows that it has ended."""
        return self.status.get("phase") in TERMINAL

    @property
    def inits(self) -> list[JSON]:
        """Init containers."""
        return self.spec.get("initContainers") or []

    def container(self, name: str) -> JSON | None:
        """A container of the newest spec."""
        for key in ("initContainers", "containers", "ephemeralContainers"):
            for container in self.spec.get(key) or ():
                if container["name"] == name:
                    return container  # type: ignore[no-any-return]
        return None

    @property
    def restarts_all(self) -> bool:
        """Whether an exit has matched a rule that restarts all containers."""
        return any(
            rule["action"] == "RestartAllContainers" and end.code in rule["exitCodes"]["values"]
            for container in self.spec["containers"]
            for rule in container.get("restartPolicyRules") or ()
            for end in self.exits.get(container["name"]) or ()
        )

    def images(self, name: str) -> set[str]:
        """Every image that the container ever had in the spec."""
        return {
            container["image"]
            for spec in self.specs
            for key in ("initContainers", "containers", "ephemeralContainers")
            for container in spec.get(key) or ()
            if container["name"] == name
        }


def is_sidecar(container: JSON) -> bool:
    """Whether an init container runs on beside the others."""
    return container.get("restartPolicy") == "Always"


def restarts_after(truth: PodTruth, container: JSON, code: int) -> bool:
    """Whether a container runs again after an exit."""
    policy = container.get("restartPolicy") or truth.policy
    if any(init["name"] == container["name"] for init in truth.inits):
        return policy != "Never" and (code != 0 or is_sidecar(container))
    return policy == "Always" or (policy == "OnFailure" and code != 0)


@dataclass(frozen=True, slots=True)
class ShownEnd:
    """An end of a container that a status shows."""

    name: str
    terminated: JSON
    earlier: bool
    """It is the lastState: another container came after it, or will."""
    followed: bool = False
    """It is the lastState, and the other container is shown."""


def ends_shown(status: JSON) -> list[ShownEnd]:
    """All ends of containers that a status shows."""
    return [
        ShownEnd(
            entry["name"],
            entry[which]["terminated"],
            which == "lastState",
            which == "lastState" and "waiting" not in (entry.get("state") or {}),
        )
        for key in STATUS_LISTS
        for entry in status.get(key) or ()
        for which in ("state", "lastState")
        if "terminated" in (entry.get(which) or {})
    ]


def short_id(container_id: object) -> str:
    """A container's id without the runtime's name."""
    return str(container_id or "").rpartition("//")[2]


class Truth:
    """All pods that ever existed."""

    def __init__(self) -> None:
        self.pods: dict[str, PodTruth] = {}
        self.began: dict[int, float] = {}
        """Life of the agent -> when it began."""
        self.booted_at = 0.0
        self.clock_set: list[tuple[float, float]] = []
        """When the node's wall clock was set, and by how many seconds."""

    def live(self) -> list[PodTruth]:
        """The pods whose objects exist."""
        return [pod for pod in self.pods.values() if not pod.removed]

    def api_change(self, kind: str, obj: JSON) -> PodTruth | None:
        """Take one change of a pod object; its record, None for mirrors."""
        meta: Any = obj["metadata"]
        if CONFIG_MIRROR in (meta.get("annotations") or {}):
            return None
        pod = self.pods.get(meta["uid"])
        if pod is None:
            now = asyncio.get_running_loop().time()
            pod = PodTruth(meta["uid"], meta["name"], [obj["spec"]], now)
            self.pods[pod.uid] = pod
        if pod.spec != obj["spec"]:
            pod.specs.append(obj["spec"])
        pod.status = obj.get("status") or {}
        pod.deleting = pod.deleting or bool(meta.get("deletionTimestamp"))
        pod.removed = kind == "DELETED"
        return pod

    def exited(self, container: Container) -> PodTruth | None:
        """A container has ended; the record of its pod."""
        pod = self.pods.get(container.uid)
        if pod is not None and container.abandoned:
            pod.abandoned.add(container.id)
        elif pod is not None:
            now = asyncio.get_running_loop().time()
            exits = pod.exits.setdefault(container.name, [])
            exits.append(
                Exit(container.id, container.image, container.exit_code, now, container.stop_asked)
            )
        return pod

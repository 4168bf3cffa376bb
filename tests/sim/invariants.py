"""Rules that must always hold, each checked at the moment it would be broken.

Every rule reads the truth (:mod:`.truth`), never the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kubeletpy.base.api.types import JSON
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy_up.storage.history import Change
from tests.sim import scripts
from tests.sim.history import History
from tests.sim.records import Container, Sandbox
from tests.sim.runtime import SimRuntime
from tests.sim.truth import (
    STATUS_LISTS,
    Exit,
    PodTruth,
    ShownEnd,
    Truth,
    ends_shown,
    is_sidecar,
    restarts_after,
    short_id,
)

BACKOFF_BASE, BACKOFF_MAX, BACKOFF_QUIET = 10.0, 300.0, 600.0
TOLERANCE = 1e-6
UNREPORTED_S = 5.0
"""Least seconds for which an evicted pod's dead containers wait for the API on a full disk."""


@dataclass(slots=True)
class _Delay:
    seconds: float
    raised_at: float


class Invariants:
    """Watches the runtime and the store of one world."""

    def __init__(
        self, truth: Truth, runtime: SimRuntime, history: History, life: Callable[[], int]
    ) -> None:
        self._truth = truth
        self._runtime = runtime
        self._history = history
        self._life = life
        self._delays: dict[tuple[object, ...], _Delay] = {}
        self._made_in: dict[str, int] = {}
        """Container id -> the life of the agent that had it made."""
        self._removed_unheard: dict[str, int] = {}
        """Containers removed from a full disk before the API had their end -> in which life of the
        agent."""
        self.evicts: Callable[[str], bool] = lambda uid: False
        """Whether the pod of a uid is stopped because it is evicted."""
        self.answers_since: Callable[[], float] | None = None
        """Since when the API answers, in event-loop seconds; inf: not now. None: no evictions."""
        runtime.observers.append(self.runtime_changed)

    # -- the runtime -------------------------------------------------------------------------

    def runtime_changed(self, what: str, whom: Container | Sandbox) -> None:
        """Check a change in the runtime."""
        if isinstance(whom, Sandbox):
            return
        pod = self._truth.pods.get(whom.uid)
        match what:
            case "create":
                self._made_in[whom.id] = self._life()
                if pod is not None:
                    self._may_use(pod, whom)
            case "start":
                self._one_of_each_name(whom)
                if pod is not None:
                    self._init_order(pod, whom)
                    self._backoff(pod, whom)
            case "exit":
                self._exit(whom)
            case "stop-asked" if whom.running:
                self._stop_is_justified(pod, whom)
            case "remove" if pod is not None:
                if whom.state == cri.CONTAINER_CREATED:
                    pod.never_started[whom.name] = pod.never_started.get(whom.name, 0) + 1
                self._exit_was_reported(pod, whom)

    def _may_use(self, pod: PodTruth, made: Container) -> None:
        if scripts.host(made.image) == scripts.SECRET and not pod.spec.get("imagePullSecrets"):
            self._history.violated(f"{made} has an image that its pod may not pull")

    def _one_of_each_name(self, started: Container) -> None:
        for other in self._runtime.running(started.uid):
            if other is not started and other.name == started.name:
                self._history.violated(f"two running containers: {other} and {started}")

    def _init_order(self, pod: PodTruth, started: Container) -> None:
        names = [init["name"] for init in pod.inits]
        sandbox = started.sandbox.id
        if any(c["name"] == started.name for c in pod.spec.get("ephemeralContainers") or ()):
            return
        before = names[: names.index(started.name)] if started.name in names else names
        for name in before:
            if (sandbox, name) not in pod.done_inits:
                self._history.violated(f"{started} started before init container {name} was done")
        own = pod.container(started.name)
        if own is not None and started.name in names and is_sidecar(own):
            pod.done_inits.add((sandbox, started.name))

    def _exit(self, ended: Container) -> None:
        pod = self._truth.exited(ended)
        if pod is not None and ended.exit_code == 0 and ended.started_at:
            pod.done_inits.add((ended.sandbox.id, ended.name))

    def _stop_is_justified(self, pod: PodTruth | None, victim: Container) -> None:
        if pod is None or pod.removed or pod.deleting or pod.terminal or pod.static:
            return
        if pod.restarts_all:
            return
        if not victim.sandbox.ready or self._newer_sandbox(victim.sandbox):
            return
        if pod.images(victim.name) != {victim.image}:
            return
        if self._has_ended(pod) or _restarts_to_resize(pod, victim.name):
            return
        if _deadline_passed(pod, self._truth.clock_set):
            return
        if self.evicts(pod.uid):
            return
        self._history.violated(f"{victim} was healthy and is stopped")

    def _newer_sandbox(self, sandbox: Sandbox) -> bool:
        return any(
            other.uid == sandbox.uid and other.number > sandbox.number
            for other in self._runtime.sandboxes.values()
        )

    def _has_ended(self, pod: PodTruth) -> bool:
        """Whether nothing is left to run but what only helps the others."""
        for init in pod.inits:
            ends = pod.exits.get(init["name"]) or []
            if ends and ends[-1].code != 0 and not restarts_after(pod, init, ends[-1].code):
                return True
        for container in pod.spec["containers"]:
            ends = pod.exits.get(container["name"]) or []
            if not ends or restarts_after(pod, container, ends[-1].code):
                return False
            if any(c.name == container["name"] for c in self._runtime.running(pod.uid)):
                return False
        return True

    def _backoff(self, pod: PodTruth, started: Container) -> None:
        now = asyncio.get_running_loop().time()
        ends = pod.exits.get(started.name) or []
        if not ends:
            return
        if ends[-1].container_id not in self._runtime.containers:
            if self._made_in.get(ends[-1].container_id) != self._made_in[started.id]:
                # the record went with its sandbox before this life of the agent started the
                # container again: nothing shows it the delay of an earlier life
                for key in [each for each in self._delays if each[:2] == (pod.uid, started.name)]:
                    del self._delays[key]
            return
        if ends[-1].requested or ends[-1].image != started.image:
            return  # replaced, not restarted after an end of its own
        # a container with other resources than before starts afresh, as one of another image does
        size = started.config.linux.resources.SerializeToString(deterministic=True)
        key = (pod.uid, started.name, started.image, size)
        delay = self._delays.get(key)
        end = ends[-1].at
        if delay is None or end - delay.raised_at > BACKOFF_QUIET:
            self._delays[key] = _Delay(BACKOFF_BASE, now)
            return
        before_boot = (
            self._truth.began[self._made_in[ends[-1].container_id]] < self._truth.booted_at
        )
        if before_boot or self._wall_times_mislead(ends, started):
            # the agent found any delay, or none, and raises it from there
            self._delays[key] = _Delay(BACKOFF_BASE, now)
            return
        if now - end < delay.seconds - TOLERANCE:
            self._history.violated(
                f"{started} restarted {now - end:.3f} s after its end, not {delay.seconds:.0f} s"
            )
        self._delays[key] = _Delay(min(delay.seconds * 2, BACKOFF_MAX), now)

    def _wall_times_mislead(self, ends: list[Exit], started: Container) -> bool:
        """Whether the agent has only records to take a delay from, and their times are wrong.

        An earlier life has started the container that ended. The wall clock was set between the
        previous end and the start of the current life. A step at any other time must not shorten
        a delay.
        """
        life = self._made_in[started.id]
        if self._made_in.get(ends[-1].container_id) == life:
            return False
        since = ends[-2].at if ends[1:] else 0.0
        return any(since <= at <= self._truth.began[life] for at, _ in self._truth.clock_set)

    def _exit_was_reported(self, pod: PodTruth, removed: Container) -> None:
        if pod.removed or pod.forced or not removed.started_at or removed.id in pod.reported:
            return
        if pod.restarts_all:
            return  # removed on purpose, and shown as that
        now = asyncio.get_running_loop().time()
        long_full = pod.evicted_at is not None and now - pod.evicted_at >= UNREPORTED_S
        unheard = self.answers_since is not None and now - self.answers_since() < UNREPORTED_S
        if long_full or unheard:
            # The disk is full and the API does not answer: it learns it later, from this life.
            self._removed_unheard[removed.id] = self._life()
            return
        newer = any(
            c.uid == removed.uid and c.name == removed.name and c.number > removed.number
            for c in self._runtime.containers.values()
        )
        is_init = any(init["name"] == removed.name for init in pod.inits)
        if not (newer or is_init):
            self._history.violated(f"{removed} removed before its exit code was reported")

    # -- the API -----------------------------------------------------------------------------

    def api_changed(self, change: Change) -> None:
        """Check a change in the API's store."""
        if change.resource != "pods":
            return
        pod = self._truth.api_change(change.type, change.object)
        if pod is None:
            return
        self._codes_are_true(pod)
        self._counts_never_fall(pod)
        self._only_what_ran_counts(pod)
        if change.type == "DELETED":
            self._history.note("api", f"pod {pod.name} {pod.uid[:8]} deleted")
            if not pod.forced:
                self._nothing_outlives(pod)
                self._all_exits_reported(pod)

    def _codes_are_true(self, pod: PodTruth) -> None:
        codes = {e.container_id: e.code for ends in pod.exits.values() for e in ends}
        for end in ends_shown(pod.status):
            container_id = short_id(end.terminated.get("containerID"))
            code = end.terminated.get("exitCode", 0)
            if end.terminated.get("reason") == "ContainerStatusUnknown":
                self._really_unknown(pod, end)
            elif container_id in codes:
                pod.reported[container_id] = code
                if code != codes[container_id]:
                    self._history.violated(
                        f"{end.name} of {pod.name} shown with exit code {code}, "
                        f"ended with {codes[container_id]}"
                    )
            elif any(c.id == container_id for c in self._runtime.running(pod.uid)):
                self._history.violated(f"{end.name} of {pod.name} shown as ended while it runs")

    def _really_unknown(self, pod: PodTruth, end: ShownEnd) -> None:
        """The runtime must have nothing of what is shown as lost."""
        records = sorted(
            (
                container
                for container in self._runtime.containers.values()
                if (container.uid, container.name) == (pod.uid, end.name)
            ),
            key=lambda container: container.number,
        )
        earlier = records[:-1] if end.followed else records
        known = earlier if end.earlier else records[-1:]
        if any(c.state != cri.CONTAINER_CREATED and not c.abandoned for c in known):
            self._history.violated(
                f"{end.name} of {pod.name} shown as lost, but the runtime has {known[-1]}"
            )

    def _counts_never_fall(self, pod: PodTruth) -> None:
        for key in STATUS_LISTS:
            for entry in pod.status.get(key) or ():
                count, before = entry.get("restartCount", 0), pod.restarts.get(entry["name"], 0)
                if count < before:
                    self._history.violated(
                        f"restartCount of {entry['name']} of {pod.name} fell: {before} -> {count}"
                    )
                pod.restarts[entry["name"]] = count

    def _only_what_ran_counts(self, pod: PodTruth) -> None:
        """A start that was canceled with the agent is no end of a container and no restart."""
        for end in ends_shown(pod.status):
            if short_id(end.terminated.get("containerID")) in pod.abandoned:
                self._history.violated(
                    f"{end.name} of {pod.name} shown as ended, but its start was abandoned"
                )
        if not pod.abandoned or self._runtime.has_lost:
            return
        for name, entry in entries(pod.status).items():
            ends = len(pod.exits.get(name) or ())
            if entry.get("restartCount", 0) > ends + pod.never_started.get(name, 0):
                self._history.violated(
                    f"{name} of {pod.name} shows {entry['restartCount']} restarts after {ends} ends"
                )
        failed = pod.status.get("phase") == "Failed" and not pod.status.get("reason")
        if failed and not pod.exits and not pod.deleting:
            self._history.violated(f"{pod.name} has failed without having run")

    def _nothing_outlives(self, pod: PodTruth) -> None:
        for container in self._runtime.running(pod.uid):
            self._history.violated(f"pod {pod.name} is deleted while {container} runs")
        if pod.released:
            return
        for sandbox in self._runtime.sandboxes.values():
            if sandbox.uid == pod.uid and sandbox.ready:
                self._history.violated(
                    f"pod {pod.name} is deleted while sandbox {sandbox.id} is up"
                )

    def _all_exits_reported(self, pod: PodTruth) -> None:
        init_names = {init["name"] for init in pod.inits}
        for name, ends in pod.exits.items():
            kept = ends[-1].container_id in self._runtime.containers
            if not kept and (name in init_names or pod.restarts_all):
                continue  # removed when a new sandbox made it run again, or all was restarted
            if self._removed_unheard.get(ends[-1].container_id, self._life()) != self._life():
                continue  # the agent that had it was killed before it could report it
            if ends[-1].container_id not in pod.reported:
                self._history.violated(
                    f"exit code {ends[-1].code} of {ends[-1].container_id} ({name} of {pod.name}) "
                    "was never reported"
                )


def _restarts_to_resize(pod: PodTruth, name: str) -> bool:
    """Whether a container was resized and its resize policy requires a restart."""
    versions = [
        container
        for spec in pod.specs
        for container in spec["containers"]
        if container["name"] == name
    ]
    wants = any(
        policy["restartPolicy"] == "RestartContainer"
        for version in versions
        for policy in version.get("resizePolicy") or ()
    )
    return wants and any(one.get("resources") != versions[0].get("resources") for one in versions)


def _deadline_passed(pod: PodTruth, clock_set: Iterable[tuple[float, float]]) -> bool:
    """Whether activeDeadlineSeconds may be over. It counts by the wall clock, since the start."""
    limit: int | None = pod.spec.get("activeDeadlineSeconds")
    if limit is None:
        return False
    steps = [seconds for at, seconds in clock_set if at >= pod.created_at]
    ahead = max(sum(steps[first:]) for first in range(len(steps) + 1))
    return asyncio.get_running_loop().time() - pod.created_at + ahead > limit - 1


def entries(status: JSON) -> dict[str, JSON]:
    """Container statuses of all kinds by name."""
    return {entry["name"]: entry for key in STATUS_LISTS for entry in status.get(key) or ()}

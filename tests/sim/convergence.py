"""Whether the node is where it should be: the runtime runs exactly what the API requests, and the
API shows exactly what the runtime runs.

Pure judgement over truth and runtime; an empty list of problems means converged.
"""

from __future__ import annotations

from kubeletpy.base.api.quantity import milli_value, value
from kubeletpy.base.api.types import JSON
from tests.sim import scripts
from tests.sim.invariants import entries
from tests.sim.records import Container
from tests.sim.runtime import SimRuntime
from tests.sim.truth import PodTruth, Truth, is_sidecar, restarts_after, short_id

TOO_BIG = "9"
"""More cpu than the node has."""
PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
LOOPS = "loops"
"""Outcome of a container that fails again and again."""
STAYS = "stays"
"""Outcome of a container that runs on."""
NEVER = "never starts"


def problems(truth: Truth, runtime: SimRuntime, generations: dict[str, int]) -> list[str]:
    """The differences that remain. ``generations``: uid -> metadata.generation."""
    found: list[str] = []
    for pod in truth.live():
        if pod.deleting:
            found.append(f"{pod.name} is still being deleted")
        elif not pod.terminal:
            found += [f"{pod.name}: {what}" for what in _pod_problems(pod, runtime)]
        elif any(c.running for c in runtime.containers.values() if c.uid == pod.uid):
            found.append(f"{pod.name} has ended and runs")
        seen = pod.status.get("observedGeneration", 0)
        if not (pod.deleting or pod.terminal) and seen != generations.get(pod.uid, 0):
            found.append(f"{pod.name} shows generation {seen}, not {generations.get(pod.uid)}")
    desired = {pod.uid for pod in truth.live()}
    for container in runtime.running():
        pod_truth = truth.pods.get(container.uid)
        static = pod_truth is None or pod_truth.static
        if container.uid not in desired and not static:
            found.append(f"{container} runs and no pod needs it")
    return found


def outcome(pod: PodTruth, container: JSON) -> str | int:
    """The long-run outcome of a container: an exit code, or one of the constants above."""
    image = container["image"]
    if not _can_be_had(pod, image):
        return NEVER
    if not scripts.script_of(image, 0).starts:
        return LOOPS if restarts_after(pod, container, 128) else 128
    if scripts.runs_on(image) and scripts.behaviour(image) != "flakyrun":
        return STAYS
    if scripts.behaviour(image).startswith("flaky"):
        if not restarts_after(pod, container, 1):
            return 1
        if scripts.behaviour(image) == "flakyrun":
            return STAYS
        return LOOPS if restarts_after(pod, container, 0) else 0
    code = scripts.script_of(image, 0).exit_code
    return LOOPS if restarts_after(pod, container, code) else code


def _can_be_had(pod: PodTruth, image: str) -> bool:
    host = scripts.host(image)
    if host == scripts.MISSING:
        return False
    return host != scripts.SECRET or bool(pod.spec.get("imagePullSecrets"))


def _pod_problems(pod: PodTruth, runtime: SimRuntime) -> list[str]:
    running = {c.name: c for c in runtime.running(pod.uid)}
    found = [f"{name} runs too often" for name in _doubled(runtime.running(pod.uid))]
    found += _reported_wrongly(pod, runtime)
    if _inits_stuck(pod, running, found):
        return found
    ended: list[int] = []
    for container in pod.spec["containers"]:
        what = _settled(pod, container, running)
        if what == STAYS:
            found += _should_run(pod, container, running.get(container["name"]))
        elif isinstance(what, int):
            exits = pod.exits.get(container["name"])
            started = what != scripts.script_of(container["image"], 0).exit_code or exits
            if not started or container["name"] in running:
                found.append(f"{container['name']} has not come to its end")
            else:
                ended.append(what)
    found += _phase_problems(pod, running, ended)
    return found


def _settled(pod: PodTruth, container: JSON, running: dict[str, Container]) -> str | int:
    """The outcome; a container that was killed for good in its one run stays ended."""
    exits = pod.exits.get(container["name"]) or []
    if exits and container["name"] not in running:
        code = exits[-1].code
        if not restarts_after(pod, container, code):
            return code
    return outcome(pod, container)


def _phase_problems(pod: PodTruth, running: dict[str, Container], ended: list[int]) -> list[str]:
    phase = pod.status.get("phase")
    if len(ended) == len(pod.spec["containers"]):
        return [f"all containers ended with {ended}, phase is {phase}"]
    outcomes = [_settled(pod, container, running) for container in pod.spec["containers"]]
    if NEVER not in outcomes and LOOPS not in outcomes and phase != RUNNING:
        return [f"phase is {phase}, not Running"]
    if all(what == STAYS for what in outcomes):
        ready = {c["type"]: c["status"] for c in pod.status.get("conditions") or ()}
        if ready.get("Ready") != "True":
            return [f"not Ready: {ready}"]
    return []


def _inits_stuck(pod: PodTruth, running: dict[str, Container], found: list[str]) -> bool:
    """Whether an init container holds the pod up; notes what should be otherwise."""
    for init in pod.inits:
        what = _settled(pod, init, running)
        if what == 0 or (is_sidecar(init) and what == STAYS):
            if is_sidecar(init):
                found += _should_run(pod, init, running.get(init["name"]))
            continue
        if what in (LOOPS, NEVER):
            if pod.status.get("phase") != PENDING and not _ran_before(pod):
                found.append(f"init {init['name']} {what}, phase is {pod.status.get('phase')}")
            return True
        if what == STAYS:
            found += _should_run(pod, init, running.get(init["name"]))
            return True
        found.append(f"init {init['name']} failed for good, phase is {pod.status.get('phase')}")
        return True
    return False


def _ran_before(pod: PodTruth) -> bool:
    return any(c["name"] in pod.exits for c in pod.spec["containers"])


def _should_run(pod: PodTruth, desired: JSON, runs: Container | None) -> list[str]:
    name = desired["name"]
    if runs is None:
        return [f"{name} does not run"]
    found = []
    if runs.image != desired["image"] and not any(i["name"] == name for i in pod.inits):
        found.append(f"{name} runs {runs.image}, not {desired['image']}")
    if not runs.sandbox.ready:
        found.append(f"{name} runs in a dead sandbox")
    found += _sized_wrongly(pod, desired, runs)
    entry = entries(pod.status).get(name) or {}
    if "running" not in (entry.get("state") or {}):
        found.append(f"{name} runs, shown as {entry.get('state')}")
    elif not entry.get("ready"):
        found.append(f"{name} runs, shown as not ready")
    return found


def _sized_wrongly(pod: PodTruth, desired: JSON, runs: Container) -> list[str]:
    """Whether a container has other resources than requested, or its status shows other ones."""
    requested = desired.get("resources")
    pending = condition(pod, "PodResizePending")
    if not requested or "limits" not in requested or pending:
        too_big = any(_requests_too_much(container) for container in pod.spec["containers"])
        return [] if too_big or not pending else [f"a resize waits: {pending}"]
    if _requests_too_much(desired):
        return ["an infeasible resize is not shown as pending"]
    found = []
    name, limits = desired["name"], requested["limits"]
    quota, memory = milli_value(limits["cpu"]) * 100, value(limits["memory"])
    has = runs.config.linux.resources
    if (has.cpu_quota, has.memory_limit_in_bytes) != (quota, memory):
        found.append(f"{name} has {has.cpu_quota} and {has.memory_limit_in_bytes}, not {requested}")
    reported = (entries(pod.status).get(name) or {}).get("resources")
    if reported != requested:
        found.append(f"{name} should have {requested}, shown {reported}")
    if doing := condition(pod, "PodResizeInProgress"):
        found.append(f"a resize is not done: {doing}")
    return found


def condition(pod: PodTruth, kind: str) -> JSON | None:
    """A condition that the API shows of a pod."""
    for one in pod.status.get("conditions") or ():
        if one["type"] == kind:
            return one  # type: ignore[no-any-return]
    return None


def _requests_too_much(container: JSON) -> bool:
    return ((container.get("resources") or {}).get("requests") or {}).get("cpu") == TOO_BIG


def _reported_wrongly(pod: PodTruth, runtime: SimRuntime) -> list[str]:
    """Whether the status disagrees with the newest record of a container."""
    found = []
    reported = entries(pod.status)
    for name, record in _newest(pod, runtime).items():
        entry = reported.get(name)
        if entry is None:
            found.append(f"{name} is not in the status")
            continue
        if short_id(entry.get("containerID")) != record.id:
            found.append(f"{name} is {record.id}, shown {entry.get('containerID')}")
        # a record that was removed before it could be reported keeps its number
        count = entry.get("restartCount", 0)
        if count < record.restarts:
            found.append(f"{name} restarted {record.restarts}, shown {count}")
    return found


def _newest(pod: PodTruth, runtime: SimRuntime) -> dict[str, Container]:
    newest: dict[str, Container] = {}
    for container in runtime.containers.values():
        if container.uid == pod.uid:
            known = newest.get(container.name)
            if known is None or container.number >= known.number:
                newest[container.name] = container
    return newest


def _doubled(containers: list[Container]) -> list[str]:
    names = [container.name for container in containers]
    return sorted({name for name in names if names.count(name) > 1})

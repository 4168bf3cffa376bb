"""Invariants of every plan, over generated pods and histories: a model runtime carries plans out.

The model behaves as a real runtime. The test fails if a plan starts a running container, or starts
one without a ready sandbox.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    ProbeOutcome,
    ProbeResults,
    SandboxStatus,
)
from kubeletpy.runtime_manager.names import container_hash
from kubeletpy.runtime_manager.plan.actions import PodActions
from kubeletpy.runtime_manager.plan.compute_actions import compute_pod_actions
from tests.kit.records import container, has, make_pod

STATES = list(ContainerState)
POLICIES = st.sampled_from(["Always", "OnFailure", "Never"])
OUTCOMES = st.sampled_from([None, *ProbeOutcome])
RULES = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}]


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    def one(name: str) -> dict[str, Any]:
        policy = draw(st.sampled_from([None, "Always", "OnFailure", "Never"]))
        fields: dict[str, Any] = {"restartPolicy": policy} if policy else {}
        if policy and draw(st.booleans()):
            fields["restartPolicyRules"] = RULES
        if draw(st.booleans()):
            fields |= {"startupProbe": {"exec": {}}, "livenessProbe": {"exec": {}}}
        return container(name, **fields)

    return make_pod(
        *(one(f"app-{i}") for i in range(draw(st.integers(1, 3)))),
        init=tuple(one(f"init-{i}") for i in range(draw(st.integers(0, 3)))),
        ephemeral=tuple(f"debug-{i}" for i in range(draw(st.integers(0, 1)))),
        policy=draw(POLICIES),
    )


@st.composite
def statuses(draw: st.DrawFn, pod: Pod) -> PodRuntimeStatus:
    records = []
    for _, spec in pod.all_containers():
        for age in range(draw(st.integers(0, 2))):
            state = draw(st.sampled_from(STATES)) if age == 0 else ContainerState.EXITED
            changed = draw(st.integers(0, 9)) == 0
            records.append(
                ContainerStatus(
                    id=f"{spec['name']}-{age}",
                    name=spec["name"],
                    state=state,
                    exit_code=draw(st.sampled_from([0, 1, 3])),
                    hash="changed" if changed else container_hash(spec),
                )
            )
    boxes = tuple(
        SandboxStatus(f"box-{i}", draw(st.booleans()), attempt=5 - i, ips=("10.0.0.2",))
        for i in range(draw(st.integers(0, 2)))
    )
    return has(*records, sandboxes=boxes)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Pod, PodRuntimeStatus, ProbeResults]:
    pod = draw(pods())
    status = draw(statuses(pod))
    results: dict[str, dict[str, ProbeOutcome]] = {"liveness": {}, "startup": {}}
    for record in status.containers:
        for kind in results.values():
            outcome = draw(OUTCOMES)
            if outcome is not None:
                kind[record.id] = outcome
    return pod, status, ProbeResults(**results)


@given(cases())
def test_a_plan_never_starts_what_it_does_not_stop_first(case: Any) -> None:
    pod, status, probes = case
    actions = compute_pod_actions(pod, status, probes)
    killed = {kill.id for kill in actions.containers_to_kill}
    for start in actions.starts:
        record = status.newest(start.name)
        may_run = record is not None and record.state in (
            ContainerState.RUNNING,
            ContainerState.UNKNOWN,
        )
        assert not may_run or actions.kill_pod or record.id in killed


@given(cases())
def test_a_killed_pod_starts_nothing_without_a_new_sandbox(case: Any) -> None:
    actions = compute_pod_actions(*case)
    if actions.kill_pod and not actions.create_sandbox:
        assert not actions.starts
    if actions.kill_pod:
        assert not actions.containers_to_kill
        assert actions.kill_pod_reason
        assert not actions.ephemeral_to_start


@given(cases())
def test_starts_are_unique_in_order_and_have_a_reason(case: Any) -> None:
    pod, status, probes = case
    actions = compute_pod_actions(pod, status, probes)
    order = [spec["name"] for spec in pod.init_containers]
    positions = [order.index(start.name) for start in actions.init_to_start]
    assert positions == sorted(set(positions))
    names = [start.name for start in actions.starts]
    assert len(names) == len(set(names))
    assert all(start.reason for start in actions.starts)
    assert len({kill.id for kill in actions.containers_to_kill}) == len(actions.containers_to_kill)


@given(cases())
def test_no_regular_container_starts_before_initialization_is_done(case: Any) -> None:
    pod, status, probes = case
    actions = compute_pod_actions(pod, status, probes)
    if not pod.init_containers or not actions.regular_to_start:
        return
    assert not actions.create_sandbox
    created = any(
        record is not None and record.state in (ContainerState.CREATED, ContainerState.RUNNING)
        for record in (status.newest(spec["name"]) for spec in pod.containers)
    )
    last = pod.init_containers[-1]
    record = status.newest(last["name"])
    up = record is not None and (
        record.state is ContainerState.RUNNING
        if is_sidecar(last)
        else record.state is ContainerState.EXITED and record.exit_code == 0
    )
    assert created or up


@given(cases())
def test_deciding_twice_gives_the_same_plan(case: Any) -> None:
    assert compute_pod_actions(*case) == compute_pod_actions(*case)


class ModelRuntime:
    """Carries plans out at once and without failures."""

    def __init__(self, pod: Pod, status: PodRuntimeStatus) -> None:
        self.pod = pod
        self.status = status
        self.made = 0

    def apply(self, actions: PodActions) -> None:
        if actions.kill_pod:
            self.stop(lambda _: True)
            boxes = tuple(replace(box, ready=False) for box in self.status.sandboxes)
            self.status = replace(self.status, sandboxes=boxes)
        killed = {kill.id for kill in actions.containers_to_kill}
        self.stop(lambda record: record.id in killed)
        if actions.create_sandbox:
            inits = {spec["name"] for spec in self.pod.init_containers}
            kept = tuple(c for c in self.status.containers if c.name not in inits)
            box = SandboxStatus(f"new-{actions.attempt}", True, actions.attempt, ips=("10.0.0.9",))
            self.status = replace(
                self.status, containers=kept, sandboxes=(box, *self.status.sandboxes)
            )
        for start in actions.starts:
            self.start(start.container)

    def stop(self, which: Any) -> None:
        open_states = (ContainerState.RUNNING, ContainerState.UNKNOWN, ContainerState.CREATED)
        self.status = replace(
            self.status,
            containers=tuple(
                replace(record, state=ContainerState.EXITED, exit_code=137)
                if which(record) and record.state in open_states
                else record
                for record in self.status.containers
            ),
        )

    def start(self, spec: Any) -> None:
        assert self.status.sandboxes[0].ready
        assert not any(c.running and c.name == spec["name"] for c in self.status.containers)
        self.made += 1
        new = ContainerStatus(
            f"{spec['name']}-new-{self.made}",
            spec["name"],
            ContainerState.RUNNING,
            hash=container_hash(spec),
        )
        self.status = replace(self.status, containers=(new, *self.status.containers))

    def finish_init_containers(self) -> None:
        names = {c["name"] for c in self.pod.init_containers if not is_sidecar(c)}
        self.status = replace(
            self.status,
            containers=tuple(
                replace(c, state=ContainerState.EXITED, exit_code=0)
                if c.name in names and c.running
                else c
                for c in self.status.containers
            ),
        )


def everything_is_well(status: PodRuntimeStatus) -> ProbeResults:
    well = {record.id: ProbeOutcome.SUCCESS for record in status.containers}
    return ProbeResults(liveness=well, startup=well)


@settings(max_examples=300)
@given(cases())
def test_carrying_plans_out_converges_and_then_nothing_is_left_to_do(case: Any) -> None:
    pod, status, probes = case
    runtime = ModelRuntime(pod, status)
    for _ in range(12):
        actions = compute_pod_actions(pod, runtime.status, probes)
        if actions.kill_pod and not actions.create_sandbox:
            runtime.apply(actions)
            assert not runtime.status.running_containers
            return  # the pod has ended; its worker terminates it
        if actions.nothing_to_do:
            break
        runtime.apply(actions)
        runtime.finish_init_containers()
        probes = everything_is_well(runtime.status)
    else:
        raise AssertionError(f"still busy: {actions}")
    assert runtime.status.running_containers or not runtime.status.containers
    again = compute_pod_actions(pod, runtime.status, everything_is_well(runtime.status))
    assert not again.kill_pod

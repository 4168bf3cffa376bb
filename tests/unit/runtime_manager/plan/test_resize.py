"""Which containers are resized, how, and in which order: tables of decisions."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import (
    ContainerStatus,
    Decision,
    KillReason,
    ProbeOutcome,
    ProbeResults,
    RuntimeResources,
)
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.plan.actions import PodActions
from kubeletpy.runtime_manager.plan.compute_actions import compute_pod_actions
from kubeletpy.runtime_manager.plan.resize import (
    UNKNOWN,
    ContainerResize,
    InEffect,
    Resizable,
    ResizableResource,
    effective_resources,
    merged,
    resizable,
    resize_in_progress,
)
from tests.kit.records import DEAD, container, exited, has, make_pod, running, sidecar

RESTART_CPU = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
RESTART_MEMORY = [
    {"resourceName": "cpu", "restartPolicy": "NotRequired"},
    {"resourceName": "memory", "restartPolicy": "RestartContainer"},
]


def res(
    cpu: str = "", memory: str = "", limit_cpu: str = "", limit_memory: str = "", **more: str
) -> api.ResourceRequirements:
    """Requests and limits; empty: none. ``more`` are further requests."""
    requests = {k: v for k, v in (("cpu", cpu), ("memory", memory), *more.items()) if v}
    limits = {k: v for k, v in (("cpu", limit_cpu), ("memory", limit_memory)) if v}
    return {"requests": requests, "limits": limits}


SMALL = res("100m", "64Mi", "200m", "128Mi")


def sized(name: str, resources: api.ResourceRequirements, **more: Any) -> dict[str, Any]:
    return container(name, resources=resources, **more)


def plan(
    pod: Pod, known: dict[str, api.ResourceRequirements], *records: ContainerStatus, **more: Any
) -> PodActions:
    status = has(*(records or (running("app"),)))
    probes = more.pop("probes", ProbeResults())
    return compute_pod_actions(pod, status, probes, in_effect=InEffect(known, **more))


def updates(actions: PodActions) -> dict[str, list[str]]:
    """Resource -> containers in order, without the empty ones."""
    return {
        resource.value: [update.name for update in actions.resize.updates(resource)]
        for resource in ResizableResource
        if actions.resize.updates(resource)
    }


@pytest.mark.parametrize(
    ("desired", "expected", "why"),
    [
        (SMALL, {}, ""),
        (res("0.1", "65536Ki", "0.2", "134217728"), {}, ""),
        (res("100m", "64Mi", "400m", "128Mi"), {"cpu": ["app"]}, "cpu limit 200m -> 400m"),
        (res("150m", "64Mi", "200m", "128Mi"), {"cpu": ["app"]}, "cpu request 100m -> 150m"),
        (res("100m", "64Mi", "200m", "1Gi"), {"memory": ["app"]}, "memory limit 128Mi -> 1Gi"),
        (res("100m", "32Mi", "200m", "128Mi"), {"memory": ["app"]}, "memory request 64Mi -> 32Mi"),
        (
            res("50m", "64Mi", "", "64Mi"),
            {"memory": ["app"], "cpu": ["app"]},
            "memory limit 128Mi -> 64Mi, cpu request 100m -> 50m, cpu limit 200m -> none",
        ),
        ({**SMALL, "requests": {**SMALL["requests"], "ephemeral-storage": "1Gi"}}, {}, ""),
        (res("nonsense", "64Mi"), {}, ""),
    ],
)
def test_updates_in_place(
    desired: api.ResourceRequirements, expected: dict[str, list[str]], why: str
) -> None:
    actions = plan(make_pod(sized("app", desired)), {"app": SMALL})
    assert updates(actions) == expected
    assert actions.nothing_to_do is (not expected)
    assert not actions.containers_to_kill
    assert not actions.regular_to_start
    if why:
        assert [(d.what, d.why) for d in actions.decisions] == [("resize container app", why)]


def test_resources_are_not_compared_unless_requested() -> None:
    pod = make_pod(sized("app", SMALL))
    assert compute_pod_actions(pod, has(running("app")), ProbeResults()).nothing_to_do


@pytest.mark.parametrize(
    ("policy", "desired", "restarts"),
    [
        (RESTART_MEMORY, res("100m", "64Mi", "200m", "1Gi"), True),
        (RESTART_MEMORY, res("100m", "80Mi", "200m", "128Mi"), True),
        (RESTART_MEMORY, res("100m", "64Mi", "1", "128Mi"), False),
        (RESTART_MEMORY, res("150m", "80Mi", "1", "128Mi"), True),
        (RESTART_CPU, res("100m", "64Mi", "200m", "1Gi"), False),
        (RESTART_CPU, res("150m", "64Mi", "200m", "128Mi"), True),
        (RESTART_CPU, SMALL, False),
    ],
)
def test_the_resize_policy_of_what_changes_decides_about_a_restart(
    policy: list[dict[str, str]], desired: api.ResourceRequirements, restarts: bool
) -> None:
    pod = make_pod(sized("app", desired, resizePolicy=policy), policy="Never")
    actions = plan(pod, {"app": SMALL})
    assert bool(actions.containers_to_kill) is restarts
    if restarts:
        (kill,) = actions.containers_to_kill
        assert kill.message == "Container app resize requires restart"
        assert kill.reason is KillReason.RESIZE
        assert [start.name for start in actions.regular_to_start] == ["app"]
        assert not updates(actions)
        assert actions.resize.pod == "app starts with other resources than before"
        assert not actions.kill_pod


def test_lower_limits_come_first() -> None:
    old = {name: res("100m", "64Mi", "200m", "128Mi") for name in "abcde"}
    pod = make_pod(
        sized("a", res("100m", "64Mi", "300m", "128Mi")),
        sized("b", res("100m", "64Mi", "150m", "256Mi")),
        sized("c", res("200m", "64Mi", "200m", "128Mi")),
        sized("d", res("50m", "64Mi", "200m", "64Mi")),
        sized("e", res("100m", "64Mi", "", "128Mi")),
    )
    actions = plan(pod, old, *(running(name) for name in "abcde"))
    assert updates(actions) == {"memory": ["d", "b"], "cpu": ["d", "b", "a", "c", "e"]}


def test_adding_a_limit_is_lowering_and_its_memory_is_checked() -> None:
    pod = make_pod(sized("app", res("100m", "64Mi", "100m", "64Mi")))
    (memory,) = plan(pod, {"app": res("100m", "64Mi")}).resize.memory
    assert memory.lowers
    assert memory.new_memory_limit == 64 << 20
    (cpu,) = plan(pod, {"app": res("100m", "64Mi")}).resize.cpu
    assert (cpu.lowers, cpu.new_memory_limit) == (True, 0)


def test_raising_memory_or_lowering_a_request_is_not_checked() -> None:
    known = {"app": SMALL}
    for desired in (res("100m", "64Mi", "200m", "1Gi"), res("100m", "32Mi", "200m", "128Mi")):
        (memory,) = plan(make_pod(sized("app", desired)), known).resize.memory
        assert memory.new_memory_limit == 0


# -- resources without a record -------------------------------------------------------------


def reporting(shares: int, quota: int, memory: int) -> ContainerStatus:
    resources = RuntimeResources(shares, quota, 100_000, memory or None)
    return replace(running("app"), resources=resources)


SMALL_TOLD = reporting(102, 20_000, 128 << 20)


def test_a_lost_record_is_found_again_in_the_runtime() -> None:
    pod = make_pod(sized("app", SMALL, resizePolicy=RESTART_MEMORY))
    actions = plan(pod, {}, SMALL_TOLD)
    assert actions.nothing_to_do
    assert actions.resize.adopted == (("app", SMALL),)


def test_an_update_whose_record_was_not_written_is_not_made_again() -> None:
    pod = make_pod(sized("app", SMALL, resizePolicy=RESTART_CPU))
    actions = plan(pod, {"app": res("50m", "64Mi", "100m", "128Mi")}, SMALL_TOLD)
    assert actions.nothing_to_do
    assert actions.resize.adopted == (("app", SMALL),)


def test_requests_that_a_runtime_cannot_report_count_as_missing() -> None:
    pod = make_pod(sized("app", SMALL))
    actions = plan(pod, {"app": res("100m", "32Mi", "200m", "128Mi")}, SMALL_TOLD)
    assert updates(actions) == {"memory": ["app"]}


def test_without_records_all_limits_are_set_again_without_a_restart() -> None:
    pod = make_pod(sized("app", SMALL, resizePolicy=RESTART_MEMORY))
    actions = plan(pod, {})
    assert updates(actions) == {"memory": ["app"], "cpu": ["app"]}
    assert actions.decisions[0].why == UNKNOWN
    assert not actions.containers_to_kill


def test_a_lost_record_and_a_runtime_that_has_something_else() -> None:
    other = reporting(102, 20_000, 64 << 20)
    in_place = plan(make_pod(sized("app", SMALL)), {}, other)
    assert updates(in_place) == {"memory": ["app"], "cpu": ["app"]}
    for there in (other, reporting(0, 20_000, 0)):
        restarted = plan(make_pod(sized("app", SMALL, resizePolicy=RESTART_MEMORY)), {}, there)
        assert [kill.name for kill in restarted.containers_to_kill] == ["app"]


def test_a_container_without_resources_needs_no_record() -> None:
    assert plan(make_pod("app"), {}).nothing_to_do


# -- which containers -----------------------------------------------------------------------


def test_only_what_runs_is_resized() -> None:
    pod = make_pod(sized("app", SMALL), sized("done", SMALL), policy="OnFailure")
    old = res("1", "1Gi", "1", "1Gi")
    actions = plan(pod, {"app": old, "done": old}, running("app"), exited("done"))
    assert updates(actions) == {"memory": ["app"], "cpu": ["app"]}


def test_a_failed_probe_comes_before_a_resize() -> None:
    pod = make_pod(sized("app", SMALL))
    probes = ProbeResults(liveness={"id-app": ProbeOutcome.FAILURE})
    actions = plan(pod, {"app": res("1")}, probes=probes)
    assert [kill.reason for kill in actions.containers_to_kill] == [KillReason.LIVENESS_PROBE]
    assert not updates(actions)
    assert actions.resize.pod == "app starts with other resources than before"


def test_a_new_image_wins_over_a_resize() -> None:
    pod = make_pod(sized("app", SMALL))
    actions = plan(pod, {"app": res("1")}, running("app", image="other:1"))
    assert [kill.reason for kill in actions.containers_to_kill] == [KillReason.DEFINITION_CHANGED]


def test_init_containers_and_sidecars() -> None:
    desired = res("200m", "64Mi", "200m", "128Mi")
    side = sidecar("side", resources=desired)
    pod = make_pod("app", init=(side, sized("first", desired)))
    known = {"side": SMALL, "first": SMALL}
    actions = plan(pod, known, running("side"), running("first"))
    assert updates(actions) == {"cpu": ["first", "side"]}
    assert not actions.init_to_start


def test_init_containers_that_have_what_they_should_have() -> None:
    pod = make_pod("app", init=(sidecar("side", resources=SMALL), sized("first", SMALL)))
    actions = plan(pod, {"side": SMALL, "first": SMALL}, running("side"), running("first"))
    assert not updates(actions)
    assert not actions.containers_to_kill


def test_a_sidecar_restarts_and_an_init_container_never_does() -> None:
    desired = res("200m", "64Mi", "200m", "128Mi")
    side = sidecar("side", resources=desired, resizePolicy=RESTART_CPU)
    pod = make_pod("app", init=(side, sized("first", desired, resizePolicy=RESTART_CPU)))
    actions = plan(pod, {"side": SMALL, "first": SMALL}, running("side"), running("first"))
    assert [kill.name for kill in actions.containers_to_kill] == ["side"]
    assert [start.name for start in actions.init_to_start] == ["side"]
    assert actions.containers_to_kill[0].message == "Container side resize requires restart"
    assert updates(actions) == {"cpu": ["first"]}


def test_a_pod_that_is_stopped_is_not_resized() -> None:
    pod = make_pod(
        "app", init=(sidecar("side", resources=res("1")), container("first")), policy="Never"
    )
    actions = plan(pod, {"side": SMALL}, running("side"), exited("first", code=1))
    assert actions.kill_pod
    assert actions.resize.empty


# -- the pod as a whole ---------------------------------------------------------------------


def test_a_crashed_container_that_comes_back_bigger_makes_its_pod_bigger() -> None:
    pod = make_pod(sized("app", res("1", "1Gi", "1", "1Gi")))
    actions = plan(pod, {"app": SMALL}, exited("app", code=137))
    assert actions.resize.pod == "app starts with other resources than before"
    assert ("set the limits of the pod", actions.resize.pod) in [
        (d.what, d.why) for d in actions.decisions
    ]
    assert plan(pod, {}, exited("app", code=137)).resize.empty
    odd = make_pod(sized("app", res("nonsense")))
    assert plan(odd, {"app": SMALL}, exited("app", code=137)).resize.empty


def test_a_new_sandbox_for_a_resized_pod() -> None:
    pod = make_pod(sized("app", SMALL))
    status = has(exited("app"), sandboxes=(DEAD,))
    actions = compute_pod_actions(
        pod, status, ProbeResults(), in_effect=InEffect({"app": res("1")})
    )
    assert actions.create_sandbox
    assert actions.resize.pod


def test_limits_of_the_pod_that_were_left_wrong_are_set_right() -> None:
    pod = make_pod(sized("app", SMALL))
    actions = plan(pod, {"app": SMALL}, pod_limits_differ="the pod's cgroup: memory limit 1 -> 2")
    assert not actions.nothing_to_do
    assert not updates(actions)
    assert actions.resize.pod == "the pod's cgroup: memory limit 1 -> 2"


def test_pod_level_resources() -> None:
    whole = res("2", "1Gi", "2", "1Gi")
    pod = make_pod(sized("app", SMALL), resources=whole)
    unchanged = plan(pod, {"app": SMALL}, pod_level=res("2000m", "1024Mi", "2", "1Gi"))
    assert unchanged.nothing_to_do
    changed = plan(pod, {"app": SMALL}, pod_level=SMALL)
    assert changed.resize.pod == "the resources of the pod as a whole have changed"
    assert changed.resize.pod_level == whole
    lost = plan(pod, {"app": SMALL})
    assert lost.nothing_to_do, "its cgroup was read"
    assert lost.resize.pod_level == whole
    pages: api.ResourceRequirements = {"limits": {"hugepages-2Mi": "2Mi"}}
    of_pages = plan(make_pod(sized("app", SMALL), resources=pages), {"app": SMALL})
    assert of_pages.resize.pod_level == pages
    none = plan(make_pod(sized("app", SMALL), resources={}), {"app": SMALL}, pod_level=whole)
    assert none.resize.pod_level is None


def test_absent_resources_count_as_zero() -> None:
    assert resizable({}) == resizable(None) == Resizable(0, 0, 0, 0)
    assert effective_resources(make_pod("app"), make_pod("app").containers[0]) == {}
    of_cpu = make_pod("app", resources=res(limit_cpu="2"))
    assert effective_resources(of_cpu, of_cpu.containers[0]) == {"limits": {"cpu": "2"}}


def test_decisions_of_a_resize() -> None:
    assert ContainerResize("app", "why").decisions == ()
    restart = Decision("restart container app with new resources", "why")
    assert ContainerResize("app", "why", restart=True).decisions == (restart,)


def test_a_container_without_limits_has_those_of_its_pod() -> None:
    own = container("app", resources=res("100m", "64Mi", "0"))
    pod = make_pod(own, resources=res("1", "1Gi", "2", "1Gi"))
    supplied = effective_resources(pod, pod.containers[0])
    assert supplied["limits"] == {"cpu": "2", "memory": "1Gi"}
    assert supplied["requests"] == {"cpu": "100m", "memory": "64Mi"}
    assert own["resources"]["limits"] == {"cpu": "0"}, "the pod's object stays as it was"
    assert plan(pod, {"app": supplied}, pod_level=pod.spec["resources"]).nothing_to_do
    smaller: api.ResourceRequirements = {**supplied, "limits": {"cpu": "1", "memory": "1Gi"}}
    actions = plan(pod, {"app": smaller}, pod_level=pod.spec["resources"])
    assert updates(actions) == {"cpu": ["app"]}


# -- progress and arithmetic ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"app": SMALL, "side": SMALL, "first": SMALL}, False),
        ({"app": res("1"), "side": SMALL, "first": SMALL}, True),
        ({"app": SMALL, "side": res("1"), "first": SMALL}, True),
        ({"app": SMALL, "side": SMALL, "first": res("1")}, False),
        ({"app": SMALL, "side": SMALL, "first": SMALL, "done": res("1")}, False),
    ],
)
def test_progress(known: dict[str, api.ResourceRequirements], expected: bool) -> None:
    pod = make_pod(
        sized("app", SMALL),
        sized("done", SMALL),
        init=(sidecar("side", resources=SMALL), sized("first", SMALL)),
    )
    status = has(running("app"), running("side"), running("first"), exited("done"))
    assert resize_in_progress(pod, status, InEffect(known)) is expected
    assert resize_in_progress(pod, status, InEffect(known, pod_limits_differ="x"))


def test_progress_without_records_and_at_pod_level() -> None:
    pod = make_pod(sized("app", SMALL))
    assert not resize_in_progress(pod, has(SMALL_TOLD), InEffect({}))
    debugged = make_pod(sized("app", SMALL), ephemeral=("debug",))
    known = {"app": SMALL, "debug": SMALL}
    status = has(running("app"), running("debug"))
    assert not resize_in_progress(debugged, status, InEffect(known))
    whole = res("2", "1Gi", "2", "1Gi")
    pod = make_pod(sized("app", SMALL), resources=whole)
    for there, expected in ((None, False), (whole, False), (SMALL, True)):
        in_effect = InEffect({"app": SMALL}, pod_level=there)
        assert resize_in_progress(pod, has(running("app")), in_effect) is expected


def test_one_resource_after_the_other() -> None:
    desired: api.ResourceRequirements = {
        "requests": {"cpu": "1", "memory": "2Gi", "example.com/x": "1"},
        "limits": {"cpu": "2"},
    }
    first = merged(SMALL, desired, ResizableResource.MEMORY)
    assert first == {
        "requests": {"cpu": "100m", "memory": "2Gi", "example.com/x": "1"},
        "limits": {"cpu": "200m"},
    }
    assert merged(first, desired, ResizableResource.CPU) == desired
    assert resizable(merged(None, desired, ResizableResource.MEMORY)).cpu_request == 0


def test_no_shares_by_cfs_are_compared_when_quotas_are_off() -> None:
    settings = RuntimeSettings(cpu_cfs_quota=False)
    actions = plan(
        make_pod(sized("app", SMALL)), {}, reporting(102, 0, 128 << 20), settings=settings
    )
    assert actions.nothing_to_do


REQUEST = res("100m", "64Mi", "", "")


@pytest.mark.parametrize(
    ("reported", "desired", "adopted"),
    [
        (RuntimeResources(102, 20_000, 100_000, 128 << 20), SMALL, True),
        (RuntimeResources(103, 20_000, 100_000, 128 << 20), SMALL, False),
        (RuntimeResources(102, 20_001, 100_000, 128 << 20), SMALL, False),
        (RuntimeResources(102, 20_000, 100_000, 129 << 20), SMALL, False),
        (RuntimeResources(102, 20_000, 100_000, None), SMALL, False),
        # a field that it does not report is not limited
        (RuntimeResources(102), REQUEST, True),
        (RuntimeResources(102, -1, 100_000, -1), REQUEST, True),
        (RuntimeResources(102, None, None, 5), REQUEST, False),
        (RuntimeResources(None, None, None, 128 << 20), res("", "", "", "128Mi"), True),
        (RuntimeResources(1, 20_000), res("1m", "", "200m", ""), True),
        (RuntimeResources(None, 20_000), res("100m", "", "200m", ""), False),
        # it reports nothing at all
        (RuntimeResources(), REQUEST, False),
        (RuntimeResources(cpu_period=100_000), res("", "64Mi", "", ""), False),
        (None, REQUEST, False),
    ],
)
def test_resources_reported_by_the_runtime_are_adopted_if_they_match(
    reported: RuntimeResources | None, desired: api.ResourceRequirements, adopted: bool
) -> None:
    actions = plan(make_pod(sized("app", desired)), {}, replace(running("app"), resources=reported))
    assert actions.resize.adopted == ((("app", desired),) if adopted else ())
    assert actions.nothing_to_do is adopted

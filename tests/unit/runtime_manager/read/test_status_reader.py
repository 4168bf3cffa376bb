"""Answers of the runtime, valid or not, read as a pod status."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.clock import steady_ns
from kubeletpy.base.structs import replace
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    RuntimeHealth,
    RuntimeResources,
    RuntimeUser,
    SandboxStatus,
)
from kubeletpy.remote.errors import Code, Unavailable
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.names import (
    CONTAINER_NAME,
    POD_NAME,
    POD_NAMESPACE,
    POD_UID,
    TERMINATION_MESSAGE_PATH,
    TERMINATION_MESSAGE_POLICY,
)
from kubeletpy.runtime_manager.read import status_source
from kubeletpy.runtime_manager.read.status_reader import (
    MOST_FAILED,
    OwnStarts,
    PodIdentity,
    ReadContainer,
    health_from_conditions,
    is_abandoned_start,
    pod_status_from_cri,
    sandbox_from_list,
    sort_containers,
    sort_sandboxes,
    summaries_from_lists,
)
from kubeletpy.runtime_manager.read.status_source import READ_AT_ONCE, MessageRoots, StatusSource
from tests.kit.records import make_pod
from tests.kit.runtime import FakeNode, now
from tests.kit.virtual_time import LoopClock

pytestmark = pytest.mark.virtual_time

IDENTITY = PodIdentity("u", "web", "prod")
LABELS = {POD_UID: "u", POD_NAME: "web", POD_NAMESPACE: "prod"}


def read(status: cri.ContainerStatus, message: str = "") -> PodRuntimeStatus:
    return pod_status_from_cri(IDENTITY, [], [ReadContainer(status, "s", message)], 1)


def test_the_attempt_decides_after_the_clock_was_set_back() -> None:
    exited = ContainerState.EXITED
    first, second = (
        ContainerStatus("c0", "main", exited, created_at=900),
        ContainerStatus("c1", "main", exited, created_at=100, restart_count=1),
    )
    assert sort_containers([first, second]) == (second, first)
    assert sort_containers([second, replace(second, id="c2", created_at=101)])[0].id == "c2"
    before, after = (
        SandboxStatus("s0", False, created_at=900),
        SandboxStatus("s1", True, attempt=1, created_at=100),
    )
    assert sort_sandboxes([before, after]) == (after, before)
    assert sort_sandboxes([after, replace(after, id="s2", created_at=101)])[0].id == "s2"


def test_sandboxes_newest_first_and_their_addresses() -> None:
    def sandbox(name: str, created: int, ready: bool, ip: str, **more: Any) -> cri.PodSandboxStatus:
        return cri.PodSandboxStatus(
            id=name,
            created_at=created,
            state=cri.SANDBOX_READY if ready else cri.SANDBOX_NOTREADY,
            network=cri.PodSandboxNetworkStatus(
                ip=ip, additional_ips=[cri.PodIP(ip="fd00::1"), cri.PodIP(ip="nonsense")]
            ),
            labels={**LABELS, "app": "x"},
            **more,
        )

    old = sandbox("old", 1, True, "10.0.0.1")
    new = sandbox("new", 2, False, "10.0.0.2")
    status = pod_status_from_cri(IDENTITY, [old, new, old, cri.PodSandboxStatus()], [], 7)
    assert [s.id for s in status.sandboxes] == ["new", "old"]
    assert status.ips == ("10.0.0.1", "fd00::1")
    assert status.labels == {"app": "x"}
    assert status.observed_at == 7
    host = cri.PodSandboxStatus(id="h")
    host.linux.namespaces.options.network = cri.NODE
    (only,) = pod_status_from_cri(IDENTITY, [host], [], 0).sandboxes
    assert (only.host_network, only.has_network, only.ips) == (True, False, ())


def test_where_a_pod_came_from() -> None:
    says = {"kubernetes.io/config.source": "file"}
    silent, new = cri.PodSandbox(id="a"), cri.PodSandboxStatus(id="c", created_at=3)
    old = cri.PodSandbox(id="b", created_at=2, annotations=says)
    found = pod_status_from_cri(
        IDENTITY, [sandbox_from_list(silent), sandbox_from_list(old), new], [], 0
    )
    assert found.source == "file"
    assert pod_status_from_cri(IDENTITY, [new], [], 0).source == ""


@pytest.mark.parametrize(
    "status",
    [
        cri.ContainerStatus(),
        cri.ContainerStatus(id="c"),
        cri.ContainerStatus(metadata=cri.ContainerMetadata(name="a")),
        cri.ContainerStatus(id="c", labels={POD_UID: "other", CONTAINER_NAME: "a"}),
    ],
)
def test_records_that_are_left_out(status: cri.ContainerStatus) -> None:
    assert read(status).containers == ()


def test_nonsense_values() -> None:
    status = cri.ContainerStatus(
        id="c",
        metadata=cri.ContainerMetadata(name="a", attempt=2**32 - 1),
        state=cast(Any, 99),
        created_at=-(2**62),
        started_at=-1,
        finished_at=2**62,
        annotations={"io.kubernetes.container.restartCount": "many"},
    )
    (container,) = read(status).containers
    assert container.state is ContainerState.UNKNOWN
    assert (container.created_at, container.started_at, container.finished_at) == (0, 0, 0)
    assert container.restart_count == 2**31 - 1


def test_summaries() -> None:
    found = summaries_from_lists(
        [cri.PodSandbox(id="s", labels=LABELS, state=cri.SANDBOX_READY), cri.PodSandbox(id="x")],
        [
            cri.Container(id="c", labels={POD_UID: "v"}, state=cri.CONTAINER_EXITED),
            cri.Container(id="d", labels=LABELS, state=cri.CONTAINER_RUNNING),
            cri.Container(id="e"),
        ],
    )
    assert [(p.uid, dict(p.sandboxes), dict(p.containers)) for p in found] == [
        ("u", {"s": True}, {"d": ContainerState.RUNNING}),
        ("v", {}, {"c": ContainerState.EXITED}),
    ]


def test_health() -> None:
    def condition(kind: str, status: bool) -> cri.RuntimeCondition:
        return cri.RuntimeCondition(type=kind, status=status, reason="R", message="M")

    good = health_from_conditions(
        [condition("RuntimeReady", True), condition("NetworkReady", True)]
    )
    assert (good.runtime_ready, good.network_ready, good.message) == (True, True, "")
    bad = health_from_conditions([condition("NetworkReady", False)])
    assert not bad.runtime_ready
    assert bad.message == "runtime does not report RuntimeReady"
    assert bad.network_message == "NetworkReady=false reason:R message:M"
    neither = [condition("RuntimeReady", False), condition("NetworkReady", False)]
    assert health_from_conditions(neither) == RuntimeHealth(
        runtime_ready=False,
        network_ready=False,
        message="RuntimeReady=false reason:R message:M",
        network_message="NetworkReady=false reason:R message:M",
    )


async def test_unreachable_runtime_is_an_answer(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    node.runtime.errors["status"] = Unavailable("Status", "no socket")
    health = await node.manager.source.health()
    assert not health.runtime_ready
    assert "no socket" in health.message


async def test_read_from_the_runtime(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("a", "b")
    await node.sync(pod)
    await node.runtime.stop_pod_sandbox("sandbox-web-0")
    await node.refresh(pod)
    await node.sync(pod)
    before = len(node.runtime.calls)
    status = await node.refresh(pod)
    assert [c.sandbox_id for c in status.containers][-1] == "sandbox-web-0"
    assert "pod_sandbox_status sandbox-web-0" not in node.runtime.calls[before:]
    assert {c.name for c in status.running_containers} == {"a", "b"}


async def test_records_that_vanish_while_we_read(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod()
    await node.sync(pod)
    node.runtime.seconds["list_containers"] = 1
    reading = asyncio.create_task(node.refresh(pod))
    node.runtime.seconds["container_status"] = 1
    await asyncio.sleep(1.5)
    node.runtime.containers.clear()
    node.runtime.sandboxes.clear()
    assert (await reading).containers == ()


def event(created_at: int, sandbox: str = "s2", **container: Any) -> cri.ContainerEventResponse:
    return cri.ContainerEventResponse(
        created_at=created_at,
        pod_sandbox_status=cri.PodSandboxStatus(
            id=sandbox, created_at=2, labels=LABELS, state=cri.SANDBOX_READY
        ),
        containers_statuses=[
            cri.ContainerStatus(
                id="c2", metadata=cri.ContainerMetadata(name="a"), created_at=3, **container
            )
        ],
    )


async def test_events() -> None:
    source = StatusSource(cast(Any, None), LoopClock(), MessageRoots("/r", "/l"))
    status = await source.event_to_status(event(now()))
    assert status is not None
    assert (status.uid, status.name, status.namespace) == ("u", "web", "prod")
    assert status.observed_at == steady_ns()
    assert [c.id for c in status.containers] == ["c2"]
    for nonsense in (0, -(2**62), now() + 3600 * 10**9, 2**62):
        assert await source.event_to_status(event(nonsense)) is None
    assert await source.event_to_status(cri.ContainerEventResponse(created_at=now())) is None
    unlabelled = event(now())
    unlabelled.pod_sandbox_status.labels.clear()
    assert await source.event_to_status(unlabelled) is None


@pytest.mark.parametrize(
    ("policy", "code", "messages"),
    [
        ("File", 3, ["first"]),
        ("FallbackToLogsOnError", 0, ["first"]),
        ("FallbackToLogsOnError", 3, ["first", "second"]),
    ],
)
async def test_the_message_of_a_known_end_is_not_read_again_unless_it_may_be_in_the_log(
    policy: str, code: int, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter(("first", "second"))
    monkeypatch.setattr(status_source, "read_termination_message", lambda *_: next(found))
    source = StatusSource(cast(Any, None), LoopClock(), MessageRoots("/r", "/l"))
    seen = None
    reported = []
    for _ in range(2):
        ended = event(now(), state=cri.CONTAINER_EXITED, finished_at=5, exit_code=code)
        annotations = ended.containers_statuses[0].annotations
        annotations[TERMINATION_MESSAGE_PATH] = "/dev/termination-log"
        annotations[TERMINATION_MESSAGE_POLICY] = policy
        seen = await source.event_to_status(ended, seen)
        assert seen is not None
        reported.append(seen.containers[0].message)
    assert list(dict.fromkeys(reported)) == messages


async def test_an_event_of_many_containers_is_read_in_several_turns() -> None:
    """1,000 ephemeral containers held the event loop for 60 ms at each event."""
    source = StatusSource(cast(Any, None), LoopClock(), MessageRoots("/r", "/l"))
    many = event(now())
    first = many.containers_statuses[0]
    for number in range(1, 1000):
        another = many.containers_statuses.add()
        another.CopyFrom(first)
        another.id = f"c{number + 2}"
    reading = asyncio.ensure_future(source.event_to_status(many))
    turns = 0
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    status = await reading
    assert status is not None
    assert len(status.containers) == 1000
    assert turns >= 1000 / READ_AT_ONCE


async def test_an_event_speaks_of_one_sandbox_only() -> None:
    source = StatusSource(cast(Any, None), LoopClock(), MessageRoots("/r", "/l"))
    before = pod_status_from_cri(
        IDENTITY,
        [cri.PodSandboxStatus(id="s1", created_at=1), cri.PodSandboxStatus(id="s2", created_at=2)],
        [
            ReadContainer(
                cri.ContainerStatus(
                    id=name, metadata=cri.ContainerMetadata(name="a"), created_at=n
                ),
                sandbox,
            )
            for n, (name, sandbox) in enumerate([("c1", "s1"), ("gone", "s2"), ("c2", "s2")])
        ],
        1,
    )
    after = await source.event_to_status(event(now(), state=cri.CONTAINER_EXITED), before)
    assert after is not None
    assert [s.id for s in after.sandboxes] == ["s2", "s1"]
    assert [(c.id, c.state) for c in after.containers] == [
        ("c2", ContainerState.EXITED),
        ("c1", ContainerState.CREATED),
    ]


ASKED: dict[str, Any] = {
    "id": "c",
    "metadata": cri.ContainerMetadata(name="meta", attempt=3),
    "created_at": 5,
    "started_at": 6,
    "finished_at": 7,
    "exit_code": 2,
    "reason": "Error",
    "message": "runtime",
    "image": cri.ImageSpec(image="app:1"),
    "image_ref": "app@sha256:1",
    "image_id": "sha256:2",
    "log_path": "/logs/app/3.log",
    "labels": {CONTAINER_NAME: "app", POD_UID: "u"},
    "annotations": {
        "io.kubernetes.container.hash": "ab",
        "io.kubernetes.container.restartCount": "4",
    },
}


def expected(state: ContainerState, **fields: Any) -> ContainerStatus:
    whole = ContainerStatus(
        "c", "app", state, sandbox_id="s", created_at=5, image="app:1", image_id="sha256:2",
        image_ref="app@sha256:1", hash="ab", restart_count=4, attempt=3,
        log_path="/logs/app/3.log",
    )  # fmt: skip
    return replace(whole, **fields)


ENDED = {
    "started_at": 6, "finished_at": 7, "exit_code": 2, "reason": "Error",
    "message": "runtime: own",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"state": cri.CONTAINER_EXITED}, expected(ContainerState.EXITED, **ENDED)),
        ({"state": cri.CONTAINER_RUNNING}, expected(ContainerState.RUNNING, started_at=6)),
        ({"state": cri.CONTAINER_CREATED}, expected(ContainerState.CREATED)),
        ({"state": cri.CONTAINER_UNKNOWN}, expected(ContainerState.UNKNOWN, started_at=6)),
        (
            {"state": cri.CONTAINER_EXITED, "message": "", "image_id": "", "annotations": {}},
            expected(
                ContainerState.EXITED,
                **{**ENDED, "message": "own"},
                image_id="app@sha256:1", hash="", restart_count=3,
            ),
        ),
        (
            {
                "state": cri.CONTAINER_RUNNING,
                "labels": {},
                "resources": cri.ContainerResources(
                    linux=cri.LinuxContainerResources(cpu_shares=512, memory_limit_in_bytes=9)
                ),
            },
            expected(
                ContainerState.RUNNING,
                started_at=6,
                name="meta",
                resources=RuntimeResources(512, None, None, 9),
            ),
        ),
        (
            {
                "state": cri.CONTAINER_RUNNING,
                "user": cri.ContainerUser(
                    linux=cri.LinuxContainerUser(uid=1, gid=2, supplemental_groups=[3])
                ),
                "resources": cri.ContainerResources(
                    linux=cri.LinuxContainerResources(cpu_quota=5, cpu_period=6)
                ),
            },
            expected(
                ContainerState.RUNNING,
                started_at=6,
                user=RuntimeUser(1, 2, (3,)),
                resources=RuntimeResources(None, 5, 6, None),
            ),
        ),
        (
            {
                "state": cri.CONTAINER_RUNNING,
                "user": cri.ContainerUser(),
                "resources": cri.ContainerResources(),
            },
            expected(ContainerState.RUNNING, started_at=6),
        ),
    ],
)  # fmt: skip
def test_a_complete_container(changes: dict[str, Any], found: ContainerStatus) -> None:
    assert read(cri.ContainerStatus(**{**ASKED, **changes}), "own").containers == (found,)


@pytest.mark.parametrize(
    ("recorded", "count"), [("0", 0), ("2", 2), ("", 3), ("many", 3), ("-1", 3), (None, 3)]
)
def test_restarts_are_those_recorded_or_the_attempt(recorded: str | None, count: int) -> None:
    annotations = {} if recorded is None else {"io.kubernetes.container.restartCount": recorded}
    (found,) = read(cri.ContainerStatus(**{**ASKED, "annotations": annotations})).containers
    assert (found.restart_count, found.attempt) == (count, 3)


def test_a_start_that_was_abandoned_has_neither_started_nor_ended() -> None:
    status = cri.ContainerStatus(**{**ASKED, "state": cri.CONTAINER_EXITED})
    record = ReadContainer(status, "s", start_abandoned=True)
    assert pod_status_from_cri(IDENTITY, [], [record], 1).containers == (
        expected(ContainerState.CREATED),
    )


def test_a_complete_sandbox() -> None:
    status = cri.PodSandboxStatus(
        id="s", state=cri.SANDBOX_READY, created_at=5, runtime_handler="kata",
        metadata=cri.PodSandboxMetadata(attempt=2),
        network=cri.PodSandboxNetworkStatus(ip="10.0.0.1"),
        annotations={"kubernetes.io/config.source": "file"},
    )  # fmt: skip
    whole = SandboxStatus(
        "s", True, attempt=2, created_at=5, has_network=True, ips=("10.0.0.1",),
        runtime_handler="kata", source="file",
    )  # fmt: skip
    assert pod_status_from_cri(IDENTITY, [status], [], 0).sandboxes == (whole,)
    item = cri.PodSandbox(
        id="s", state=cri.SANDBOX_NOTREADY, created_at=-1, runtime_handler="kata",
        metadata=cri.PodSandboxMetadata(attempt=2),
    )  # fmt: skip
    assert sandbox_from_list(item) == SandboxStatus("s", False, attempt=2, runtime_handler="kata")


def test_missing_conditions_are_not_met() -> None:
    assert health_from_conditions([]) == RuntimeHealth(
        False, False, "runtime does not report RuntimeReady", "runtime does not report NetworkReady"
    )


# Which failed starts the agent itself caused, by messages recorded from real runtimes.

TASK = "failed to create containerd task: failed to"
RUNC = (
    f"{TASK} create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process:"
)


def ended(message: str, **changes: Any) -> cri.ContainerStatus:
    """A start that containerd ended with an error."""
    fields = {
        "id": "c",
        "state": cri.CONTAINER_EXITED,
        "reason": "StartError",
        "exit_code": 128,
        "finished_at": 7,
        "message": message,
        **changes,
    }
    return cri.ContainerStatus(**fields)


@pytest.mark.parametrize(
    "message",
    [
        f"{TASK} create shim task: context canceled",  # containerd 2.1
        'failed to start containerd task "c": context canceled',
        f"{TASK} create shim task: context canceled: unknown",  # containerd 1.6
        'failed to start containerd task "c": context canceled: unknown',
        f"{TASK} start shim: start failed: : context canceled",
        f"{TASK} start shim: start failed: : signal: killed: unknown",
        f"{TASK} get task pid: context canceled: unknown",
        "context canceled",
    ],
)
def test_a_canceled_call_is_no_end_of_the_container(message: str) -> None:
    assert is_abandoned_start(ended(message))


@pytest.mark.parametrize(
    "message",
    [
        "",
        f'{RUNC} exec: "context canceled": executable file not found in $PATH',
        f'{RUNC} exec: "context canceled": executable file not found in $PATH: unknown',
        f'{RUNC} exec: "/x: context canceled": stat /x: context canceled: no such file or '
        "directory: unknown",
        f"{TASK} create shim task: context deadline exceeded: unknown",
        f"{TASK} create shim task: signal: killed: unknown",
        f"{TASK} create shim task: xcontext canceled",
        "context canceled: unknown: more",
    ],
)
def test_a_container_that_cannot_start_has_ended(message: str) -> None:
    assert not is_abandoned_start(ended(message))


@pytest.mark.parametrize(
    "changes",
    [
        {"state": cri.CONTAINER_RUNNING},
        {"state": cri.CONTAINER_CREATED},
        {"reason": "Error"},
        {"exit_code": 137},
        {"started_at": 5},
    ],
)
def test_only_a_start_can_be_abandoned(changes: dict[str, Any]) -> None:
    assert is_abandoned_start(ended("context canceled"))
    assert not is_abandoned_start(ended("context canceled", **changes))


@pytest.mark.parametrize(
    ("code", "abandoned"),
    [
        (Code.UNKNOWN, False),
        (Code.DEADLINE_EXCEEDED, False),
        (Code.UNAVAILABLE, True),
        (Code.CANCELLED, True),
    ],
)
def test_an_end_that_was_answered_counts(code: Code, abandoned: bool) -> None:
    starts = OwnStarts()
    assert starts.may_adopt("c")
    starts.failed("c", code)
    assert not starts.may_adopt("c")
    assert starts.has_failed("c") is not abandoned
    assert starts.is_abandoned(ended("context canceled")) is abandoned


def test_one_that_could_not_be_adopted_is_no_attempt() -> None:
    starts = OwnStarts()
    starts.refused("c")
    assert not starts.may_adopt("c")
    assert not starts.has_failed("c")
    assert starts.is_abandoned(ended("context canceled"))


def test_the_record_of_failed_starts_is_bounded() -> None:
    starts = OwnStarts()
    for number in range(MOST_FAILED + 1):
        starts.failed(str(number), Code.UNKNOWN)
    assert not starts.has_failed("0")
    assert starts.has_failed("1")

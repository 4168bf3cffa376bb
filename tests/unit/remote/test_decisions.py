"""The CRI client: decisions about calls and answers, long lists, and the cgroup driver."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubeletpy.base.kubernetes_version import SUPPORTED, KubernetesVersion
from kubeletpy.metrics.registry import Metrics
from kubeletpy.remote import calls, errors, verify
from kubeletpy.remote.calls import secrets_of
from kubeletpy.remote.client import cgroup_driver
from kubeletpy.remote.connection import EndpointError, dial_target, socket_path
from kubeletpy.remote.errors import (
    CRIError,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
    deadline_for,
)
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager import names
from tests.kit.virtual_time import on_virtual_time, timed
from tests.unit.remote.conftest import Dial, Serve


@pytest.mark.parametrize(
    ("method", "own", "seconds"),
    [
        ("Version", 0, 120),
        ("Status", 0, 120),
        ("RunPodSandbox", 0, 240),
        ("StopPodSandbox", 0, 120),
        ("StopPodSandbox", 300, 120),
        ("RemovePodSandbox", 0, 120),
        ("CreateContainer", 0, 120),
        ("StopContainer", 0, 120),
        ("StopContainer", 30, 150),
        ("ExecSync", 1.5, 121.5),
        ("ExecSync", 0, None),
        ("PullImage", 0, None),
        ("GetContainerEvents", 0, None),
        ("StreamImages", 0, 120),
        ("CheckpointContainer", 0, 120),
        ("CheckpointContainer", 60, 120),
        ("CheckpointContainer", 300, 300),
    ],
)
def test_deadline(method: str, own: float, seconds: float | None) -> None:
    assert deadline_for(method, 120, own=own) == seconds


@pytest.mark.parametrize(
    ("code", "reported"),
    [
        (errors.Code.NOT_FOUND, "NotFound"),
        (errors.Code.UNKNOWN, "Unknown"),
        (errors.Code.DEADLINE_EXCEEDED, "DeadlineExceeded"),
        (errors.Code.CANCELLED, "Canceled"),
        (errors.Code.OK, "OK"),
    ],
)
def test_codes_are_shown_as_people_search_for_them(code: errors.Code, reported: str) -> None:
    assert code.reported == reported


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        ("unix:///run/containerd/containerd.sock", "unix:/run/containerd/containerd.sock"),
        ("unix:/run/crio.sock", "unix:/run/crio.sock"),
        ("/run/crio.sock", "unix:/run/crio.sock"),
        ("/run/a b%.sock", "unix:/run/a%20b%25.sock"),
        ("unix:///run/a%20b.sock", "unix:/run/a%20b.sock"),
    ],
)
def test_dial_target(endpoint: str, target: str) -> None:
    assert dial_target(endpoint) == target


@pytest.mark.parametrize(
    ("endpoint", "parts"),
    [
        ("tcp://127.0.0.1:1234", "tcp: is not supported"),
        ("npipe:////./pipe/containerd", "npipe: is not supported"),
        ("unix://run/containerd.sock", "third slash"),
        ("containerd.sock", "absolute path"),
        ("", "absolute path"),
        ("/run/" + "x" * 120, "longer than the 107 bytes"),
    ],
)
def test_bad_endpoint(endpoint: str, parts: str) -> None:
    with pytest.raises(EndpointError, match=parts):
        socket_path(endpoint)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errors.Code.NOT_FOUND, errors.NotFound),
        (errors.Code.ALREADY_EXISTS, errors.AlreadyExists),
        (errors.Code.DEADLINE_EXCEEDED, errors.DeadlineExceeded),
        (errors.Code.UNAVAILABLE, errors.Unavailable),
        (errors.Code.UNIMPLEMENTED, errors.Unimplemented),
        (errors.Code.RESOURCE_EXHAUSTED, errors.ResourceExhausted),
        (errors.Code.INVALID_ARGUMENT, errors.InvalidArgument),
        (errors.Code.INTERNAL, errors.Internal),
        (errors.Code.UNKNOWN, errors.CRIError),
        (errors.Code.DATA_LOSS, errors.CRIError),
    ],
)
def test_error_of_a_code(code: errors.Code, kind: type[errors.CRIError]) -> None:
    error = errors.error_for(code, "StartContainer", "so it is", target="abc")
    assert type(error) is kind
    assert error.code is code
    assert str(error) == f"StartContainer abc: so it is ({code})"


def test_an_error_without_a_message_names_the_code() -> None:
    assert str(errors.NotFound("ContainerStatus")) == "ContainerStatus: NOT_FOUND (NOT_FOUND)"


def test_secrets_of_a_credential() -> None:
    auth = cri.AuthConfig(username="joe", password="p", auth="am9lOmh1bnRlcjI=", registry_token="t")
    assert set(secrets_of(auth)) - {""} == {"p", "am9lOmh1bnRlcjI=", "hunter2", "t"}
    assert secrets_of(None) == ()
    assert "not base64!" in secrets_of(cri.AuthConfig(auth="not base64!"))


SANDBOX = cri.PodSandboxStatus(
    id="s", created_at=1, metadata=cri.PodSandboxMetadata(name="p", namespace="n", uid="u")
)
CONTAINER = cri.ContainerStatus(
    id="c",
    created_at=1,
    image_ref="r",
    image=cri.ImageSpec(image="i"),
    metadata=cri.ContainerMetadata(name="c"),
)


@pytest.mark.parametrize(
    ("without", "problem"),
    [
        ("", ""),
        ("id", "id not set"),
        ("created_at", "created_at not set"),
        ("metadata", "metadata not set"),
    ],
)
def test_sandbox_status(without: str, problem: str) -> None:
    status = cri.PodSandboxStatus.FromString(SANDBOX.SerializeToString())
    if without:
        status.ClearField(without)
    assert verify.wrong_sandbox_status(cri.PodSandboxStatusResponse(status=status)) == problem


@pytest.mark.parametrize(
    ("without", "problem"),
    [
        ("", ""),
        ("id", "id not set"),
        ("image_ref", "image_ref not set"),
        ("metadata", "metadata not set"),
        ("image", "image not set"),
    ],
)
def test_container_status(without: str, problem: str) -> None:
    status = cri.ContainerStatus.FromString(CONTAINER.SerializeToString())
    if without:
        status.ClearField(without)
    assert verify.wrong_container_status(cri.ContainerStatusResponse(status=status)) == problem


def test_a_missing_status_is_named() -> None:
    assert verify.wrong_sandbox_status(cri.PodSandboxStatusResponse()) == "status not set"
    assert verify.wrong_container_status(cri.ContainerStatusResponse()) == "status not set"


def test_an_empty_status_lacks_all_fields_but_its_name() -> None:
    sandbox = cri.PodSandboxStatusResponse(status=cri.PodSandboxStatus())
    assert verify.wrong_sandbox_status(sandbox) == "id, created_at not set"
    container = cri.ContainerStatusResponse(status=cri.ContainerStatus())
    assert verify.wrong_container_status(container) == "id, created_at, image_ref not set"


def test_a_container_without_a_name() -> None:
    status = cri.ContainerStatus.FromString(CONTAINER.SerializeToString())
    status.metadata.name = ""
    answer = cri.ContainerStatusResponse(status=status)
    assert verify.wrong_container_status(answer) == "name not set"


def test_pod_without_a_name() -> None:
    status = cri.PodSandboxStatus(id="s", created_at=1, metadata=cri.PodSandboxMetadata(name="p"))
    answer = cri.PodSandboxStatusResponse(status=status)
    assert verify.wrong_sandbox_status(answer) == "namespace, uid not set"


def test_runtime_status_needs_both_conditions() -> None:
    answer = cri.StatusResponse(
        status=cri.RuntimeStatus(conditions=[cri.RuntimeCondition(type="RuntimeReady")])
    )
    assert verify.wrong_status(answer) == "condition NetworkReady not set"
    answer.status.conditions.append(cri.RuntimeCondition(type="NetworkReady"))
    assert verify.wrong_status(answer) == ""
    both = "condition RuntimeReady and NetworkReady not set"
    assert verify.wrong_status(cri.StatusResponse()) == both


def test_one_nameless_entry_does_not_spoil_a_list() -> None:
    good = cri.Container(id="c", pod_sandbox_id="s", metadata=cri.ContainerMetadata(name="c"))
    nowhere = cri.Container(id="d", metadata=cri.ContainerMetadata(name="c"))
    no_id = cri.Container(pod_sandbox_id="s", metadata=cri.ContainerMetadata(name="c"))
    no_name = cri.Container(id="e", pod_sandbox_id="s")
    supplied = [cri.Container(), good, nowhere, no_id, no_name]
    assert verify.believable_containers(supplied) == ([good], 0)
    sandbox = cri.PodSandbox(id="s", metadata=cri.PodSandboxMetadata(name="p"))
    nameless = cri.PodSandbox(metadata=cri.PodSandboxMetadata(name="n"))
    found = [sandbox, cri.PodSandbox(id="t"), nameless]
    assert verify.believable_sandboxes(found) == ([sandbox], 0)
    assert verify.believable_images([cri.Image(), cri.Image(id="i")]) == [cri.Image(id="i")]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (cri.ImageStatusResponse(), ""),
        (cri.ImageStatusResponse(image=cri.Image(id="i", size=1)), ""),
        (cri.ImageStatusResponse(image=cri.Image(size=1)), "id not set"),
        (cri.ImageStatusResponse(image=cri.Image()), "id, size not set"),
    ],
)
def test_the_status_of_a_present_image_has_an_id(
    answer: cri.ImageStatusResponse, problem: str
) -> None:
    assert verify.wrong_image_status(answer) == problem


# Lists of tens of thousands of items, and a runtime that ignores every filter.

ITEMS = 6_000


def _labels(number: int) -> dict[str, str]:
    uid = f"uid-{number:08d}"
    return {names.POD_UID: uid, names.POD_NAME: f"p{number}", names.POD_NAMESPACE: "default"}


def sandboxes(count: int) -> bytes:
    """A list of as many pods' sandboxes."""
    return cri.ListPodSandboxResponse(
        items=[
            cri.PodSandbox(
                id=f"{number:064x}",
                metadata=cri.PodSandboxMetadata(name=f"p{number}", namespace="default"),
                state=cri.SANDBOX_NOTREADY,
                created_at=number + 1,
                labels=_labels(number),
            )
            for number in range(count)
        ]
    ).SerializeToString()


def containers(count: int) -> bytes:
    """A list of a container of each."""
    return cri.ListContainersResponse(
        containers=[
            cri.Container(
                id=f"{number:064x}",
                pod_sandbox_id=f"{number:064x}",
                metadata=cri.ContainerMetadata(name="c"),
                state=cri.CONTAINER_EXITED,
                created_at=number + 1,
                labels={**_labels(number), names.CONTAINER_NAME: "c"},
            )
            for number in range(count)
        ]
    ).SerializeToString()


def _sandbox_status(sandbox_id: str) -> cri.PodSandboxStatusResponse:
    number = int(sandbox_id, 16)
    about = _labels(number)
    metadata = cri.PodSandboxMetadata(
        name=about[names.POD_NAME], namespace="default", uid=about[names.POD_UID]
    )
    status = cri.PodSandboxStatus(id=sandbox_id, metadata=metadata, created_at=1, labels=about)
    return cri.PodSandboxStatusResponse(status=status)


def _container_status(container_id: str) -> cri.ContainerStatusResponse:
    number = int(container_id, 16)
    status = cri.ContainerStatus(
        id=container_id,
        metadata=cri.ContainerMetadata(name="c"),
        state=cri.CONTAINER_EXITED,
        created_at=number + 1,
        image=cri.ImageSpec(image="i"),
        image_ref="i",
        labels={**_labels(number), names.CONTAINER_NAME: "c"},
    )
    return cri.ContainerStatusResponse(status=status)


def _deaf(count: int) -> dict[str, Any]:
    """The answers of a runtime that has so many pods and ignores filters."""
    first, second = sandboxes(count), containers(count)
    return {"ListPodSandbox": lambda *_: first, "ListContainers": lambda *_: second}


async def test_what_a_filter_does_not_let_through_is_dropped(
    serve: Serve, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = dial((await serve(**_deaf(50))).endpoint)
    chosen = {names.POD_UID: "uid-00000007"}
    for _ in range(2):
        (sandbox,) = await runtime.list_pod_sandbox(cri.PodSandboxFilter(label_selector=chosen))
        (container,) = await runtime.list_containers(cri.ContainerFilter(label_selector=chosen))
        assert sandbox.id == container.pod_sandbox_id == f"{7:064x}"
        assert not await runtime.list_containers(
            cri.ContainerFilter(state=cri.ContainerStateValue(state=cri.CONTAINER_RUNNING))
        )
    # gRPC's queue may report the closed loop of an earlier test
    own = [record for record in caplog.records if record.name.startswith("kubeletpy.")]
    assert [record.message for record in own] == [
        "the runtime ignores the filter of a list: each pod costs the list of the whole node; "
        "check the runtime's version"
    ] * 2
    assert [vars(record)["list"] for record in own] == ["sandboxes", "containers"]
    assert len(await runtime.list_containers()) == 50


async def test_a_stream_without_end_is_cut_off(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MOST_STREAMED", 1_000_000)
    sent = 0

    async def endless(*_: Any) -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield containers(100)

    async def too_large(_request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too large")

    server = await serve(
        ListContainers=too_large,
        StreamContainers=endless,
        ListPodSandbox=lambda *_: cri.ListPodSandboxResponse(),
    )
    runtime = dial(server.endpoint)
    with pytest.raises(ResourceExhausted, match="StreamContainers: the list is larger than"):
        _ = [each async for each in runtime.stream_containers()]
    with pytest.raises(ResourceExhausted):
        await runtime.list_containers()
    await asyncio.sleep(0)
    assert sent * len(containers(100)) < 20_000_000, "gRPC reads ahead by a window"


async def test_memory_and_tasks_do_not_grow_with_the_items(serve: Serve, tmp_path: Path) -> None:
    answers = _deaf(ITEMS)
    received_kib = (len(answers["ListPodSandbox"]()) + len(answers["ListContainers"]())) // 1024
    server = await serve(
        **answers,
        ContainerStatus=lambda request, _: _container_status(request.container_id),
        RemoveContainer=lambda *_: b"",
        PodSandboxStatus=lambda request, _: _sandbox_status(request.pod_sandbox_id),
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.unit.remote.reads_long_lists"),
        *(server.endpoint, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    out, _ = await process.communicate()
    found = json.loads(out)
    print(found, received_kib)
    assert found["tasks"] < 100
    assert found["kib"] < 25 * received_kib


# Discovery of a runtime's cgroup driver, on virtual time.


def config_with(driver: cri.CgroupDriver) -> cri.RuntimeConfigResponse:
    """A runtime's response with that cgroup driver."""
    return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=driver))


class Runtime:
    """A runtime that gives these answers or errors in turn."""

    def __init__(self, *answers: cri.RuntimeConfigResponse | CRIError) -> None:
        self.left = list(answers)

    async def runtime_config(self) -> cri.RuntimeConfigResponse:
        answer = self.left.pop(0)
        if isinstance(answer, CRIError):
            raise answer
        return answer


DOWN = Unavailable("RuntimeConfig", "not yet")


@pytest.mark.parametrize(
    ("answers", "driver", "seconds"),
    [
        ([config_with(cri.CgroupDriver.SYSTEMD)], "systemd", 0),
        ([config_with(cri.CgroupDriver.CGROUPFS)], "cgroupfs", 0),
        ([cri.RuntimeConfigResponse()], None, 0),
        ([Unimplemented("RuntimeConfig")], None, 0),
        ([DOWN, DOWN, config_with(cri.CgroupDriver.CGROUPFS)], "cgroupfs", 4),
        ([DOWN, Unimplemented("RuntimeConfig")], None, 2),
    ],
)
@on_virtual_time
async def test_driver(
    answers: list[cri.RuntimeConfigResponse | CRIError], driver: str | None, seconds: float
) -> None:
    runtime = Runtime(*answers)
    got, took = await timed(cgroup_driver(runtime))  # type: ignore[arg-type]
    assert (got, took, runtime.left) == (driver, seconds, [])


@pytest.mark.parametrize(
    ("version", "until"), list(zip(SUPPORTED, ("1.36.0", "1.37.0", "1.38.0"), strict=True))
)
@pytest.mark.parametrize(
    ("answer", "losing"),
    [
        (Unimplemented("RuntimeConfig"), 1),
        (cri.RuntimeConfigResponse(), 0),
        (config_with(cri.CgroupDriver.CGROUPFS), 0),
    ],
)
async def test_a_runtime_without_the_call_is_losing_support(
    answer: cri.RuntimeConfigResponse | CRIError,
    losing: int,
    version: KubernetesVersion,
    until: str,
) -> None:
    metrics = Metrics(version)
    await cgroup_driver(Runtime(answer), metrics.runtime.losing_support)  # type: ignore[arg-type]
    text = metrics.render().decode()
    assert text.count(f'\nkubelet_cri_losing_support{{version="{until}"}} 1\n') == losing
    assert text.count("\nkubelet_cri_losing_support{") == losing


@on_virtual_time
async def test_three_failures_are_an_error() -> None:
    runtime = Runtime(DOWN, DOWN, DOWN)
    with pytest.raises(Unavailable):
        await cgroup_driver(runtime)  # type: ignore[arg-type]
    assert runtime.left == []

"""Deadlines, endpoints, errors and checks of answers: the pure parts of the CRI client."""

from __future__ import annotations

import pytest

from kubeletpy.remote import errors, verify
from kubeletpy.remote.calls import secrets_of
from kubeletpy.remote.connection import EndpointError, dial_target, socket_path
from kubeletpy.remote.errors import deadline_for
from kubeletpy.remote.generated import api_pb2 as cri


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

"""Container settings from plugin answers, and the resource names that plugins may register."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.pod import DeviceNode, Mount
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.remote.generated import deviceplugin_pb2 as pb
from kubeletpy.resources.devices.model import (
    Booking,
    RegistrationRefused,
    check_resource,
    check_version,
)
from kubeletpy.resources.devices.pick import DeviceChoice, by_claim, pick, plugin_additions
from tests.unit.resources.devices.test_pick import GPU, container, pod


def booking(
    *mounts: tuple[str, str],
    devices: tuple[tuple[str, str, str], ...] = (),
    cdi: tuple[str, ...] = (),
    **texts: str,
) -> Booking:
    response = pb.ContainerAllocateResponse(envs=texts, annotations=texts)
    for path, source in mounts:
        response.mounts.add(container_path=path, host_path=source, read_only=True)
    for path, source, permissions in devices:
        response.devices.add(container_path=path, host_path=source, permissions=permissions)
    for name in cdi:
        response.cdi_devices.add(name=name)
    return Booking({0: ("d",)}, response.SerializeToString())


def test_the_first_of_equal_keys_wins() -> None:
    made = plugin_additions(
        {
            "a.example/x": booking(
                ("/m", "/first"),
                devices=(("/dev/a", "/dev/first", "rwm"),),
                cdi=("x/c=1", "x/c=2"),
                K="first",
            ),
            "b.example/x": booking(
                ("/m", "/second"),
                ("/n", "/second"),
                devices=(("/dev/a", "/dev/second", "r"), ("/dev/b", "/dev/b", "")),
                cdi=("x/c=2", "x/c=3"),
                K="second",
                L="second",
            ),
        }
    )
    assert made.mounts == (Mount("/m", "/first", True), Mount("/n", "/second", True))
    assert made.devices == (
        DeviceNode("/dev/a", "/dev/first", "rwm"),
        DeviceNode("/dev/b", "/dev/b", ""),
    )
    assert made.envs == (("K", "first"), ("L", "second"))
    assert made.annotations == {"K": "first", "L": "second"}
    assert made.cdi_devices == ("x/c=1", "x/c=2", "x/c=3")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (booking(("m", "/s")), "of a mount is not absolute: 'm'"),
        (booking(("/m", "s")), "of a mount is not absolute: 's'"),
        (booking(("/m\0", "/s")), "of a mount is not absolute"),
        (booking(devices=(("dev", "/d", "r"),)), "of a device is not absolute: 'dev'"),
        (booking(devices=(("/dev", "../d", "r"),)), "of a device is not absolute: '../d'"),
        (booking(devices=(("/d", "/d", "rx"),)), "permissions of device /d are 'rx'"),
        (Booking({}, b"\xff"), "can't be read"),
    ],
)
def test_refused_answers(answer: Booking, why: str) -> None:
    with pytest.raises(ContainerConfigError, match=why):
        plugin_additions({"a.example/x": answer})


DOMAIN = ".".join(["d" * 63] * 3 + ["d" * 52])
"""The longest domain allowed behind ``requests.``: together 253 characters."""


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("vendor.example/gpu", True),
        ("v/G_p.u-1", True),
        ("gpu", False),
        ("/gpu", False),
        ("vendor.example/", False),
        ("vendor.example/gpu/x", False),
        ("Vendor.example/gpu", False),
        ("vendor.example/-gpu", False),
        ("vendor.example/gpu-", False),
        ("vendor..example/gpu", False),
        ("requests.vendor.example/gpu", False),
        ("kubernetes.io/gpu", False),
        ("a.kubernetes.io/gpu", False),
        ("kubernetes.iox/gpu", True),
        (f"{DOMAIN[:244]}/gpu", True),
        (f"{DOMAIN[:244]}d/gpu", False),
        (f"v/{'g' * 63}", True),
        (f"v/{'g' * 64}", False),
    ],
)
def test_names_of_extended_resources(name: str, good: bool) -> None:
    if good:
        check_resource(name)
    else:
        with pytest.raises(RegistrationRefused, match="is not that of an extended resource"):
            check_resource(name)


def test_versions() -> None:
    check_version(["v1alpha1", "v1beta1"])
    for versions, reported in (
        ([], "none"),
        (["v1"], "v1"),
        (["v1beta", "v2"], "v1beta, v2"),
        (["v" * 201], "v" * 200),
    ):
        with pytest.raises(RegistrationRefused) as refused:
            check_version(versions)
        assert str(refused.value) == (
            f"requested API version '{reported}' is not supported by kubelet. "
            "Supported version is 'v1beta1'"
        )


# Device choice group by group, and resources that a claim serves.

MAPPING = {"containerName": "c", "resourceName": GPU, "requestName": "r"}


@pytest.mark.parametrize(
    ("mappings", "served"),
    [
        (None, False),
        ([], False),
        ([MAPPING], True),
        ([{**MAPPING, "containerName": "d"}], False),
        ([{**MAPPING, "resourceName": "vendor.example/other"}], False),
        ([{**MAPPING, "containerName": "d"}, {**MAPPING, "resourceName": "x"}], False),
        ([{**MAPPING, "containerName": "d"}, MAPPING], True),
    ],
)
def test_resources_that_a_claim_serves(mappings: Any, served: bool) -> None:
    status = {"extendedResourceClaimStatus": {"requestMappings": mappings}}
    assert by_claim(pod(container("c"), status=status), "c", GPU) is served
    assert not by_claim(pod(container("c")), "c", GPU)


def choice(
    desired: int, taken: str = "", aligned: str = "abc", rest: str = "de", free: str = "fg"
) -> DeviceChoice:
    return DeviceChoice(
        desired, frozenset(taken), frozenset(aligned), frozenset(rest), frozenset(free)
    )


@pytest.mark.parametrize(
    ("supplied", "preferred", "picked"),
    [
        (choice(0), "", ""),
        (choice(1), "", "a"),
        (choice(1), "c", "c"),
        (choice(1), "d", "a"),
        (choice(2), "c", "ac"),
        (choice(2), "bc", "bc"),
        (choice(2), "abc", "ab"),
        (choice(3), "dg", "abc"),
        (choice(4), "", "abcd"),
        (choice(4), "e", "abce"),
        (choice(4), "g", "abcg"),
        (choice(4), "x", "abcd"),
        (choice(5), "g", "abcdg"),
        (choice(6), "", "abcdef"),
        (choice(6), "g", "abcdeg"),
        (choice(7), "", "abcdefg"),
        (choice(2, "z"), "", "az"),
        (choice(2, "z"), "z", "az"),
        (choice(1, "z"), "a", "z"),
        (choice(3, "z"), "c", "acz"),
        (choice(4, "z"), "e", "abcz"),
        (choice(5, "z"), "e", "abcez"),
        (choice(2, aligned="", rest=""), "g", "fg"),
        (choice(1, aligned="", rest=""), "g", "g"),
    ],
)
def test_which_are_picked(supplied: DeviceChoice, preferred: str, picked: str) -> None:
    assert "".join(pick(supplied, preferred)) == picked


@pytest.mark.parametrize(
    ("supplied", "requests"),
    [
        (choice(0), None),
        (choice(1, "z"), None),
        (choice(0, "z"), None),
        (choice(1), ("abc", "")),
        (choice(2, "z"), ("abcz", "z")),
        (choice(3), None),
        (choice(4, "z"), None),
        (choice(4), ("abcdefg", "abc")),
        (choice(5, "z"), ("abcdefgz", "abcz")),
        (choice(1, aligned=""), ("defg", "")),
    ],
)
def test_devices_offered_to_a_plugin(
    supplied: DeviceChoice, requests: tuple[str, str] | None
) -> None:
    expected = None if requests is None else (frozenset(requests[0]), frozenset(requests[1]))
    assert supplied.preferred_request == expected

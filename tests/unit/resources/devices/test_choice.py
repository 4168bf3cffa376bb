"""Device choice group by group, and resources that a claim serves."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.resources.devices.pick import DeviceChoice, by_claim, pick
from tests.unit.resources.devices.test_pick import GPU, container, pod

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

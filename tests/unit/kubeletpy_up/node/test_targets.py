"""Tables: requests of the API to a node's own server."""

from __future__ import annotations

import pytest

from kubeletpy_up.errors import ApiError
from kubeletpy_up.node.targets import may_be_requested, node_address, pod_target

ONE = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [{"name": "c"}]}}
TWO = {
    "metadata": {"name": "p", "namespace": "n"},
    "spec": {
        "containers": [{"name": "a"}, {"name": "b"}],
        "initContainers": [{"name": "i"}],
        "ephemeralContainers": [{"name": "e"}],
    },
}


@pytest.mark.parametrize(
    ("pod", "subresource", "query", "expected"),
    [
        (ONE, "log", [], "/containerLogs/n/p/c"),
        (
            ONE,
            "log",
            [("follow", "true"), ("tailLines", "5"), ("previous", "false"), ("x", "y")],
            "/containerLogs/n/p/c?follow=true&tailLines=5",
        ),
        (TWO, "log", [("container", "e")], "/containerLogs/n/p/e"),
        (
            ONE,
            "exec",
            [("command", "a b"), ("command", "&c=d"), ("stdin", "true"), ("tty", "1")],
            "/exec/n/p/c?input=1&tty=1&command=a+b&command=%26c%3Dd",
        ),
        (ONE, "exec", [("stdout", "false")], "/exec/n/p/c"),
        (ONE, "attach", [("stdout", "true"), ("command", "x")], "/attach/n/p/c?output=1&command=x"),
        (ONE, "portforward", [("ports", "80"), ("container", "x")], "/portForward/n/p?port=80"),
    ],
)
def test_targets(
    pod: dict[str, object], subresource: str, query: list[tuple[str, str]], expected: str
) -> None:
    assert pod_target(pod, subresource, query) == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            [],
            "a container name must be specified for pod p, choose one of: [a b] "
            "or one of the init containers: [i]",
        ),
        ([("container", "x")], "container x is not valid for pod p"),
        ([("container", "../x")], "container ../x is not valid for pod p"),
    ],
)
def test_which_container(query: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(ApiError) as refused:
        pod_target(TWO, "log", query)
    assert (refused.value.code, refused.value.message) == (400, message)


def test_addresses() -> None:
    node = {
        "metadata": {"name": "n"},
        "status": {
            "addresses": [
                {"type": "Hostname", "address": "n"},
                {"type": "InternalIP", "address": "fd00::1"},
                {"type": "InternalIP", "address": "10.0.0.1"},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1234}},
        },
    }
    found = node_address(node)
    assert (found.base, found.name) == ("https://[fd00::1]:1234", "n")
    with pytest.raises(ApiError):
        node_address({"metadata": {"name": "n"}})


def test_a_node_without_a_port_has_no_server() -> None:
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
    with pytest.raises(ApiError, match='node "n" has no server: it reports no port') as refused:
        node_address({"metadata": {"name": "n"}, "status": {"addresses": addresses}})
    assert refused.value.code == 503


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1", True),
        ("8.8.8.8", True),
        ("fd00::1", True),
        ("127.0.0.9", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("0.0.0.0", False),
        ("::", False),
        ("169.254.169.254", False),
        ("fe80::1%eth0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
    ],
)
def test_addresses_that_the_api_connects_to(address: str, expected: bool) -> None:
    assert may_be_requested(address) is expected

"""Addresses and host names in pods, their statuses and services: which are refused, and how."""

from __future__ import annotations

from typing import Any

from tests.contract.conversation import Step, patch, post
from tests.contract.conversations.objects import PODS, container, here, pod

_SERVICES = "/api/v1/namespaces/{ns}/services"
_STATUS = PODS + "/status/status"
ADDRESSES = {
    "none": "999.9.9.9",
    "empty": "",
    "zeros": "10.01.2.3",
    "mapped": "::ffff:10.1.2.3",
    "zone": "fe80::1%eth0",
    "range": "10.1.2.0/24",
    "name": "example.test",
    "spaces": " 10.1.2.3",
    "long form": "2001:db8:0:0:0:0:0:1",
}
_HTTP = {"path": "/", "port": 80}


def _published(host_ip: str) -> dict[str, Any]:
    return container(ports=[{"containerPort": 80, "hostPort": 8080, "hostIP": host_ip}])


def _with(name: str, **spec: Any) -> dict[str, Any]:
    return pod(name, schedulerName="nobody", **spec)


# A host port's hostIP and a probe's host may be anything: the agent has to check them.
STEPS: list[Step] = [
    *(
        post(f"host port, {kind}", PODS, _with(f"port-{n}", containers=[_published(address)]))
        for n, (kind, address) in enumerate(ADDRESSES.items())
    ),
    *(
        post(
            f"alias, {kind}",
            PODS,
            _with(f"alias-{n}", hostAliases=[{"ip": address, "hostnames": ["a.test"]}]),
        )
        for n, (kind, address) in enumerate(ADDRESSES.items())
    ),
    post(
        "alias, bad host name",
        PODS,
        _with("alias-name", hostAliases=[{"ip": "10.1.2.3", "hostnames": ["A_b", "ok"]}]),
    ),
    *(
        post(
            f"nameserver, {kind}",
            PODS,
            _with(f"dns-{n}", dnsPolicy="None", dnsConfig={"nameservers": [address]}),
        )
        for n, (kind, address) in enumerate(ADDRESSES.items())
    ),
    post(
        "hosts of probes and hooks",
        PODS,
        _with(
            "hosts",
            containers=[
                container(
                    livenessProbe={"httpGet": {**_HTTP, "host": "999.9.9.9"}},
                    readinessProbe={"tcpSocket": {"port": 80, "host": "a b"}},
                    lifecycle={"preStop": {"httpGet": {**_HTTP, "host": "http://x/"}}},
                )
            ],
        ),
    ),
    post("a pod with a status", PODS, here("status")),
    *(
        patch(
            f"status, {kind}",
            _STATUS,
            {"status": {"podIP": address, "podIPs": [{"ip": address}]}},
            by="node",
        )
        for kind, address in ADDRESSES.items()
    ),
    *(
        patch(
            f"host's address, {kind}",
            _STATUS,
            {"status": {"hostIP": address, "hostIPs": [{"ip": address}]}},
            by="node",
        )
        for kind, address in ADDRESSES.items()
    ),
    patch(
        "two addresses of a family",
        _STATUS,
        {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}},
        by="node",
    ),
    patch(
        "host's other address first",
        _STATUS,
        {"status": {"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]}},
        by="node",
    ),
    *(
        post(
            f"service, {kind}",
            _SERVICES,
            {
                "metadata": {"name": f"s-{n}"},
                "spec": {"clusterIP": address, "ports": [{"port": 80}]},
            },
            query={"dryRun": "All"},
        )
        for n, (kind, address) in enumerate(ADDRESSES.items())
        if kind not in ("empty", "long form")  # given out, or of a family that the server lacks
    ),
    *(
        post(
            f"external, {kind}",
            _SERVICES,
            {
                "metadata": {"name": f"e-{n}"},
                "spec": {"externalIPs": [address], "ports": [{"port": 80}]},
            },
        )
        for n, (kind, address) in enumerate(
            {
                **ADDRESSES,
                "loopback": "127.0.0.1",
                "link-local": "169.254.1.1",
                "unspecified": "0.0.0.0",
                "multicast": "224.0.0.1",
            }.items()
        )
    ),
]

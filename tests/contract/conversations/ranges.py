"""Ranges and lists of addresses in services and nodes: which are refused, and how.

Recorded from a server of 1.37, whose rules for these are the same.
"""

from __future__ import annotations

from typing import Any

from tests.contract.conversation import Step, post

_SERVICES = "/api/v1/namespaces/{ns}/services"
_SOURCES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_DRY = {"dryRun": "All"}
RANGES = {
    "range": "10.1.2.0/24",
    "none": "999.9.9.0/24",
    "empty": "",
    "address": "10.1.2.3",
    "zeros": "10.01.2.0/24",
    "zeros of the length": "10.1.2.0/024",
    "mapped": "::ffff:10.1.2.0/120",
    "zone": "fe80::1%eth0/64",
    "mask": "10.1.2.0/255.255.255.0",
    "host bits": "10.1.2.3/24",
    "too long": "10.1.2.0/33",
    "sign": "10.1.2.0/+24",
    "spaces": " 10.1.2.0/24 ",
    "IPv6": "2001:db8::/64",
    "long form": "2001:db8:0:0:0:0:0:0/64",
}


def _service(name: str, **spec: Any) -> dict[str, Any]:
    ports = [{"port": 80, "nodePort": 30080} if spec.get("type") else {"port": 80}]
    return {"metadata": {"name": name}, "spec": {"ports": ports, **spec}}


def _node(*ranges: str) -> dict[str, Any]:
    spec = {"podCIDR": ranges[0], "podCIDRs": list(ranges)}
    return {"metadata": {"name": "ranges"}, "spec": spec}


STEPS: list[Step] = [
    *(
        post(
            f"source range, {kind}",
            _SERVICES,
            _service("r", type="LoadBalancer", loadBalancerSourceRanges=[value]),
            query=_DRY,
        )
        for kind, value in RANGES.items()
    ),
    post(
        "source range of another type",
        _SERVICES,
        _service("r", loadBalancerSourceRanges=["10.0.0.0/8"]),
        query=_DRY,
    ),
    *(
        post(
            f"annotation {value!r}",
            _SERVICES,
            {
                "metadata": {"name": "r", "annotations": {_SOURCES: value}},
                "spec": {"ports": [{"port": 80, "nodePort": 30080}], "type": "LoadBalancer"},
            },
            query=_DRY,
        )
        for value in ("10.0.0.0/8, 10.1.2.0/24", "10.0.0.0/8,", "10.1.2.3/8,x", " ")
    ),
    *(
        post(f"pod range, {kind}", "/api/v1/nodes", _node(value), query=_DRY)
        for kind, value in RANGES.items()
        if kind not in ("empty", "spaces")
    ),
    post("two pod ranges", "/api/v1/nodes", _node("10.0.0.0/24", "10.0.1.0/24"), query=_DRY),
    post(
        "pod ranges of both families",
        "/api/v1/nodes",
        _node("10.0.0.0/24", "2001:db8::/64"),
        query=_DRY,
    ),
    *(
        post(
            f"cluster addresses {addresses}",
            _SERVICES,
            _service("r", clusterIP=addresses[0], clusterIPs=list(addresses)),
            query=_DRY,
        )
        for addresses in (
            ("None", "10.96.0.77"),
            ("10.96.0.77", "None"),
            ("10.96.0.77", "999.9.9.9"),
            ("10.96.0.77", "10.96.0.78"),
            ("10.96.0.77", "2001:db8::1", "10.96.0.78"),
            ("10.96.0.077",),
        )
    ),
]

"""ResourceClaims, templates, DeviceClasses and ResourceSlices."""

from __future__ import annotations

from typing import Any

from tests.contract.conversation import delete, get, patch, post
from tests.contract.conversations.objects import JSON

_GROUP = "/apis/resource.k8s.io/v1"
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
_CLAIMS = _GROUP + "/namespaces/{ns}/resourceclaims"
_TEMPLATES = _GROUP + "/namespaces/{ns}/resourceclaimtemplates"
_SLICES, _CLASSES = f"{_GROUP}/resourceslices", f"{_GROUP}/deviceclasses"
_DRIVER = "gpu.example.com"


def _of(kind: str, name: str, spec: JSON) -> JSON:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _claim(name: str, *requests: JSON, **more: Any) -> JSON:
    return _of("ResourceClaim", name, {"devices": {"requests": list(requests), **more}})


def _request(name: str = "r", **more: Any) -> JSON:
    return {"name": name, "exactly": {"deviceClassName": "none", **more}}


def _selecting(expression: str) -> JSON:
    return _request(selectors=[{"cel": {"expression": expression}}])


def _slice(name: str, *devices: JSON, **more: Any) -> JSON:
    pool = {"name": "{node}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": _DRIVER, "nodeName": "{node}", "pool": pool, "devices": list(devices)}
    return _of("ResourceSlice", name, {k: v for k, v in {**spec, **more}.items() if v is not None})


def _device(name: str = "d", **more: Any) -> JSON:
    return {"name": name, **more}


def _device_with(**value: Any) -> JSON:
    return _device(attributes={"a": value})


_OPAQUE = {"opaque": {"driver": _DRIVER, "parameters": {"a": 1}}}
_EITHER = [
    {"name": "a", "deviceClassName": "none", "count": 2},
    {"name": "b", "deviceClassName": "none"},
]
_ALLOCATION = {
    "devices": {"results": [{"request": "r", "driver": _DRIVER, "pool": "p", "device": "d"}]}
}
_USER = {"resource": "pods", "name": "p", "uid": "u"}

_CLAIMS_REFUSED: dict[str, JSON] = {
    "no name": _claim("x", _request("")),
    "no class": _claim("x", _request(deviceClassName="")),
    "bad class": _claim("x", _request(deviceClassName="A_b")),
    "neither": _claim("x", {"name": "r"}),
    "both": _claim("x", {**_request(), "firstAvailable": _EITHER}),
    "all and a count": _claim("x", _request(allocationMode="All", count=2)),
    "less than one": _claim("x", _request(count=-1)),
    "unknown mode": _claim("x", _request(allocationMode="Some")),
    "the same name twice": _claim("x", _request(), _request()),
    "admin access": _claim("x", _request(adminAccess=True)),
    "no constraint": _claim("x", _request(), constraints=[{"requests": ["r"]}]),
    "constraint without a domain": _claim("x", _request(), constraints=[{"matchAttribute": "a"}]),
    "constraint of a stranger": _claim(
        "x", _request(), constraints=[{"requests": ["z"], "matchAttribute": "a.com/b"}]
    ),
    "config without a driver": _claim("x", _request(), config=[{"opaque": {"parameters": {}}}]),
    "config without parameters": _claim("x", _request(), config=[{"opaque": {"driver": "a.com"}}]),
    "bad toleration": _claim("x", _request(tolerations=[{"key": "a b", "operator": "Is"}])),
    "selector without cel": _claim("x", _request(selectors=[{}])),
    "bad name": _claim("Not_A_Name", _request()),
}
_SLICES_REFUSED: dict[str, JSON] = {
    "no driver": _slice("x-{node}", driver=""),
    "nowhere": _slice("x-{node}", nodeName=None),
    "in two places": _slice("x-{node}", allNodes=True),
    "no pool": _slice("x-{node}", pool={"name": "", "resourceSliceCount": 1}),
    "no slices": _slice("x-{node}", pool={"name": "a", "resourceSliceCount": 0}),
    "bad device": _slice("x-{node}", _device("A_b")),
    "the same device twice": _slice("x-{node}", _device(), _device()),
    "no value": _slice("x-{node}", _device_with()),
    "no version": _slice("x-{node}", _device_with(version="v1")),
    "bad attribute": _slice("x-{node}", _device(attributes={"a-b": {"int": 1}})),
    "bad taint": _slice("x-{node}", _device(taints=[{"key": "a b", "effect": "Sometimes"}])),
}

STEPS = [
    post("claim", _CLAIMS, _claim("a", _request())),
    post("claim with more", _CLAIMS, _claim("b", {"name": "r", "firstAvailable": _EITHER})),
    post(
        "claim with everything",
        _CLAIMS,
        _claim(
            "c",
            _selecting('device.driver == "a.com"'),
            _request("s", allocationMode="All"),
            constraints=[{"requests": ["r", "s"], "matchAttribute": "a.com/b"}],
            config=[{"requests": ["r"], **_OPAQUE}],
        ),
    ),
    get("claims as a table", _CLAIMS, accept=_TABLE),
    *(post(f"claim refused, {name}", _CLAIMS, body) for name, body in _CLAIMS_REFUSED.items()),
    patch("status by the spec", _CLAIMS + "/a", {"status": {"reservedFor": [_USER]}}, "merge"),
    patch("reserved before", _CLAIMS + "/a/status", {"status": {"reservedFor": [_USER]}}, "merge"),
    patch(
        "allocated to a stranger",
        _CLAIMS + "/b/status",
        {"status": {"allocation": _ALLOCATION}},
        "merge",
    ),
    patch("allocated", _CLAIMS + "/a/status", {"status": {"allocation": _ALLOCATION}}, "merge"),
    get("allocated claim as a table", _CLAIMS + "/a", accept=_TABLE),
    patch("status again", _CLAIMS + "/a/status", {"status": {"allocation": {}}}, "merge"),
    post(
        "template",
        _TEMPLATES,
        _of("ResourceClaimTemplate", "a", {"spec": _claim("", _request())["spec"]}),
    ),
    post(
        "template refused",
        _TEMPLATES,
        _of("ResourceClaimTemplate", "x", {"spec": _claim("", _request(""))["spec"]}),
    ),
    get("template as a table", _TEMPLATES + "/a", accept=_TABLE),
    post("class", _CLASSES, _of("DeviceClass", "a-{node}", {"config": [_OPAQUE]})),
    post("class of nothing", _CLASSES, _of("DeviceClass", "b-{node}", {})),
    post(
        "class refused",
        _CLASSES,
        _of("DeviceClass", "x-{node}", {"extendedResourceName": "cpu", "config": [{}]}),
    ),
    get("class as a table", _CLASSES + "/a-{node}", accept=_TABLE),
    patch("class changed", _CLASSES + "/a-{node}", {"spec": {"config": None}}, "merge"),
    *(delete(f"class deleted {name}", f"{_CLASSES}/{name}-{{node}}") for name in "ab"),
    post(
        "slice",
        _SLICES,
        _slice(
            "a-{node}",
            _device_with(version="1.2.3"),
            _device("e", capacity={"m": {"value": "1Gi"}}),
        ),
    ),
    get("slice as a table", _SLICES + "/a-{node}", accept=_TABLE),
    *(post(f"slice refused, {name}", _SLICES, body) for name, body in _SLICES_REFUSED.items()),
    patch("slice's node", _SLICES + "/a-{node}", {"spec": {"nodeName": "{other}"}}, "merge"),
    patch("slice's devices", _SLICES + "/a-{node}", {"spec": {"devices": [_device()]}}, "merge"),
    delete("slice deleted", _SLICES + "/a-{node}"),
    *(delete(f"claim deleted {name}", f"{_CLAIMS}/{name}") for name in "abc"),
    delete("template deleted", _TEMPLATES + "/a"),
]

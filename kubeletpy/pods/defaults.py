"""Completes a static pod's spec as the API would: its defaults, and its canonical quantities.

The API does this for its own pods, the agent for static pods, which no API has seen. The defaults
are those of docs/reference/api-server.md, aa. Pure; never changes its argument. Needs a pod of the
right shape (:mod:`kubeletpy.pods.shape`).

Values that admission adds are not here: tolerations for a node that is not ready, priorities,
service accounts.
"""

from __future__ import annotations

from typing import Any

from kubeletpy.base.api.quantity import canonical, parse_quantity
from kubeletpy.base.api.types import JSON

_FILE_MODE = 0o644
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_PROBE_KINDS = ("livenessProbe", "readinessProbe", "startupProbe")


def fill(obj: JSON, values: JSON) -> JSON:
    """``obj`` with missing values filled in; an empty string counts as missing."""
    filled = dict(obj)
    for key, value in values.items():
        if filled.get(key) in (None, ""):
            filled[key] = value
    return filled


def pod_spec(spec: JSON) -> JSON:
    """A pod's spec with its defaults. Raises ValueError for a malformed quantity."""
    filled = fill(
        spec,
        {
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "enableServiceLinks": True,
            "securityContext": {},
        },
    )
    host_network = bool(spec.get("hostNetwork"))
    for key in ("initContainers", "containers"):
        if spec.get(key):
            filled[key] = [container(c, host_network=host_network) for c in spec[key]]
    if spec.get("ephemeralContainers"):
        filled["ephemeralContainers"] = [
            container(c, requests_from_limits=False) for c in spec["ephemeralContainers"]
        ]
    if spec.get("volumes"):
        filled["volumes"] = [volume(v) for v in spec["volumes"]]
    if spec.get("resources", {}).get("limits"):
        filled["resources"] = _pod_resources(filled)
    return filled


def _pod_resources(spec: JSON) -> JSON:
    """Pod-level requests: what the containers request, else the limit (KEP-2837)."""
    own = spec["resources"]
    requests = dict(own.get("requests") or {})
    for name, limit in own["limits"].items():
        requested = [
            c["resources"]["requests"][name]
            for c in spec.get("containers") or ()
            if name in (c["resources"].get("requests") or {})
        ]
        if name not in requests:
            requests[name] = _total(requested) if requested else limit
    return {**own, "requests": requests}


def _total(texts: list[str]) -> str:
    """The sum of quantities."""
    first, *others = map(parse_quantity, texts)
    return str(sum(others, first))


def _tag_policy(image: str) -> str:
    """Always for the tag ``latest`` or no tag, else IfNotPresent; a digest counts as a tag."""
    _, _, tag = image.rpartition("/")[2].partition(":")
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def container(
    declared: JSON, *, host_network: bool = False, requests_from_limits: bool = True
) -> JSON:
    """A container, init container or ephemeral container with its defaults."""
    filled = fill(
        declared,
        {
            "imagePullPolicy": _tag_policy(declared.get("image") or ""),
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "resources": {},
        },
    )
    limits = filled["resources"].get("limits")
    if limits and requests_from_limits:
        requests = {**limits, **(filled["resources"].get("requests") or {})}
        filled["resources"] = {**filled["resources"], "requests": requests}
    if declared.get("ports"):
        filled["ports"] = [_port(port, host_network) for port in declared["ports"]]
    if declared.get("env"):
        filled["env"] = [_env(variable) for variable in declared["env"]]
    for key in _PROBE_KINDS:
        if declared.get(key) is not None:
            filled[key] = probe(declared[key])
    if declared.get("lifecycle"):
        filled["lifecycle"] = {
            key: _handler(value) if isinstance(value, dict) else value
            for key, value in declared["lifecycle"].items()
        }
    return filled


def _port(port: JSON, host_network: bool) -> JSON:
    filled = fill(port, {"protocol": "TCP"})
    if host_network and not port.get("hostPort") and "containerPort" in port:
        filled["hostPort"] = port["containerPort"]
    return filled


def _references(holder: JSON) -> JSON:
    """A variable's source, or a file of the downward API, with the defaults of its reference."""
    filled = dict(holder)
    if holder.get("fieldRef") is not None:
        filled["fieldRef"] = fill(holder["fieldRef"], {"apiVersion": "v1"})
    if "resourceFieldRef" in holder:
        filled["resourceFieldRef"] = fill(holder["resourceFieldRef"], {"divisor": "0"})
    return filled


def _env(variable: JSON) -> JSON:
    source = variable.get("valueFrom")
    return dict(variable, valueFrom=_references(source)) if source else variable


def _handler(handler: JSON) -> JSON:
    if "httpGet" in handler:
        action = fill(handler["httpGet"], {"path": "/", "scheme": "HTTP"})
        return dict(handler, httpGet=action)
    if "grpc" in handler and handler["grpc"].get("service") is None:
        return dict(handler, grpc={**handler["grpc"], "service": ""})
    return handler


def probe(declared: JSON) -> JSON:
    """A probe with its periods and thresholds; 0 means the default."""
    filled = _handler(declared)
    return {**filled, **{key: declared.get(key) or value for key, value in _PROBE.items()}}


def _downward_items(holder: JSON) -> JSON:
    items = holder.get("items")
    return dict(holder, items=[_references(item) for item in items]) if items else holder


def _projection(source: JSON) -> JSON:
    if "serviceAccountToken" in source:
        token = fill(source["serviceAccountToken"], {"expirationSeconds": 3600})
        return dict(source, serviceAccountToken=token)
    if "downwardAPI" in source:
        return dict(source, downwardAPI=_downward_items(source["downwardAPI"]))
    return source


def volume(declared: JSON) -> JSON:
    """A volume with its defaults; one without a source is an emptyDir."""
    if not any(value is not None for key, value in declared.items() if key != "name"):
        return {**declared, "emptyDir": {}}
    filled = dict(declared)
    for key in ("secret", "configMap", "downwardAPI", "projected"):
        if declared.get(key) is not None:
            filled[key] = fill(declared[key], {"defaultMode": _FILE_MODE})
    if declared.get("downwardAPI") is not None:
        filled["downwardAPI"] = _downward_items(filled["downwardAPI"])
    if (declared.get("projected") or {}).get("sources"):
        sources = [_projection(source) for source in declared["projected"]["sources"]]
        filled["projected"] = {**filled["projected"], "sources": sources}
    if declared.get("hostPath") is not None and declared["hostPath"].get("type") is None:
        filled["hostPath"] = {**declared["hostPath"], "type": ""}
    if declared.get("image") is not None:
        policy = _tag_policy(declared["image"].get("reference") or "")
        filled["image"] = fill(declared["image"], {"pullPolicy": policy})
    template = (declared.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template:
        spec = fill(template.get("spec") or {}, {"volumeMode": "Filesystem"})
        filled["ephemeral"] = {"volumeClaimTemplate": {**template, "spec": spec}}
    return filled


# -- quantities ------------------------------------------------------------------------------

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


def canonical_spec(spec: JSON) -> JSON:
    """``spec`` with its quantities as the API returns them: ``cpu: 1`` becomes ``"1"``.

    A status repeats values of the spec: a value that the API rewrites makes our status differ from
    the API's for as long as the pod exists. Raises ValueError.
    """
    made = _with_resources(spec)
    for key in _CONTAINERS:
        if spec.get(key):
            made[key] = [_with_resources(container) for container in spec[key]]
    if spec.get("overhead"):
        made["overhead"] = _amounts(spec["overhead"])
    if spec.get("volumes"):
        made["volumes"] = [_volume(volume) for volume in spec["volumes"]]
    return made


def _with_resources(holder: JSON) -> JSON:
    resources = holder.get("resources")
    if not resources:
        return dict(holder)
    rewritten = {
        kind: _amounts(resources[kind]) for kind in ("limits", "requests") if resources.get(kind)
    }
    return {**holder, "resources": {**resources, **rewritten}}


def _amounts(quantities: dict[str, Any]) -> dict[str, str]:
    return {name: canonical(text) for name, text in quantities.items()}


def _volume(volume: JSON) -> JSON:
    source = volume.get("emptyDir") or {}
    if source.get("sizeLimit") is None:
        return volume
    return {**volume, "emptyDir": {**source, "sizeLimit": canonical(source["sizeLimit"])}}

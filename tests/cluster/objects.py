"""Objects that the tests of a cluster create."""

from __future__ import annotations

from typing import Any

from kubeletpy.base.api.types import JSON


def service(name: str, target: int = 80) -> JSON:
    """A Service of the pods with the label app=name."""
    ports = [{"name": "http", "port": 80, "targetPort": target}]
    return _object("v1", "Service", name, spec={"selector": {"app": name}, "ports": ports})


def config_map(name: str, **texts: str) -> JSON:
    """A ConfigMap."""
    return _object("v1", "ConfigMap", name, data=texts)


def secret(name: str, **texts: str) -> JSON:
    """A Secret."""
    return _object("v1", "Secret", name, stringData=texts)


def deployment(name: str, replicas: int, pod: JSON) -> JSON:
    """A Deployment of pods with the label app=name; ``pod`` is their spec."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return _object("apps/v1", "Deployment", name, spec=spec)


def csi_driver(name: str, *modes: str) -> JSON:
    """A CSIDriver object; no such driver has to run; ``modes``: of its volumes."""
    spec: JSON = {"attachRequired": False}
    if modes:
        spec |= {"volumeLifecycleModes": list(modes), "podInfoOnMount": True}
    return _object("storage.k8s.io/v1", "CSIDriver", name, spec=spec)


def volume(name: str, driver: str, handle: str) -> JSON:
    """A PersistentVolume of a CSI driver."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "16Mi"},
        "csi": {"driver": driver, "volumeHandle": handle},
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": name,
    }
    return _object("v1", "PersistentVolume", name, spec=spec)


def claim(name: str) -> JSON:
    """A claim of the volume with the same name."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "16Mi"}},
        "storageClassName": name,
    }
    return _object("v1", "PersistentVolumeClaim", name, spec=spec)


def claim_template(name: str, device_class: str) -> JSON:
    """A ResourceClaimTemplate of claims of one device of a class."""
    requests = [{"name": "one", "exactly": {"deviceClassName": device_class}}]
    spec = {"spec": {"devices": {"requests": requests}}}
    return _object("resource.k8s.io/v1", "ResourceClaimTemplate", name, spec=spec)


def _object(api_version: str, kind: str, name: str, **content: Any) -> JSON:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **content}

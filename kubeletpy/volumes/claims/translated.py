"""Translates in-tree cloud volumes to volumes of their CSI drivers.

Pure. Arguments are never changed. Source: docs/reference/behaviour-storage.md, sc2, sc4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from kubeletpy.base.structs import Struct

_ZONES = "__"
"""Separates the zones of a label that names several."""
_GA = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_BETA = ("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region")
_UNKNOWN = "UNSPECIFIED"
_EBS_ID = re.compile(r"vol-[^/]*")
_ACCOUNT_SECRET = re.compile(r"azure-storage-account-(.+)-secret")
_RESOURCE_GROUP = "kubernetes.io/azure-file-resource-group"
_PORTWORX_SECRET = ("openstorage.io/auth-secret-name", "openstorage.io/auth-secret-namespace")

JsonObject = Mapping[str, Any]


class Untranslatable(Exception):
    """A volume that can't be expressed for its CSI driver; the text contains the reason."""


class _Old(Struct, frozen=True):
    """A volume as written in a PV or in a pod."""

    source: JsonObject
    name: str
    """Name of the PV, or of the pod's volume."""
    namespace: str
    """Namespace of the claim, or of the pod."""
    inline: bool
    labels: JsonObject
    annotations: JsonObject

    def text(self, key: str) -> str:
        """A field of the source; empty when absent."""
        return str(self.source.get(key) or "")


class _Kind(Struct, frozen=True):
    driver: str
    source: Callable[[_Old], dict[str, Any]]
    """The ``csi`` source except its driver. Raises Untranslatable."""
    zone_key: str = ""
    """The driver's name for zones, among the node's labels; empty: it has none."""
    region_key: str = ""
    modes: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda modes: modes
    inline_name: Callable[[_Old, str], str] = lambda old, handle: handle
    inline_mode: Callable[[_Old], str] = lambda old: "ReadWriteOnce"


def translated(pv: JsonObject) -> JsonObject:
    """A PersistentVolume with a ``csi`` source; a volume not of a cloud comes back unchanged.

    Raises:
        Untranslatable: its source can't be expressed for the driver.
    """
    spec, metadata = pv["spec"], pv.get("metadata") or {}
    field = next((key for key in KINDS if isinstance(spec.get(key), Mapping)), None)
    if field is None:
        return pv
    kind = KINDS[field]
    old = _Old(
        spec[field],
        str(metadata.get("name") or ""),
        str((spec.get("claimRef") or {}).get("namespace") or ""),
        False,
        metadata.get("labels") or {},
        metadata.get("annotations") or {},
    )
    changed = {key: value for key, value in spec.items() if key != field}
    changed["csi"] = {"driver": kind.driver, **kind.source(old)}
    changed["accessModes"] = list(kind.modes(tuple(spec.get("accessModes") or ())))
    if kind.zone_key:
        changed["nodeAffinity"] = _affinity(spec.get("nodeAffinity"), old.labels, kind)
    return {**pv, "spec": changed}


def translated_inline(field: str, source: JsonObject, name: str, namespace: str) -> JsonObject:
    """A volume of a pod's own spec as a PersistentVolume with a ``csi`` source.

    Args:
        field: ``awsElasticBlockStore``, …: one of ``KINDS``.
        source: the value of that field.
        name: the pod's volume.
        namespace: the pod's.

    Raises:
        Untranslatable: it can't be expressed for the driver.
    """
    kind = KINDS[field]
    old = _Old(source, name, namespace, True, {}, {})
    csi = {"driver": kind.driver, **kind.source(old)}
    return {
        "metadata": {"name": kind.inline_name(old, csi["volumeHandle"])},
        "spec": {"csi": csi, "accessModes": [kind.inline_mode(old)], "volumeMode": "Filesystem"},
    }


# -- where it can be used --------------------------------------------------------------------


def _affinity(found: JsonObject | None, labels: JsonObject, kind: _Kind) -> JsonObject | None:
    """The node affinity, with zones and regions under the driver's label names."""
    terms = [
        dict(term) for term in ((found or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    ]
    zone, region = _labels_of(terms, labels)
    for term in terms:
        term["matchExpressions"] = [dict(each) for each in term.get("matchExpressions") or ()]
    keys = [(zone, kind.zone_key, _ZONES if not kind.region_key else None)]
    if kind.region_key:
        keys.append((region, kind.region_key, None))
    else:
        _renamed(terms, region, _GA[1])
    for old, new, between in keys:
        if _renamed(terms, old, new):
            continue
        label = str(labels.get(old) or "")
        values = {each.strip() for each in label.split(between)} - {""}  # a label has no blanks
        if values:
            terms = terms or [{"matchExpressions": []}]
            desired = {"key": new, "operator": "In", "values": sorted(values)}
            for term in terms:
                term["matchExpressions"].append(desired)
    return {**(found or {}), "required": {"nodeSelectorTerms": terms}} if terms else found


def _labels_of(terms: list[dict[str, Any]], labels: JsonObject) -> tuple[str, str]:
    """Whether zones have their current or their old names."""
    used = {each.get("key") for term in terms for each in term.get("matchExpressions") or ()}
    for names in (used, set(labels)):
        for pair in (_GA, _BETA):
            if pair[0] in names:
                return pair
    return _GA


def _renamed(terms: list[dict[str, Any]], old: str, new: str) -> bool:
    """Rename a key that has values anywhere; whether there was one."""
    found = [each for term in terms for each in term["matchExpressions"] if each.get("key") == old]
    if not any(each.get("values") for each in found):
        return False
    for each in found:
        each["key"] = new
    return True


# -- the clouds ------------------------------------------------------------------------------


def _csi(handle: str, old: _Old, **attributes: str) -> dict[str, Any]:
    return {
        "volumeHandle": handle,
        "readOnly": bool(old.source.get("readOnly")),
        "fsType": old.text("fsType"),
        "volumeAttributes": attributes,
    }


def _ebs(old: _Old) -> dict[str, Any]:
    volume = old.text("volumeID")
    if volume.startswith("aws://"):
        handle = urlsplit(volume).path.strip("/")
        if _EBS_ID.fullmatch(handle) is None:
            raise Untranslatable(f"awsElasticBlockStore: {volume!r} is no id of a volume")
        volume = handle
    return _csi(volume, old, partition=str(old.source.get("partition") or 0))


def _gce(old: _Old) -> dict[str, Any]:
    zones = str(old.labels.get(_BETA[0]) or old.labels.get(_GA[0]) or "").split(_ZONES)
    place = f"zones/{zones[0] or _UNKNOWN}"
    if len(zones) > 1:
        parts = [zone.split("-") for zone in zones]
        regions = {"-".join(each[:2]) for each in parts}
        if any(len(each) != 3 for each in parts) or len(regions) != 1:
            raise Untranslatable(f"gcePersistentDisk: zones {zones} are not those of one region")
        place = f"regions/{regions.pop()}"
    handle = f"projects/{_UNKNOWN}/{place}/disks/{old.text('pdName')}"
    return _csi(handle, old, partition=old.text("partition"))


def _gce_modes(modes: tuple[str, ...]) -> tuple[str, ...]:
    """One mode: the old plugin treated others as ReadWriteOnce."""
    if not modes:
        return modes
    return ("ReadOnlyMany",) if set(modes) == {"ReadOnlyMany"} else ("ReadWriteOnce",)


def _azure_disk(old: _Old) -> dict[str, Any]:
    kind = old.source.get("kind")
    if kind is not None and str(kind).lower() != "managed":
        raise Untranslatable(f"azureDisk: kind {kind!r} is not supported by its CSI driver")
    more = {"cachingmode": old.text("cachingMode"), "fstype": old.text("fsType")}
    attributes = {key: value for key, value in more.items() if value}
    return _csi(old.text("diskURI"), old, kind="Managed", **attributes)


def _azure_file(old: _Old) -> dict[str, Any]:
    secret = old.text("secretName")
    account = _ACCOUNT_SECRET.search(secret)
    group = str(old.annotations.get(_RESOURCE_GROUP) or "")
    namespace = old.namespace if old.inline else old.text("secretNamespace") or old.namespace
    if not namespace:
        raise Untranslatable("azureFile: neither its source nor its claim names a namespace")
    share = old.text("shareName")
    parts = (group, account[1] if account else secret, share, old.name, namespace)
    made = _csi("#".join(parts), old, sharename=share)
    return {**made, "nodeStageSecretRef": {"name": secret, "namespace": namespace}}


def _cinder(old: _Old) -> dict[str, Any]:
    return _csi(old.text("volumeID"), old)


def _vsphere(old: _Old) -> dict[str, Any]:
    policy = old.text("storagePolicyName")
    return _csi(old.text("volumePath"), old, **({"storagepolicyname": policy} if policy else {}))


def _portworx(old: _Old) -> dict[str, Any]:
    made = {**_csi(old.text("volumeID"), old), "readOnly": False}
    name, namespace = (old.annotations.get(key) for key in _PORTWORX_SECRET)
    if name is None or namespace is None:
        return made
    secret = {"name": name, "namespace": namespace}
    uses = ("nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef")
    return {**made, **dict.fromkeys(uses, secret)}


def _after(driver: str, field: str) -> Callable[[_Old, str], str]:
    return lambda old, handle: f"{driver}-{old.text(field)}"


def _by_use(old: _Old) -> str:
    return "ReadOnlyMany" if old.source.get("readOnly") else "ReadWriteOnce"


KINDS: Mapping[str, _Kind] = {
    "awsElasticBlockStore": _Kind(
        "ebs.csi.aws.com",
        _ebs,
        "topology.ebs.csi.aws.com/zone",
        inline_name=lambda old, handle: f"ebs.csi.aws.com-{handle}",
    ),
    "gcePersistentDisk": _Kind(
        "pd.csi.storage.gke.io",
        _gce,
        "topology.gke.io/zone",
        modes=_gce_modes,
        inline_name=_after("pd.csi.storage.gke.io", "pdName"),
        inline_mode=_by_use,
    ),
    "azureDisk": _Kind("disk.csi.azure.com", _azure_disk),
    "azureFile": _Kind("file.csi.azure.com", _azure_file, inline_mode=lambda old: "ReadWriteMany"),
    "cinder": _Kind(
        "cinder.csi.openstack.org",
        _cinder,
        "topology.cinder.csi.openstack.org/zone",
        inline_name=_after("cinder.csi.openstack.org", "volumeID"),
    ),
    "vsphereVolume": _Kind(
        "csi.vsphere.vmware.com",
        _vsphere,
        "topology.csi.vmware.com/zone",
        "topology.csi.vmware.com/region",
        inline_name=_after("csi.vsphere.vmware.com", "volumePath"),
    ),
    "portworxVolume": _Kind(
        "pxd.portworx.com",
        _portworx,
        inline_name=_after("pxd.portworx.com", "volumeID"),
        inline_mode=_by_use,
    ),
}
"""In-tree kinds that became CSI drivers, by their field in a PV or a pod."""

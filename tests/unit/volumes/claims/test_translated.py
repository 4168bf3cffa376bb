"""Volumes of cloud providers, translated to the sources of CSI drivers."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kubeletpy.volumes.claims.model import WaitCause, Waits
from kubeletpy.volumes.claims.resolve import CLOUD_KINDS, ClaimVolume, resolve
from kubeletpy.volumes.claims.translated import KINDS, Untranslatable, translated, translated_inline
from kubeletpy.volumes.csi.objects import MIGRATED
from tests.kit.volumes import Csi, claim, pod, pv, volume

GA, BETA = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
GA_REGION = "topology.kubernetes.io/region"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
SECRET = "azure-storage-account-acc-secret"


def of(field: str, source: dict[str, Any], metadata: Any = None, **spec: Any) -> dict[str, Any]:
    found = pv({field: source}, **spec)
    found["metadata"].update(metadata or {})
    before = deepcopy(found)
    made = translated(found)
    assert found == before, "what is handed in is never changed"
    assert field not in made["spec"]
    return dict(made["spec"])


@pytest.mark.parametrize(
    ("field", "source", "driver", "handle", "attributes"),
    [
        (
            "awsElasticBlockStore",
            {"volumeID": "vol-1"},
            "ebs.csi.aws.com",
            "vol-1",
            {"partition": "0"},
        ),
        (
            "awsElasticBlockStore",
            {"volumeID": "aws://eu-1a/vol-2", "partition": 3},
            "ebs.csi.aws.com",
            "vol-2",
            {"partition": "3"},
        ),
        ("awsElasticBlockStore", {"volumeID": "x/1"}, "ebs.csi.aws.com", "x/1", {"partition": "0"}),
        (
            "gcePersistentDisk",
            {"pdName": "d"},
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
            {"partition": ""},
        ),
        (
            "azureDisk",
            {"diskURI": "/sub/x", "kind": "managed", "cachingMode": "None", "fsType": "xfs"},
            "disk.csi.azure.com",
            "/sub/x",
            {"kind": "Managed", "cachingmode": "None", "fstype": "xfs"},
        ),
        ("azureDisk", {"diskURI": "/sub/x"}, "disk.csi.azure.com", "/sub/x", {"kind": "Managed"}),
        (
            "azureFile",
            {"secretName": SECRET, "shareName": "s"},
            "file.csi.azure.com",
            "#acc#s#pv1#ns",
            {"sharename": "s"},
        ),
        ("cinder", {"volumeID": "c"}, "cinder.csi.openstack.org", "c", {}),
        (
            "vsphereVolume",
            {"volumePath": "[d] v.vmdk", "storagePolicyName": "p"},
            "csi.vsphere.vmware.com",
            "[d] v.vmdk",
            {"storagepolicyname": "p"},
        ),
        ("vsphereVolume", {"volumePath": "[d] v"}, "csi.vsphere.vmware.com", "[d] v", {}),
        ("portworxVolume", {"volumeID": "w", "readOnly": True}, "pxd.portworx.com", "w", {}),
    ],
)
def test_the_csi_source_for_a_driver(
    field: str, source: dict[str, Any], driver: str, handle: str, attributes: dict[str, str]
) -> None:
    csi = of(field, source)["csi"]
    assert (csi["driver"], csi["volumeHandle"]) == (driver, handle)
    assert csi["volumeAttributes"] == attributes
    assert csi["fsType"] == source.get("fsType", "")
    assert csi["readOnly"] is False


@pytest.mark.parametrize("key", [GA, BETA])
@pytest.mark.parametrize(
    ("zones", "place"),
    [("eu-west1-b", "zones/eu-west1-b"), ("eu-west1-b__eu-west1-c", "regions/eu-west1")],
)
def test_where_a_disk_is(zones: str, place: str, key: str) -> None:
    spec = of("gcePersistentDisk", {"pdName": "d"}, {"labels": {key: zones}})
    assert spec["csi"]["volumeHandle"] == f"projects/UNSPECIFIED/{place}/disks/d"
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    desired = {"key": "topology.gke.io/zone", "operator": "In", "values": zones.split("__")}
    assert term["matchExpressions"] == [desired]


@pytest.mark.parametrize("key", [GA, BETA])
def test_zones_get_the_names_of_the_driver(key: str) -> None:
    other = {"key": "disk", "operator": "Exists"}
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": ["z"]}, other]}]
    affinity = {"required": {"nodeSelectorTerms": terms}}
    spec = of("cinder", {"volumeID": "c"}, {"labels": {key: "another"}}, nodeAffinity=affinity)
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    desired = {"key": "topology.cinder.csi.openstack.org/zone", "operator": "In", "values": ["z"]}
    assert term["matchExpressions"] == [desired, other]


def test_all_of_a_key_are_renamed_when_one_has_values() -> None:
    terms = [
        {"matchExpressions": [{"key": GA, "operator": "In", "values": ["z"]}]},
        {"matchExpressions": [{"key": GA, "operator": "Exists"}]},
    ]
    affinity = {"required": {"nodeSelectorTerms": terms}}
    spec = of("cinder", {"volumeID": "c"}, {"labels": {GA: "another"}}, nodeAffinity=affinity)
    found = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    keys = {each["key"] for term in found for each in term["matchExpressions"]}
    assert keys == {"topology.cinder.csi.openstack.org/zone"}


@pytest.mark.parametrize("old", [GA, BETA])
def test_a_region_keeps_its_name_where_the_driver_has_none(old: str) -> None:
    region = {GA: GA_REGION, BETA: BETA_REGION}[old]
    terms = [
        {
            "matchExpressions": [
                {"key": old, "operator": "In", "values": ["z"]},
                {"key": region, "operator": "In", "values": ["r"]},
            ]
        }
    ]
    affinity = {"required": {"nodeSelectorTerms": terms}}
    labels = {old: "z", region: "r"}
    spec = of("cinder", {"volumeID": "c"}, {"labels": labels}, nodeAffinity=affinity)
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "topology.cinder.csi.openstack.org/zone", "operator": "In", "values": ["z"]},
        {"key": GA_REGION, "operator": "In", "values": ["r"]},
    ]


def test_where_it_can_be_used_stays_without_zones() -> None:
    assert of("cinder", {"volumeID": "c"})["nodeAffinity"] is None
    source = {"secretName": SECRET, "shareName": "s"}
    assert "nodeAffinity" not in of("azureFile", source, {"labels": {GA: "z"}})


def test_zone_and_region_of_vsphere() -> None:
    labels = {GA: "z__1", "topology.kubernetes.io/region": "r"}
    spec = of("vsphereVolume", {"volumePath": "v"}, {"labels": labels})
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert [(each["key"], each["values"]) for each in term["matchExpressions"]] == [
        ("topology.csi.vmware.com/zone", ["z__1"]),
        ("topology.csi.vmware.com/region", ["r"]),
    ]


@pytest.mark.parametrize(
    ("modes", "mode"),
    [
        (["ReadWriteMany"], "ReadWriteOnce"),
        (["ReadOnlyMany"], "ReadOnlyMany"),
        (["ReadOnlyMany", "ReadWriteOnce"], "ReadWriteOnce"),
    ],
)
def test_a_disk_of_gce_has_one_mode(modes: list[str], mode: str) -> None:
    assert of("gcePersistentDisk", {"pdName": "d"}, accessModes=modes)["accessModes"] == [mode]


def test_a_disk_of_gce_without_modes_has_none() -> None:
    assert of("gcePersistentDisk", {"pdName": "d"}, accessModes=[])["accessModes"] == []


def test_secrets() -> None:
    source = {"secretName": "plain", "secretNamespace": "other", "shareName": "s"}
    group = {"annotations": {"kubernetes.io/azure-file-resource-group": "g"}}
    csi = of("azureFile", source, group)["csi"]
    assert csi["volumeHandle"] == "g#plain#s#pv1#other"
    assert csi["nodeStageSecretRef"] == {"name": "plain", "namespace": "other"}
    notes = {"openstorage.io/auth-secret-name": "n", "openstorage.io/auth-secret-namespace": "m"}
    csi = of("portworxVolume", {"volumeID": "w"}, {"annotations": notes})["csi"]
    assert csi["nodePublishSecretRef"] == {"name": "n", "namespace": "m"}
    for key in notes:
        csi = of("portworxVolume", {"volumeID": "w"}, {"annotations": {key: "n"}})["csi"]
        assert not [field for field in csi if field.endswith("SecretRef")]
    with pytest.raises(Untranslatable, match="neither its source nor its claim names a namespace"):
        of("azureFile", {"secretName": SECRET, "shareName": "s"}, claimRef={"name": "data"})


@pytest.mark.parametrize(
    ("field", "source", "labels"),
    [
        ("awsElasticBlockStore", {"volumeID": "aws://z/disk"}, {}),
        ("gcePersistentDisk", {"pdName": "d"}, {GA: "a-b-c__x-y-z"}),
        ("gcePersistentDisk", {"pdName": "d"}, {GA: "a-b__a-b"}),
        ("azureDisk", {"diskURI": "u", "kind": "Dedicated"}, {}),
    ],
)
def test_volumes_that_cannot_be_translated(field: str, source: Any, labels: Any) -> None:
    with pytest.raises(Untranslatable, match=field):
        of(field, source, {"labels": labels})


def test_other_volumes_are_not_translated() -> None:
    found = pv({"nfs": {"server": "s", "path": "/"}})
    assert translated(found) is found


def test_the_kinds_are_those_that_the_node_reports() -> None:
    assert len(KINDS) == len(MIGRATED.split(","))
    assert KINDS.keys() == CLOUD_KINDS


@pytest.mark.parametrize(
    ("field", "source", "name", "mode"),
    [
        ("awsElasticBlockStore", {"volumeID": "vol-1"}, "ebs.csi.aws.com-vol-1", "ReadWriteOnce"),
        (
            "gcePersistentDisk",
            {"pdName": "d", "readOnly": True},
            "pd.csi.storage.gke.io-d",
            "ReadOnlyMany",
        ),
        ("gcePersistentDisk", {"pdName": "d"}, "pd.csi.storage.gke.io-d", "ReadWriteOnce"),
        ("azureDisk", {"diskURI": "/sub/x"}, "/sub/x", "ReadWriteOnce"),
        ("azureFile", {"secretName": SECRET, "shareName": "s"}, "#acc#s#v#ns", "ReadWriteMany"),
        (
            "azureFile",
            {"secretName": "k", "secretNamespace": "other", "shareName": "s"},
            "#k#s#v#ns",
            "ReadWriteMany",
        ),
    ],
)
def test_in_a_pod(field: str, source: Any, name: str, mode: str) -> None:
    made = translated_inline(field, source, "v", "ns")
    assert made["metadata"]["name"] == name
    assert made["spec"]["accessModes"] == [mode]


def test_resolved_as_a_volume_of_the_driver() -> None:
    found = pv({"cinder": {"volumeID": "c"}})
    got = resolve(pod(), volume(), [Csi()], claim=claim(), pv=found)
    assert not isinstance(got, Waits)
    assert (got.kind, got.driver, got.handle) == ("csi", "cinder.csi.openstack.org", "c")
    assert got.migrated
    source = {"volumeID": "c", "readOnly": True}
    inline = resolve(pod(), volume("cinder", **source), [Csi()])
    assert not isinstance(inline, Waits)
    assert (inline.spec_name, inline.handle) == ("cinder.csi.openstack.org-c", "c")
    assert (inline.read_only, inline.inline, inline.migrated) == (True, False, True)
    nobody = resolve(pod(), volume("cinder", **source), [])
    assert isinstance(nobody, Waits)
    assert nobody.object == 'volume "v" of pod "ns/p"', "there is no such PersistentVolume"
    wrong = resolve(
        pod(),
        ClaimVolume("v", "azureDisk", {"diskURI": "u", "kind": "Shared"}, True, False),
        [Csi()],
    )
    assert isinstance(wrong, Waits)
    assert wrong.cause is WaitCause.INVALID

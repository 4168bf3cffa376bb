"""The disk that an iSCSI source names, its directory on the node, and the file there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletpy.volumes.intree.iscsi.target import (
    DISCOVERY_KEYS,
    SESSION_KEYS,
    IscsiDisk,
    PathsVerdict,
    chap_problem,
    disk_at,
    disk_of,
    from_file,
    link_name,
    problem,
    settings_in,
    shares_session,
    to_file,
    transport_in,
    unique_name,
    verdict,
    with_port,
    with_values,
)

IQN = "iqn.2026-01.test:one"
LONG = IQN + "x" * 255
SOURCE = {"targetPortal": "10.0.0.1", "iqn": IQN, "lun": 2}


def source(**changes: Any) -> dict[str, Any]:
    return {**SOURCE, **changes}


@pytest.mark.parametrize(
    ("portal", "whole"),
    [
        ("10.0.0.1", "10.0.0.1:3260"),
        ("10.0.0.1:1", "10.0.0.1:1"),
        ("[fd00::1]", "[fd00::1]:3260"),
        ("[fd00::1]:1", "[fd00::1]:1"),
    ],
)
def test_portals_have_a_port(portal: str, whole: str) -> None:
    assert with_port(portal) == whole


def test_a_disk_and_its_directory_name() -> None:
    disk = disk_of(source(portals=["10.0.0.2", "10.0.0.1:3260"]), "pv1")
    assert disk.portals == ("10.0.0.1:3260", "10.0.0.2:3260")
    assert disk.place == f"iface-default/10.0.0.1:3260-{IQN}-lun-2"
    assert not disk.owns_iface
    own = disk_of(source(initiatorName="iqn.2026-01.me:x", iscsiInterface="eth"), "pv1")
    assert (own.iface, own.base_iface, own.owns_iface) == ("10.0.0.1:3260:pv1", "eth", True)
    assert own.place == f"iface-10.0.0.1:3260:pv1/10.0.0.1:3260-{IQN}-lun-2"


def test_its_name_is_written_as_the_source_is() -> None:
    assert unique_name(SOURCE) == f"kubernetes.io/iscsi/10.0.0.1:{IQN}:2"
    assert unique_name(source(lun=None)) == f"kubernetes.io/iscsi/10.0.0.1:{IQN}:0"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targetPortal": None}, "None is no portal"),
        ({"targetPortal": "-I"}, "'-I' is no portal"),
        ({"targetPortal": "a b"}, "'a b' is no portal"),
        ({"targetPortal": "../x"}, "'../x' is no portal"),
        ({"portals": ["10.0.0.2", "--login"]}, "'--login' is no portal"),
        ({"iqn": None}, "None is no name of a target"),
        ({"iqn": "one"}, "'one' is no name of a target"),
        ({"iqn": f"{IQN}/../../b"}, f"'{IQN}/../../b' is no name of a target"),
        ({"lun": "2"}, "'2' is no LUN"),
        ({"lun": 256}, "256 is no LUN"),
        ({"lun": -1}, "-1 is no LUN"),
        ({"iscsiInterface": "../default"}, "'../default' is no iscsiInterface"),
        ({"initiatorName": "-x"}, "'-x' is no initiatorName"),
        ({"initiatorName": 5}, "5 is no initiatorName"),
        ({"iscsiInterface": ["default"]}, "['default'] is no iscsiInterface"),
    ],
)
def test_invalid_sources(changes: dict[str, Any], message: str) -> None:
    assert problem(source(**changes), "pv1") == f"iscsi: {message}"
    assert problem(SOURCE, "pv1") == ""
    assert problem(source(iqn=LONG), "pv1").endswith("cannot be part of a path")


@pytest.mark.parametrize(
    ("place", "portal", "iqn", "lun"),
    [
        (f"iface-default/10.0.0.1:3260-{IQN}-lun-2", "10.0.0.1:3260", IQN, 2),
        (f"iface-x/san-1.example:3260-{IQN}-lun-0", "san-1.example:3260", IQN, 0),
        ("iface-x/[fd00::1]:3260-eui.02004567-lun-1", "[fd00::1]:3260", "eui.02004567", 1),
        (f"iface-x/h:1-{IQN}-lun-3-lun-4", "h:1", f"{IQN}-lun-3", 4),
    ],
)
def test_the_disk_read_from_a_directory_name(place: str, portal: str, iqn: str, lun: int) -> None:
    disk = disk_at(place, "pv1")
    assert disk is not None
    assert (disk.portals, disk.iqn, disk.lun) == ((portal,), iqn, lun)
    assert disk.place == place


@pytest.mark.parametrize(
    "place", ["", "iface-default", f"default/1:1-{IQN}-lun-1", "iface-default/1:1-x-lun-1"]
)
def test_invalid_directory_names(place: str) -> None:
    assert disk_at(place, "pv1") is None


def test_the_file_is_the_kubelets() -> None:
    disk = disk_of(source(portals=["10.0.0.2"], initiatorName="iqn.2026-01.me:x"), "pv1")
    text = to_file(disk)
    assert text.endswith("}\n")
    assert json.loads(text) == {
        "VolName": "pv1",
        "Portals": ["10.0.0.1:3260", "10.0.0.2:3260"],
        "Iqn": IQN,
        "Lun": "2",
        "InitIface": "default",
        "Iface": "10.0.0.1:3260:pv1",
        "InitiatorName": "iqn.2026-01.me:x",
        "MetricsProvider": None,
    }
    at = disk_at(disk.place, "pv1")
    assert at is not None
    assert from_file(text, at) == disk
    plain = disk_of(source(iscsiInterface="eth"), "pv1")
    assert from_file(to_file(plain), at) == plain


@pytest.mark.parametrize(
    "changes",
    [
        {"Portals": []},
        {"Portals": ["-x"]},
        {"Iqn": "iqn.other"},
        {"Lun": "9"},
        {"Lun": "x"},
        {"Iface": "a b"},
        {"Iface": None},
        {"InitIface": "a b"},
        {"VolName": 1},
        {"InitiatorName": "-o"},
    ],
)
def test_a_file_that_is_no_use(changes: dict[str, Any]) -> None:
    disk = disk_of(SOURCE, "pv1")
    text = json.dumps({**json.loads(to_file(disk)), **changes})
    at = IscsiDisk("", ("a:1",), IQN, 2)
    assert from_file(text, at) == at
    assert from_file("{", at) == at
    assert from_file("[" * 100_000, at) == at


@pytest.mark.parametrize(
    ("portal", "transport", "name"),
    [
        ("10.0.0.1:3260", "tcp", f"ip-10.0.0.1:3260-iscsi-{IQN}-lun-2"),
        ("[fd00::1]:3260", "tcp", f"ip-fd00::1:3260-iscsi-{IQN}-lun-2"),
        ("10.0.0.1:3260", "bnx2i", f"pci-*-ip-10.0.0.1:3260-iscsi-{IQN}-lun-2"),
    ],
)
def test_its_link(portal: str, transport: str, name: str) -> None:
    assert link_name(disk_of(SOURCE, "pv1"), portal, transport) == name


@pytest.mark.parametrize(
    ("found", "desired", "rounds", "stated"),
    [
        (0, 1, 1, PathsVerdict.FAILED),
        (0, 3, 1, PathsVerdict.FAILED),
        (1, 1, 1, PathsVerdict.GO_ON),
        (3, 3, 1, PathsVerdict.GO_ON),
        (1, 3, 4, PathsVerdict.AGAIN),
        (1, 3, 5, PathsVerdict.GO_ON),
        (2, 3, 1, PathsVerdict.AGAIN),
        (2, 3, 2, PathsVerdict.GO_ON),
        (2, 3, 3, PathsVerdict.GO_ON),
        (3, 4, 1, PathsVerdict.AGAIN),
        (3, 4, 2, PathsVerdict.GO_ON),
        (1, 3, 6, PathsVerdict.GO_ON),
        (1, 2, 2, PathsVerdict.AGAIN),
    ],
)
def test_whether_paths_are_enough(
    found: int, desired: int, rounds: int, stated: PathsVerdict
) -> None:
    assert verdict(found, desired, rounds) is stated


def test_volumes_that_share_a_session() -> None:
    one = disk_of(source(portals=["10.0.0.2"]), "pv1")
    assert shares_session(one, disk_of(source(targetPortal="10.0.0.2", lun=5), "pv2"))
    assert not shares_session(one, disk_of(source(targetPortal="10.0.0.3"), "pv2"))
    assert not shares_session(one, disk_of(source(iqn=f"{IQN}more"), "pv2"))


@pytest.mark.parametrize(
    "value", ["a\nnode.session.auth.password = x", " zq", "zq ", "<empty>", "x" * 256, "\x1b[m"]
)
def test_secrets_that_no_record_can_hold(value: str) -> None:
    for key in (DISCOVERY_KEYS[1], SESSION_KEYS[1]):
        stated = chap_problem({key: value}, (*DISCOVERY_KEYS, *SESSION_KEYS))
        assert key in stated
        assert value not in stated
    assert chap_problem({SESSION_KEYS[1]: "a b=c # d"}, SESSION_KEYS) == ""
    assert chap_problem({SESSION_KEYS[1]: "x" * 255}, SESSION_KEYS) == ""
    assert chap_problem({DISCOVERY_KEYS[1]: value}, SESSION_KEYS) == "", "it is not written"


@pytest.mark.parametrize("lun", [None, 0, 1, 255])
def test_luns(lun: int | None) -> None:
    assert problem(source(lun=lun), "pv1") == ""
    assert disk_of(source(lun=lun), "pv1").lun == (lun or 0)


@pytest.mark.parametrize(
    ("initiator", "iface", "owns"),
    [
        ("", "10.0.0.1:3260:pv1", False),
        ("iqn.2026-01.me:x", "default", False),
        ("iqn.2026-01.me:x", "10.0.0.1:3260:pv2", False),
        ("iqn.2026-01.me:x", "10.0.0.1:3260:pv1", True),
    ],
)
def test_an_iface_of_its_own(initiator: str, iface: str, owns: bool) -> None:
    disk = IscsiDisk("pv1", ("10.0.0.1:3260",), IQN, 2, iface, "default", initiator)
    assert disk.owns_iface is owns


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", '{"Portals": 5, "Lun": "2"}', "[" * 10**5, '{"Portals": ["a:1"]}'],
)
def test_an_invalid_file_is_ignored(text: str) -> None:
    at = IscsiDisk("", ("a:1",), IQN, 2)
    assert from_file(text, at) is at


def test_a_record_with_other_values() -> None:
    record = "# BEGIN RECORD\na.b = 1\nc = old = x\n# END RECORD\n"
    assert with_values(record, {"c": "new", "d": "e f", "a.b": ""}) == (
        "# BEGIN RECORD\nc = new\nd = e f\n# END RECORD\n"
    )
    assert with_values("", {"c": "x"}) == "c = x\n"


def test_settings_of_an_iface_from_iscsiadm() -> None:
    reported = "# BEGIN\niface.iscsi_ifacename = d\niface.transport_name = {}\niface.mtu = 0\n"
    assert transport_in(reported.format("be2iscsi")) == "be2iscsi"
    assert transport_in(reported.format("<empty>")) == "tcp"
    assert transport_in("") == ""
    more = reported.format("tcp") + "iface.gateway = <empty>\nnode.startup = manual\n"
    assert settings_in(more) == {"iface.transport_name": "tcp", "iface.mtu": "0"}

"""An iSCSI volume: its target, its portals, its places on disk, its file.

Pure. Names come from the API: a name that could lead elsewhere, or be an option of a program, is
refused. Source: docs/reference/behaviour-storage.md, sc1, sj, sq.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy.volumes.files.paths import UnsafePath, safe_name

PLUGIN = "kubernetes.io/iscsi"
FILE = "iscsi.json"
PORT = "3260"
MAX_LUN = 255
DEFAULT_IFACE = "default"
_WORD = re.compile(r"[^\s/-][^\s/]*")
"""A command argument that is not an option, and a path component."""
_IQN = re.compile(r"(iqn|eui|naa)\.[^\s/]+")
_PLACE = re.compile(r"(?P<portal>.+?)-(?P<iqn>(?:iqn|eui|naa)\..+)-lun-(?P<lun>[0-9]{1,5})")

DISCOVERY_KEYS = tuple(
    f"discovery.sendtargets.auth.{each}"
    for each in ("username", "password", "username_in", "password_in")
)
SESSION_KEYS = tuple(
    f"node.session.auth.{each}" for each in ("username", "password", "username_in", "password_in")
)
"""Keys of a secret, and names in iscsiadm's records."""
MAX_CHAP = 255
"""Characters allowed in a record."""

MAX_ROUNDS = 5
"""How often all missing paths of a volume are retried."""
ENOUGH_PATHS = 2
ENOUGH_ROUNDS = 2


class IscsiDisk(Struct, frozen=True):
    """A LUN of a target."""

    spec_name: str
    portals: tuple[str, ...]
    """Each with a port; at least one."""
    iqn: str
    lun: int
    iface: str = DEFAULT_IFACE
    base_iface: str = DEFAULT_IFACE
    """The iface that ``iface`` copies, with another initiator name."""
    initiator: str = ""

    @property
    def place(self) -> str:
        """Its directory below that of the plugin."""
        return f"iface-{self.iface}/{self.portals[0]}-{self.iqn}-lun-{self.lun}"

    @property
    def owns_iface(self) -> bool:
        """Whether the iface was made for this volume."""
        return bool(self.initiator) and self.iface == f"{self.portals[0]}:{self.spec_name}"


def disk_of(source: Mapping[str, Any], spec_name: str) -> IscsiDisk:
    """The disk that a source names; requires that it has no :func:`problem`."""
    portals = [source.get("targetPortal"), *(source.get("portals") or ())]
    each = tuple(dict.fromkeys(with_port(str(portal)) for portal in portals))
    base = str(source.get("iscsiInterface") or DEFAULT_IFACE)
    initiator = str(source.get("initiatorName") or "")
    return IscsiDisk(
        spec_name,
        each,
        str(source["iqn"]),
        int(source.get("lun") or 0),
        f"{each[0]}:{spec_name}" if initiator else base,
        base,
        initiator,
    )


def problem(source: Mapping[str, Any], spec_name: str) -> str:
    """Why a source is invalid; empty: it is valid."""
    portals = [source.get("targetPortal"), *(source.get("portals") or ())]
    for portal in portals:
        if not isinstance(portal, str) or _WORD.fullmatch(portal) is None:
            return f"iscsi: {portal!r} is no portal"
    iqn, lun = source.get("iqn"), source.get("lun")
    if not isinstance(iqn, str) or _IQN.fullmatch(iqn) is None:
        return f"iscsi: {iqn!r} is no name of a target"
    if lun is not None and (not isinstance(lun, int) or not 0 <= lun <= MAX_LUN):
        return f"iscsi: {lun!r} is no LUN"
    for key in ("iscsiInterface", "initiatorName"):
        word = source.get(key) or "x"
        if not isinstance(word, str) or _WORD.fullmatch(word) is None:
            return f"iscsi: {word!r} is no {key}"
    try:
        for part in disk_of(source, spec_name).place.split("/"):
            safe_name(part)
    except UnsafePath as error:
        return f"iscsi: {error}"
    return ""


def unique_name(source: Mapping[str, Any]) -> str:
    """The attach controller's name of it: the portal is written as in the source."""
    return f"{PLUGIN}/{source.get('targetPortal')}:{source.get('iqn')}:{source.get('lun') or 0}"


def with_port(portal: str) -> str:
    """A portal with its explicit or default port."""
    return portal if ":" in portal.rpartition("]")[2] else f"{portal}:{PORT}"


def disk_at(place: str, spec_name: str) -> IscsiDisk | None:
    """The disk that directory names stand for; None: none."""
    iface, _, name = place.partition("/")
    found = _PLACE.fullmatch(name)
    if found is None or not iface.startswith("iface-"):
        return None
    own = iface.removeprefix("iface-")
    return IscsiDisk(spec_name, (found["portal"],), found["iqn"], int(found["lun"]), own, own)


def to_file(disk: IscsiDisk) -> str:
    """The text of the kubelet's ``iscsi.json`` for a disk."""
    return (
        json.dumps(
            {
                "VolName": disk.spec_name,
                "Portals": disk.portals,
                "Iqn": disk.iqn,
                "Lun": str(disk.lun),
                "InitIface": disk.base_iface,
                "Iface": disk.iface,
                "InitiatorName": disk.initiator,
                "MetricsProvider": None,
            },
            separators=(",", ":"),
        )
        + "\n"
    )


def from_file(text: str, at: IscsiDisk) -> IscsiDisk:
    """A disk by its ``iscsi.json``; ``at``, derived from its place, where that is unusable."""
    try:
        found = json.loads(text)
        portals, lun = tuple(found["Portals"]), int(found["Lun"])
        name, iqn, iface = found["VolName"], found["Iqn"], found["Iface"]
        base, initiator = found["InitIface"], found["InitiatorName"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return at
    parts = [*portals, iface, base, initiator or "x"]
    if not portals or not all(isinstance(w, str) and _WORD.fullmatch(w) for w in parts):
        return at
    if (iqn, lun) != (at.iqn, at.lun) or not isinstance(name, str):
        return at
    return IscsiDisk(name, portals, iqn, lun, iface, base, initiator)


def link_name(disk: IscsiDisk, portal: str, transport: str) -> str:
    """udev's name of the disk in ``/dev/disk/by-path``; ``*`` stands for unknown parts."""
    address = portal.replace("[", "").replace("]", "")
    device = f"ip-{address}-iscsi-{disk.iqn}-lun-{disk.lun}"
    return device if transport == "tcp" else f"pci-*-{device}"


def shares_session(one: IscsiDisk, other: IscsiDisk) -> bool:
    """Whether two disks share a session."""
    return one.iqn == other.iqn and not set(one.portals).isdisjoint(other.portals)


class PathsVerdict(StrEnum):
    """The next action after all missing paths were tried."""

    AGAIN = "again"
    GO_ON = "go on"
    FAILED = "failed"


def verdict(found: int, desired: int, rounds: int) -> PathsVerdict:
    """Whether the paths found are enough; ``rounds``: how often missing ones were tried."""
    if not found:
        return PathsVerdict.FAILED
    if found == desired or rounds >= MAX_ROUNDS:
        return PathsVerdict.GO_ON
    enough = found >= ENOUGH_PATHS and rounds >= ENOUGH_ROUNDS
    return PathsVerdict.GO_ON if enough else PathsVerdict.AGAIN


def chap_problem(secret: Mapping[str, str], keys: tuple[str, ...]) -> str:
    """Why the values of a secret can't be written into a record; empty: they can. Must never show a
    value.
    """
    for key in keys:
        value = secret.get(key, "")
        if len(value) > MAX_CHAP or not value.isprintable() or value != value.strip():
            return f"the secret's {key} is too long, not one line, or has blanks around it"
        if value == "<empty>":
            return f"the secret's {key} can't be written into a record"
    return ""


def with_values(record: str, values: Mapping[str, str]) -> str:
    """A record of iscsiadm (lines ``name = value``) with changed values; empty ones are dropped."""
    kept = [
        line for line in record.split("\n") if line and line.partition("=")[0].strip() not in values
    ]
    end = next((n for n, line in enumerate(kept) if line.startswith("# END RECORD")), len(kept))
    made = [f"{key} = {value}" for key, value in values.items() if value]
    return "\n".join([*kept[:end], *made, *kept[end:]]) + "\n"


def transport_in(reported: str) -> str:
    """The transport in the output of ``iscsiadm -m iface -o show``; empty: none."""
    return _reported(reported).get("iface.transport_name", "")


def settings_in(reported: str) -> dict[str, str]:
    """The settings of an iface, except its name."""
    found = {key: value for key, value in _reported(reported).items() if value}
    return {key: value for key, value in found.items() if key != "iface.iscsi_ifacename"}


def _reported(text: str) -> dict[str, str]:
    found = {}
    for line in text.split("\n"):
        key, _, value = line.partition(" = ")
        if key.startswith("iface."):
            value = value.strip()
            empty = "tcp" if key == "iface.transport_name" else ""
            found[key] = empty if value == "<empty>" else value
    return found

"""Answers iscsiadm's calls, and makes sessions and disks appear in trees like the kernel's.

Everything is kept in files, so that each call can be a process of its own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

AUTH_FAILED, EXISTS, NO_RECORD, UNREACHABLE, USAGE = 24, 15, 21, 4, 7


class StandIn:
    """One node and one target. ``config`` (a file) describes the target."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sys, self.dev, self.database = (directory / n for n in ("sys", "dev", "db"))
        self._config = directory / "target.json"
        self._calls = directory / "iscsiadm.calls"

    def begin(self, iqn: str, portals: Sequence[str], luns: dict[int, str], **more: Any) -> None:
        """Make the trees. ``luns``: number -> device; more: ``chap``, a dictionary of records'
        values that discovery or login need; ``hidden``, portals without disks."""
        for each in ("class/iscsi_host", "class/scsi_host", "block"):
            (self.sys / each).mkdir(parents=True, exist_ok=True)
        (self.dev / "disk/by-path").mkdir(parents=True, exist_ok=True)
        self.database.mkdir(exist_ok=True)
        self.configure(iqn=iqn, portals=list(portals), luns=luns, **more)

    def configure(self, **config: Any) -> None:
        before = json.loads(self._config.read_text()) if self._config.exists() else {}
        self._config.write_text(json.dumps({**before, **config}))

    @property
    def calls(self) -> list[str]:
        """The calls so far, without the options that all of them have."""
        return self._calls.read_text().splitlines() if self._calls.exists() else []

    @property
    def sessions(self) -> list[str]:
        """Portals that a session goes through."""
        found = []
        for each in self.sys.glob("class/iscsi_host/*/device/session*/c*/iscsi_connection/c*"):
            address, port = ((each / name).read_text() for name in ("address", "port"))
            found.append(f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
        return sorted(found)

    def run(self, args: Sequence[str]) -> tuple[int, str]:
        """Exit status and stdout of a call."""
        with self._calls.open("a") as file:
            file.write(" ".join(args) + "\n")
        flags = {each for each in args if each.startswith("--")}
        parts = [each for each in args if each not in flags]
        options = dict(zip(parts[::2], parts[1::2], strict=True))
        mode, act = options["-m"], options.get("-o", next(iter(flags), "").strip("-"))
        config = json.loads(self._config.read_text())
        if mode == "iface":
            return self._iface(options, act)
        if mode == "discoverydb":
            return self._discovery(config, options, act)
        return self._node(config, options, act)

    def _iface(self, options: dict[str, str], act: str) -> tuple[int, str]:
        record = self.database / "ifaces" / options["-I"]
        if act == "new":
            if record.exists():
                return EXISTS, ""
            record.parent.mkdir(exist_ok=True)
            record.write_text(f"iface.iscsi_ifacename = {options['-I']}\n# END RECORD\n")
        elif options["-I"] != "default" and not record.exists():
            return (USAGE if act == "delete" else NO_RECORD), ""
        elif act == "show":
            return 0, (
                "# BEGIN RECORD 2.1.8\niface.iscsi_ifacename = default\n"
                "iface.transport_name = tcp\niface.initiatorname = <empty>\niface.mtu = 0\n"
            )
        elif act == "update":
            _update(record, options["-n"], options["-v"])
        elif act == "delete":
            record.unlink()
        return 0, ""

    def _discovery(self, config: Any, options: dict[str, str], act: str) -> tuple[int, str]:
        address = _address(options["-p"])
        record = self.database / "send_targets" / address / "st_config"
        if act == "new":
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text("# BEGIN RECORD 2.1.8\ndiscovery.startup = manual\n# END RECORD\n")
        elif act == "delete":
            shutil.rmtree(record.parent)
        elif act == "update":
            _update(record, options["-n"], options["-v"])
        elif options["-p"] not in config["portals"]:
            return UNREACHABLE, ""
        elif not _has_credentials(record, config, "discovery."):
            return AUTH_FAILED, ""
        else:
            for portal in config["portals"]:
                place = f"nodes/{config['iqn']}/{_address(portal)},1"
                node = self.database / place / options["-I"]
                node.parent.mkdir(parents=True, exist_ok=True)
                if not node.exists():
                    node.write_text("# BEGIN RECORD 2.1.8\nnode.tpgt = 1\n# END RECORD\n")
            return 0, f"{options['-p']},1 {config['iqn']}\n"
        return 0, ""

    def _node(self, config: Any, options: dict[str, str], act: str) -> tuple[int, str]:
        portal, iqn = options["-p"], options["-T"]
        place = self.database / f"nodes/{iqn}/{_address(portal)},1"
        records = [each for each in place.glob("*") if each.name == options.get("-I", each.name)]
        if act == "logout":
            if portal not in self.sessions:
                return NO_RECORD, ""
            self._end(config, portal)
            return 0, ""
        if not records:
            return NO_RECORD, ""
        for record in records:
            if act == "update":
                _update(record, options["-n"], options["-v"])
            elif act == "delete":
                record.unlink()
            elif act == "login":
                if portal in self.sessions:
                    return EXISTS, ""
                if not _has_credentials(record, config, "node."):
                    return AUTH_FAILED, ""
                self._log_in(config, portal)
        return 0, ""

    def _log_in(self, config: Any, portal: str) -> None:
        number = config["portals"].index(portal)
        host = self.sys / f"class/iscsi_host/host{number}"
        session = host / f"device/session{number}"
        about = session / f"iscsi_session/session{number}"
        link = session / f"connection{number}:0/iscsi_connection/connection{number}:0"
        for each in (about, link, self.sys / f"class/scsi_host/host{number}"):
            each.mkdir(parents=True)
        (about / "targetname").write_text(config["iqn"])
        address, _, port = portal.rpartition(":")
        for name, text in (("address", address.strip("[]")), ("port", port)):
            (link / name).write_text(text)
            (link / f"persistent_{name}").write_text(text)
        (self.sys / f"class/scsi_host/host{number}/scan").touch()
        for lun, device in config["luns"].items():
            name = Path(device).name
            unit = session / f"target{number}:0:0/{number}:0:0:{lun}/block/{name}"
            unit.mkdir(parents=True)
            delete = self.sys / f"block/{name}/device/delete"
            delete.parent.mkdir(parents=True, exist_ok=True)
            delete.touch()
            node = self.dev / name
            if not node.is_symlink():
                node.symlink_to(device)
            if portal not in config.get("hidden", []):
                (self._by_path(config, portal, lun)).symlink_to(f"../../{name}")

    def _end(self, config: Any, portal: str) -> None:
        number = config["portals"].index(portal)
        for each in ("iscsi_host", "scsi_host"):
            shutil.rmtree(self.sys / f"class/{each}/host{number}")
        for lun in config["luns"]:
            self._by_path(config, portal, lun).unlink(missing_ok=True)

    def _by_path(self, config: Any, portal: str, lun: str) -> Path:
        plain = portal.replace("[", "").replace("]", "")
        return self.dev / f"disk/by-path/ip-{plain}-iscsi-{config['iqn']}-lun-{lun}"


def _address(portal: str) -> str:
    address, _, port = portal.rpartition(":")
    return f"{address.strip('[]')},{port}"


def _update(record: Path, name: str, value: str) -> None:
    kept = [line for line in record.read_text().splitlines() if not line.startswith(f"{name} =")]
    record.write_text("\n".join([*kept[:-1], f"{name} = {value}", kept[-1]]) + "\n")


def _has_credentials(record: Path, config: Any, prefix: str) -> bool:
    """Whether a record has all that the target requires."""
    lines = record.read_text().splitlines()
    desired = {k: v for k, v in config.get("chap", {}).items() if k.startswith(prefix)}
    return all(f"{key} = {value}" in lines for key, value in desired.items())

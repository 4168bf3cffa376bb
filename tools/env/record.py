"""Record of what `./up.sh` made, written before it is made, so that `down` removes just that."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.env.cgroup_drivers import CGROUPFS
from tools.env.process import write_whole


@dataclass
class Record:
    """The file `made.json` of a state directory.

    `endpoint` is the CRI socket in use; `private` means that its containerd is ours. `images` were
    imported into somebody else's containerd. `links` are symlinks. `folders` are directories that
    did not exist before, `cgroups` cgroups that did not. `host_ports` means that the portmap
    plugin's shared chains did not exist. `cgroup_driver` is the runtime's, empty if unknown.
    """

    endpoint: str = ""
    private: bool = False
    images: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    cgroups: list[str] = field(default_factory=list)
    host_ports: bool = False
    cgroup_driver: str = CGROUPFS

    @staticmethod
    def read(home: Path) -> Record:
        """The record of a state directory; an empty one when there is none.

        If the file can't be read, the record names only our own containerd, if there is one.
        """
        try:
            return Record(**json.loads((home / "made.json").read_text()))
        except FileNotFoundError:
            return Record()
        except (ValueError, TypeError):
            socket = home / "containerd" / "containerd.sock"
            is_ours = (home / "containerd" / "config.toml").exists()
            ours = Record(endpoint=f"unix://{socket}", private=True, cgroup_driver="")
            return ours if is_ours else Record()

    def write(self, home: Path) -> None:
        """Write the record atomically."""
        write_whole(home / "made.json", json.dumps(asdict(self), indent=2) + "\n")

"""The configuration of a private containerd and its pod network, as text (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.env.images import PAUSE

_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))


@dataclass(frozen=True)
class Network:
    """A pod network of one containerd.

    Attributes:
        name: of the CNI network.
        bridge: the device.
        subnet: IPv4 (CIDR).
        masquerade: pods reach what is outside with the node's address; off where others have
            routes to the subnet.
        host_ports: pods may have them; off where the kernel does not translate addresses.
    """

    name: str
    bridge: str
    subnet: str
    masquerade: bool = True
    host_ports: bool = True


def cni_folder() -> Path | None:
    """Where the CNI plugins are: Debian's folder, or everybody else's; None when there are none."""
    return next((folder for folder in _CNI_FOLDERS if (folder / "bridge").exists()), None)


def render_config(
    directory: Path,
    generation: int,
    sandbox_image: str = PAUSE,
    program: Path | None = None,
    *,
    systemd_cgroup: bool = False,
    handlers: Sequence[str] = (),
) -> str:
    """config.toml: format 2 for containerd 1.x, format 3 for 2.x; all paths under `directory`.

    `program`: another runc than the installed one; `systemd_cgroup`: the cgroup driver is systemd;
    `handlers`: names of more runtime handlers, which run runc too.
    """
    common = {
        "restrict_oom_score_adj": True,
        "netns_mounts_under_state_dir": True,
        "enable_unprivileged_ports": True,
        "enable_unprivileged_icmp": True,
    }
    plugins = str(cni_folder() or _CNI_FOLDERS[0])
    cni = {"conf_dir": str(directory / "cni"), "max_conf_num": 1}
    runc: dict[str, Any] = {"Root": str(directory / "runc"), "SystemdCgroup": systemd_cgroup}
    if program is not None:
        runc["BinaryName"] = str(program)
    certs = {"config_path": str(directory / "certs.d")}
    if generation == 1:
        cri = "io.containerd.grpc.v1.cri"
        tables: list[tuple[tuple[str, ...], Mapping[str, Any]]] = [
            (("plugins", cri), {**common, "sandbox_image": sandbox_image}),
            (("plugins", cri, "cni"), {**cni, "bin_dir": plugins}),
            (("plugins", cri, "registry"), certs),
        ]
    else:
        cri, images = "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images"
        tables = [
            (("plugins", cri), {**common, "cdi_spec_dirs": [str(directory / "cdi")]}),
            (("plugins", cri, "cni"), {**cni, "bin_dirs": [plugins]}),
            (("plugins", images, "pinned_images"), {"sandbox": sandbox_image}),
            (("plugins", images, "registry"), certs),
            (("plugins", "io.containerd.nri.v1.nri"), {"disable": True}),
        ]
    runtimes = ("plugins", cri, "containerd", "runtimes")
    for handler in ("runc", *handlers):
        tables += [
            ((*runtimes, handler), {"runtime_type": "io.containerd.runc.v2"}),
            ((*runtimes, handler, "options"), runc),
        ]
    tables += [
        (("plugins", "io.containerd.internal.v1.opt"), {"path": str(directory / "opt")}),
        (("grpc",), {"address": str(directory / "containerd.sock")}),
    ]
    top = {
        "version": 2 if generation == 1 else 3,
        "root": str(directory / "root"),
        "state": str(directory / "state"),
    }
    parts = [_table((), top), *(_table(path, values) for path, values in tables)]
    return "\n".join(parts)


def render_conflist(network: Network, directory: Path) -> str:
    """The CNI configuration: bridge with host-local addresses, and host ports where they work."""
    bridge = {
        "type": "bridge",
        "bridge": network.bridge,
        "isGateway": True,
        "ipMasq": network.masquerade,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(directory / "ipam"),
            "ranges": [[{"subnet": network.subnet}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    # the end of a pod fails in portmap where there is no table for it
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    plugins = [bridge, portmap] if network.host_ports else [bridge]
    conflist = {"cniVersion": "0.4.0", "name": network.name, "plugins": plugins}
    return json.dumps(conflist, indent=2) + "\n"


def render_hosts(server: str) -> str:
    """hosts.toml of a registry that speaks plain HTTP, such as "127.0.0.1:5000"."""
    return (
        f'server = "http://{server}"\n\n'
        f'[host."http://{server}"]\n  capabilities = ["pull", "resolve"]\n'
    )


def _table(path: tuple[str, ...], values: Mapping[str, Any]) -> str:
    head = ["[" + ".".join(json.dumps(part) for part in path) + "]"] if path else []
    return "\n".join([*head, *(f"{k} = {json.dumps(v)}" for k, v in values.items())]) + "\n"

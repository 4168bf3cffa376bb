"""A private containerd: the texts of its configuration and pod network, and one without root.

The texts are also those of the containerd of ``./up.sh`` and of tests, which runs as root.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kubeletpy.agent.errors import LaunchError
from kubeletpy.agent.rootless import images
from kubeletpy.agent.rootless.possible import NetworkKind, Plan
from kubeletpy.base.structs import Component, Struct

_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))


class Network(Struct, frozen=True):
    """A pod network of one containerd.

    Attributes:
        name: of the CNI network.
        bridge: the device.
        subnet: of IPv4 or IPv6 (CIDR), or one of each family with a comma between.
        masquerade: pods reach what is outside with the node's address; off where others have
            routes to the subnet.
        host_ports: pods may have them; off where the kernel does not translate addresses.
    """

    name: str
    bridge: str
    subnet: str
    masquerade: bool = True
    host_ports: bool = True

    @property
    def has_static_rules(self) -> bool:
        """Whether :func:`masquerade` makes its rules, instead of the plugin for each pod."""
        return self.masquerade and ":" not in self.subnet


def cni_folder() -> Path | None:
    """Where the CNI plugins are: Debian's folder, or everybody else's; None when there are none."""
    return next((folder for folder in _CNI_FOLDERS if (folder / "bridge").exists()), None)


def render_config(
    directory: Path,
    generation: int,
    sandbox_image: str = images.PAUSE,
    program: Path | None = None,
    *,
    systemd_cgroup: bool = False,
    handlers: Sequence[str] = (),
    state: Path | None = None,
    snapshotter: str = "overlayfs",
    cri_settings: Mapping[str, Any] = {},
) -> str:
    """config.toml: format 2 for containerd 1.x, format 3 for 2.x; all paths under `directory`.

    `program`: another runc than the installed one; `systemd_cgroup`: the cgroup driver is systemd;
    `handlers`: names of more runtime handlers, which run runc too; `state`: instead of a directory
    under `directory`; `cri_settings`: more settings of the CRI plugin.
    """
    common = {
        "restrict_oom_score_adj": True,
        "netns_mounts_under_state_dir": True,
        "enable_unprivileged_ports": True,
        "enable_unprivileged_icmp": True,
        **cri_settings,
    }
    plugins = str(cni_folder() or _CNI_FOLDERS[0])
    cni = {"conf_dir": str(directory / "cni"), "max_conf_num": 1}
    runc: dict[str, Any] = {
        "Root": str((state or directory) / "runc"),
        "SystemdCgroup": systemd_cgroup,
    }
    if program is not None:
        runc["BinaryName"] = str(program)
    certs = {"config_path": str(directory / "certs.d")}
    if generation == 1:
        cri = "io.containerd.grpc.v1.cri"
        tables: list[tuple[tuple[str, ...], Mapping[str, Any]]] = [
            (("plugins", cri), {**common, "sandbox_image": sandbox_image}),
            (("plugins", cri, "cni"), {**cni, "bin_dir": plugins}),
            (("plugins", cri, "registry"), certs),
            (("plugins", cri, "containerd"), {"snapshotter": snapshotter}),
        ]
    else:
        cri, pulls = "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images"
        tables = [
            (("plugins", cri), {**common, "cdi_spec_dirs": [str(directory / "cdi")]}),
            # what the plugin does, without two more processes for each pod
            (
                ("plugins", cri, "cni"),
                {**cni, "bin_dirs": [plugins], "use_internal_loopback": True},
            ),
            (("plugins", pulls, "pinned_images"), {"sandbox": sandbox_image}),
            (("plugins", pulls, "registry"), certs),
            (("plugins", pulls), {"snapshotter": snapshotter}),
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
        "state": str(state or directory / "state"),
    }
    parts = [_table((), top), *(_table(path, values) for path, values in tables)]
    return "\n".join(parts)


def render_conflist(network: Network, directory: Path) -> str:
    """The CNI configuration: bridge with host-local addresses, and host ports where they work."""
    subnets = network.subnet.split(",")
    bridge = {
        "type": "bridge",
        "bridge": network.bridge,
        "isGateway": True,
        "ipMasq": network.masquerade and not network.has_static_rules,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(directory / "ipam"),
            "ranges": [[{"subnet": each}] for each in subnets],
            "routes": [{"dst": "::/0" if ":" in each else "0.0.0.0/0"} for each in subnets],
        },
    }
    # the end of a pod fails in portmap where there is no table for it
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    plugins = [bridge, portmap] if network.host_ports else [bridge]
    conflist = {"cniVersion": "0.4.0", "name": network.name, "plugins": plugins}
    return json.dumps(conflist, indent=2) + "\n"


_MULTICAST = "224.0.0.0/4"


def masquerade(network: Network, environment: Mapping[str, str]) -> None:
    """Let the pods of an IPv4 network reach what is outside with the node's address.

    The rules are those that the bridge plugin makes for each pod, with the subnet in place of an
    address. Rules that exist stay. Raises LaunchError.
    """
    if not network.has_static_rules:
        return
    chain = f"CNI-{network.name}"
    note = ("-m", "comment", "--comment", f'name: "{network.name}"')
    jump = ("POSTROUTING", "-s", network.subnet, *note, "-j", chain)
    if not _iptables(environment, "-C", *jump):
        return
    _iptables(environment, "-N", chain)  # it exists if another start was ended midway
    for rule in (
        ("-F", chain),
        ("-A", chain, "-d", network.subnet, *note, "-j", "ACCEPT"),
        ("-A", chain, "!", "-d", _MULTICAST, *note, "-j", "MASQUERADE"),
        ("-A", *jump),
    ):
        if problem := _iptables(environment, *rule):
            raise LaunchError(
                f"pods can't reach what is outside: iptables {' '.join(rule)}: {problem}"
            )


def _iptables(environment: Mapping[str, str], *rule: str) -> str:
    """Apply a rule of the table nat. Returns the error, or an empty text."""
    line = ["iptables", "--wait", "-t", "nat", *rule]
    try:
        done = subprocess.run(
            line, env=dict(environment), capture_output=True, text=True, check=False
        )
    except OSError as error:
        return str(error)
    return done.stderr.strip() or "failed" if done.returncode else ""


def render_hosts(server: str) -> str:
    """hosts.toml of a registry that speaks plain HTTP, such as "127.0.0.1:5000"."""
    return (
        f'server = "http://{server}"\n\n'
        f'[host."http://{server}"]\n  capabilities = ["pull", "resolve"]\n'
    )


def _table(path: tuple[str, ...], values: Mapping[str, Any]) -> str:
    head = ["[" + ".".join(json.dumps(part) for part in path) + "]"] if path else []
    return "\n".join([*head, *(f"{k} = {json.dumps(v)}" for k, v in values.items())]) + "\n"


# Without root.

RUN = Path("/run/containerd/state")
"""The state of a containerd in namespaces: in memory, because it ends with them."""
DNS = {NetworkKind.PASTA: "169.254.1.1", NetworkKind.SLIRP: "10.0.2.3"}
"""Where a connected network answers queries for names."""
_SUBNETS = ("10.244.0.0/24", "172.31.244.0/24", "192.168.244.0/24")
_READY_S = 30.0
_WRAPPER = """\
#!/bin/sh
# the specification of a container is changed where a kernel refuses it without root
for each; do
    [ "$before" = --bundle ] && sed -i {edits} "$each/config.json"
    before=$each
done
exec {program} "$@"
"""
_ONE_ID = """-e 's/,"gid=5"//'"""
_LOGIN_NETWORK = (
    """-e 's#"type":"sysfs","source":"sysfs","options":\\[[^]]*\\]#"""
    """"type":"bind","source":"/sys","options":["rbind","nosuid","noexec","nodev","ro"]#'"""
    """ -e 's#,{"type":"network"[^}]*}##' -e 's#{"type":"network"[^}]*},##'"""
)


_WITHOUT_CGROUPS = (
    """-e 's#"cgroupsPath":"[^"]*"#"cgroupsPath":""#'"""
    """ -e 's#"\\(cpu\\|memory\\|pids\\|unified\\)":{[^}]*}#"\\1":{}#g'"""
)
"""containerd 2.1 has no setting that disables cgroups."""


def runc_wrapper(plan: Plan, program: str) -> str:
    """A shell script in place of runc, which changes specifications; empty if none is needed.

    A terminal's group is no id of a namespace with one id. A network of the login allows no sysfs
    of its own, and no process may enter it again.
    """
    edits = [
        *([] if plan.limits else [_WITHOUT_CGROUPS]),
        *([_ONE_ID] if plan.ids is None else []),
        *([_LOGIN_NETWORK] if plan.network is NetworkKind.LOGIN else []),
    ]
    return _WRAPPER.format(edits=" ".join(edits), program=program) if edits else ""


def free_subnet(routes: str) -> str:
    """A subnet for pods that no route of a table such as /proc/net/route leads to."""
    rows = [line.split() for line in routes.splitlines()[1:]]
    pairs = [f"{_address(row[1])}/{_address(row[7])}" for row in rows if len(row) > 7]
    used = [ipaddress.IPv4Network(each) for each in pairs if not each.endswith("/0.0.0.0")]
    for subnet in map(ipaddress.IPv4Network, _SUBNETS):
        if not any(subnet.overlaps(each) for each in used):
            return str(subnet)
    return _SUBNETS[0]


def _address(text: str) -> ipaddress.IPv4Address:
    """An address of the kernel's table, whose bytes are in the machine's order."""
    return ipaddress.IPv4Address(bytes.fromhex(text)[::-1])


class RootlessContainerd(Component):
    """The containerd of a node without root, in its namespaces.

    Attributes:
        directory: its configuration, log, content and socket.
        programs: name -> path of what it runs.
        environment: of its process.
    """

    plan: Plan
    directory: Path
    programs: Mapping[str, str]
    environment: Mapping[str, str]

    @property
    def endpoint(self) -> str:
        """The endpoint for the agent."""
        return f"unix://{self.directory / 'containerd.sock'}"

    def write_configuration(self, routes: str) -> None:
        """Write its files. ``routes``: the table of its network namespace."""
        (self.directory / "cni").mkdir(parents=True, exist_ok=True)
        program = next(
            Path(self.programs[each]) for each in ("runc", "crun") if self.programs.get(each)
        )
        if script := runc_wrapper(self.plan, str(program)):
            program = self.directory / "oci-runtime"
            program.write_text(script)
            program.chmod(0o700)
        settings = {"disable_cgroup": not self.plan.limits, "disable_apparmor": True}
        (self.directory / "config.toml").write_text(
            render_config(
                self.directory,
                installed_generation(self.programs["containerd"], self.environment),
                program=program,
                state=RUN,
                snapshotter=self.plan.snapshotter,
                cri_settings=settings,
            )
        )
        (self.directory / "cni" / "10-pods.conflist").write_text(
            render_conflist(self._network(routes), RUN.parent)
        )

    def connect_pods(self, routes: str) -> None:
        """Let pods reach what is outside, in its network namespace. Raises LaunchError.

        ``routes``: as for ``write_configuration``.
        """
        masquerade(self._network(routes), self.environment)

    def _network(self, routes: str) -> Network:
        return Network("pods", "pods0", free_subnet(routes), bool(self.plan.masquerade))

    def execute(self) -> None:
        """Become its process. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        log = os.open(self.directory / "containerd.log", flags, 0o600)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.setsid()
        program = self.programs["containerd"]
        configuration = str(self.directory / "config.toml")
        os.execve(program, [program, "--config", configuration], dict(self.environment))

    def await_answer(self) -> None:
        """Wait until it takes connections. Raises LaunchError."""
        deadline = time.monotonic() + _READY_S
        while True:
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(str(self.directory / "containerd.sock"))
                except OSError:
                    if time.monotonic() > deadline:
                        raise LaunchError(
                            f"containerd does not answer; see {self.directory / 'containerd.log'}"
                        ) from None
                else:
                    return
            time.sleep(0.05)

    def import_images(self, own: Sequence[images.Image]) -> None:
        """Import images that were made here, unless it has them. Raises LaunchError."""
        made = self.directory / "images.tar"
        images.write_archive(made, *own)
        digest = hashlib.sha256(made.read_bytes()).hexdigest()
        mark = self.directory / "imported"
        if not mark.is_file() or mark.read_text() != digest:
            line = [self.programs["ctr"], "--address", str(self.directory / "containerd.sock")]
            line += ["--namespace", "k8s.io", "images", "import"]
            line += ["--snapshotter", self.plan.snapshotter, str(made)]
            done = subprocess.run(
                line,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise LaunchError(f"images can't be imported: {done.stderr.strip()}")
        made.unlink()
        mark.write_text(digest)


def installed_generation(program: str | Path, environment: Mapping[str, str]) -> int:
    """The generation of a containerd by its version: 1, or 2 from 2.0 on.

    Raises LaunchError: it can't be run, or states no version.
    """
    try:
        done = subprocess.run(
            [program, "--version"],
            env=dict(environment),
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise LaunchError(f"{program} can't be run: {error.strerror}") from error
    match = re.search(r"\sv?(\d+)\.\d+", done.stdout)
    if match is None:
        stated = (done.stdout or done.stderr).strip()
        raise LaunchError(f"{program} --version prints {stated!r}: no version in it")
    return 1 if int(match[1]) < 2 else 2

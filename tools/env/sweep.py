"""Remove what a private containerd left: shims, container processes, mounts, network, cgroups.

Everything is found by the instance's own directory, container ids or network name; nothing else
on the machine is touched. It removes what an orderly stop could not (a killed test, a lost socket).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from kubeletpy.base.host import mount_table
from tools.env.cgroup_drivers import cgroup_directory, pod_slices
from tools.env.process import CommandError, command_lines, kill_all, run

CGROUPS = Path("/sys/fs/cgroup")
CNI_RESULTS = Path("/var/lib/cni/results")
CONTAINER_LOGS = Path("/var/log/containers")
_SHIM_SOCKET = re.compile(r"unix://(/run/containerd/s/[0-9a-f]+)")
_NO_TABLE = ("is not installed", "iptables who?", "Table does not exist")
"""Texts of errors of a machine that has no iptables, or whose kernel has no tables of it."""


def hierarchies() -> list[Path]:
    """The roots of this machine's cgroup hierarchies: one, or with version 1 several."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [each for each in CGROUPS.iterdir() if (each / "cgroup.procs").exists()]


def shims(directory: Path) -> list[int]:
    """Process ids of the shims that belong to the containerd of `directory`."""
    socket = str(directory / "containerd.sock")
    return [
        pid
        for pid, argv in command_lines()
        if argv and "containerd-shim" in argv[0] and socket in argv
    ]


def mounts(directory: Path) -> list[Path]:
    """Mount points under `directory`, innermost first."""
    table = mount_table.parse(Path("/proc/self/mountinfo").read_bytes())
    return [Path(point) for point in mount_table.mounts_below(table, str(directory))]


def remove_log_links(directory: Path) -> None:
    """Remove the links of an agent that lead to container logs below `directory`."""
    for link in CONTAINER_LOGS.glob("*.log"):
        with contextlib.suppress(OSError):
            if link.readlink().is_relative_to(directory):
                link.unlink()


def unmount(directory: Path) -> None:
    """Unmount all that is under `directory`: an agent's root directory is a mount of its own.

    Raises CommandError where something still uses one: a process outlived what should end it.
    """
    for point in mounts(directory):
        run("umount", point)


def cgroups(names: Iterable[str]) -> list[Path]:
    """The directories of a cgroup (such as "/kubepods/pod1") in every hierarchy."""
    roots = [CGROUPS, *(p for p in CGROUPS.iterdir() if p.is_dir() and not p.is_symlink())]
    found = {root / name.lstrip("/") for name in names for root in roots if name.strip("/")}
    return sorted(path for path in found if path.is_dir())


def remove_cgroup(name: str, kill: bool = False) -> list[Path]:
    """Remove a cgroup tree everywhere, with its processes if `kill`; returns what stayed."""
    trees = cgroups([name])
    if kill:
        kill_all(sorted({pid for tree in trees for pid in _processes(tree)}))
    for tree in trees:
        for folder, _, _ in os.walk(tree, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
    return [tree for tree in trees if tree.exists()]


def remove_pod_cgroups(uids: Collection[str]) -> None:
    """Remove the cgroups of these pods, wherever `cgroupRoot` put them; never the groups above."""
    names = {f"pod{uid}" for uid in uids}
    found = [
        Path(folder, name)
        for folder, below, _ in os.walk(CGROUPS)
        for name in names.intersection(below)
    ]
    for tree in found:
        for folder, _, _ in os.walk(tree, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
    directories = [name for _, below, _ in os.walk(CGROUPS) for name in below]
    for name in sorted(set(pod_slices(set(uids), directories))):
        run("systemctl", "stop", name)


def stop_slice(path: str) -> None:
    """Stop a slice of systemd's (such as "/kubepods.slice"), unless processes are in it."""
    trees = cgroups([path])
    if trees and not any(pid for tree in trees for pid in _processes(tree)):
        run("systemctl", "stop", path.rpartition("/")[2])


def sweep(directory: Path, network: str, bridge: str) -> None:
    """Kill, unmount and remove everything of the containerd of `directory`, except `directory`.

    The containerd itself must be stopped. Safe to call twice. Raises CommandError for a mount that
    cannot be undone.
    """
    names = _container_cgroups(directory)
    pids = shims(directory)
    sockets = {*_shim_sockets(pids), *_bundle_sockets(directory)}
    results = _results(network, directory)
    kill_all(pids)
    for name in names:
        remove_cgroup(name, kill=True)
    for socket in sockets:
        socket.unlink(missing_ok=True)
    for point in mounts(directory):
        run("umount", "--lazy", point)
    for result in results:
        result.unlink(missing_ok=True)
    sweep_network(network, bridge)


def sweep_network(network: str, bridge: str) -> None:
    """Remove the bridge, the NAT rules and the cached results of one CNI network."""
    if Path("/sys/class/net", bridge).exists():
        run("ip", "link", "delete", bridge)
    for result in _results(network):
        result.unlink(missing_ok=True)
    _remove_chains(network, r"CNI-(?!HOSTPORT)\S+")


def remove_rules_of_pods(network: str) -> None:
    """Remove the NAT rules that the bridge plugin made for single pods of a CNI network.

    Rules for the subnet have replaced them, so that the plugin no longer removes them.
    """
    _remove_chains(network, r"CNI-[0-9a-f]{24}(?!\S)")


def _remove_chains(network: str, pattern: str) -> None:
    """Remove the chains of one CNI network whose names match, and the rules that lead to them."""
    rules = _nat_rules()
    chains = set()
    for rule in rules:
        if f'name: \\"{network}\\"' in rule or f'name: "{network}"' in rule:
            # the chain a rule leads to, and the one it is in: a plugin that was ended midway leaves
            # chains that nothing leads to any more
            chains.update(re.findall(rf"(?:-j|^-A) ({pattern})", rule))
    for rule in rules:
        target = re.search(r"-j (CNI-\S+)", rule)
        if rule.startswith("-A") and target and target[1] in chains:
            source = rule.split(" ")[1]
            run("iptables", "--wait", "-t", "nat", "-D", source, *_arguments(rule))
    for chain in chains:
        run("iptables", "--wait", "-t", "nat", "-F", chain)
        run("iptables", "--wait", "-t", "nat", "-X", chain)


def host_port_chains() -> bool:
    """Whether the chains that the portmap plugin shares between all networks exist."""
    return any("CNI-HOSTPORT" in rule for rule in _nat_rules())


def remove_host_port_chains() -> None:
    """Remove the portmap plugin's shared chains, unless some network still has a host port."""
    rules = _nat_rules()
    if any("CNI-DN-" in rule for rule in rules):
        return
    for rule in rules:
        if rule.startswith("-A") and "CNI-HOSTPORT" in rule:
            run("iptables", "--wait", "-t", "nat", "-D", rule.split(" ")[1], *_arguments(rule))
    for rule in rules:
        if rule.startswith(":CNI-HOSTPORT"):
            run("iptables", "--wait", "-t", "nat", "-X", rule[1:].split(" ")[0])


def leftovers(directory: Path, network: str, bridge: str) -> list[str]:
    """Leftovers on the machine of the containerd of `directory`, as lines for a person."""
    found = [f"shim process {pid}" for pid in shims(directory)]
    found += [f"mount {point}" for point in mounts(directory)]
    found += [f"network result {path}" for path in _results(network, directory)]
    found += [f"shim socket {path}" for path in _bundle_sockets(directory) if path.exists()]
    found += [f"cgroup {path}" for path in cgroups(_container_cgroups(directory))]
    if Path("/sys/class/net", bridge).exists():
        found.append(f"bridge {bridge}")
    try:
        rules = _nat_rules()
    except CommandError:
        rules = []
    return found + [f"nat rule {rule}" for rule in rules if network in rule]


def _nat_rules() -> list[str]:
    """The table nat of iptables; empty where there is none. Raises CommandError."""
    try:
        return run("iptables-save", "-t", "nat").splitlines()
    except CommandError as error:
        if any(text in str(error) for text in _NO_TABLE):
            return []
        raise


def _container_cgroups(directory: Path) -> list[str]:
    """The cgroups of the tasks that containerd has a state directory for."""
    names = []
    for file in directory.glob("state/io.containerd.runtime.v2.task/*/*/config.json"):
        try:
            name = json.loads(file.read_text())["linux"]["cgroupsPath"]
        except (OSError, ValueError, KeyError):
            continue
        names.append(cgroup_directory(str(name)))
    return names


def _shim_sockets(pids: Iterable[int]) -> list[Path]:
    """The socket files that these shims listen on (outside of the instance's directory)."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(str(link.readlink()))
            except OSError:
                continue
    rows = [
        line.split() for line in Path("/proc/net/unix").read_text(errors="replace").split("\n")[1:]
    ]
    mine = [Path(row[7]) for row in rows if len(row) > 7 and f"socket:[{row[6]}]" in inodes]
    return [path for path in mine if path.is_relative_to("/run/containerd/s")]


def _bundles(directory: Path) -> Iterator[Path]:
    """The state directories of an instance's tasks: each is named after a container."""
    yield from directory.glob("state/io.containerd.runtime.v2.task/*/*")


def _bundle_sockets(directory: Path) -> list[Path]:
    """The sockets of an instance's shims, the dead ones' included, as their bundles name them."""
    found = []
    for bundle in _bundles(directory):
        for name in ("address", "bootstrap.json"):
            with contextlib.suppress(OSError):
                found += _SHIM_SOCKET.findall((bundle / name).read_text(errors="replace"))
    return [Path(each) for each in dict.fromkeys(found)]


def _processes(tree: Path) -> Iterator[int]:
    """The processes in a cgroup directory and below; what vanishes meanwhile is passed over."""
    for folder, _, _ in os.walk(tree):
        with contextlib.suppress(OSError):
            yield from map(int, Path(folder, "cgroup.procs").read_text().split())


def _results(network: str, directory: Path | None = None) -> list[Path]:
    """The results that libcni cached for the sandboxes of a network, their loopback's included.

    With the directory of an instance also those of sandboxes that have a loopback's result only.
    """
    mine = list(CNI_RESULTS.glob(f"{network}-*"))
    sandboxes = {path.name.removeprefix(f"{network}-").rpartition("-")[0] for path in mine}
    if directory is not None:
        sandboxes.update(bundle.name for bundle in _bundles(directory))
    loopbacks = [CNI_RESULTS / f"cni-loopback-{sandbox}-lo" for sandbox in sorted(sandboxes)]
    return mine + [path for path in loopbacks if path.exists()]


def _arguments(rule: str) -> list[str]:
    """The words of an iptables-save line after its chain, quotes undone."""
    parts = re.findall(r'"(?:\\.|[^"\\])*"|\S+', rule)[2:]
    return [re.sub(r"\\(.)", r"\1", w[1:-1]) if w.startswith('"') else w for w in parts]

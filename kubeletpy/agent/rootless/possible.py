"""The abilities of a login user on this machine without root, from facts about it. Pure.

The answer is a plan, or one sentence why there can be no node. The plan has a table of what is not
enforced, with the consequence of each row and the command that would enable it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from kubeletpy.base.structs import Struct
from kubeletpy.config.effects import Notice

SWITCHES: Mapping[str, tuple[str, str]] = {
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "user.max_user_namespaces": ("0", "15000"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
}
"""Kernel settings that switch user namespaces off: the value that does, and one that does not."""
DELEGATED = ("cpu", "memory", "pids")
"""Controllers without which limits of pods are not enforced."""
IDS = 65_536
SOCKET_BYTES = 107
LONGEST = "node/kubelet/device-plugins/kubelet.sock"
"""The longest path of a socket below the state directory."""
MASQUERADING = ("iptables", "iptables-nft", "iptables-legacy")


class NetworkKind(StrEnum):
    """Where pods get their network."""

    PASTA = "pasta"
    SLIRP = "slirp4netns"
    LOGIN = "login"
    """Pods use the network of the login, because nothing connects another one."""


class IdRange(Struct, frozen=True):
    """Subordinate ids of a user: ``count`` from ``first`` on."""

    first: int
    count: int


class Facts(Struct, frozen=True):
    """Facts about a machine and a login on it."""

    user: str
    uid: int
    state: str
    """The state directory."""
    architecture: str = "x86_64"
    state_error: str = ""
    """Why the state directory can't be written; empty: it can."""
    refused: str = ""
    """The refusal of the kernel in a trial of namespaces; empty: none."""
    profile: str = ""
    """The enforced AppArmor profile that refused it; empty: none did."""
    switches: Mapping[str, str] = {}
    """Kernel settings of ``SWITCHES`` -> value."""
    ids: tuple[IdRange, IdRange] | None = None
    """The user's range of subordinate uids and that of gids."""
    maps_ids: bool = False
    """Whether ``newuidmap`` and ``newgidmap`` are installed."""
    overlay: bool = False
    """Whether overlayfs can be mounted in the state directory."""
    tun: bool = False
    """Whether the user may open /dev/net/tun."""
    masquerade: str = ""
    """The program of ``MASQUERADING`` that works; empty: none does."""
    programs: Mapping[str, str] = {}
    """Name -> path of the programs that were found."""
    cgroup_v2: bool = False
    controllers: Sequence[str] = ()
    """Cgroup controllers that are delegated to this process."""


class Row(Struct, frozen=True):
    """Something that a node of root has, and this one has not, or not in full."""

    subject: str
    consequence: str
    remedy: str
    """A command, or what else helps."""


class Plan(Struct, frozen=True):
    """How the node runs."""

    network: NetworkKind
    snapshotter: str
    ids: tuple[IdRange, IdRange] | None
    """None: the user's own id is the only one in the namespace, where it is 0."""
    limits: bool
    masquerade: str
    rows: tuple[Row, ...]

    @property
    def own_network(self) -> bool:
        """Whether the node has a network of its own."""
        return self.network is not NetworkKind.LOGIN

    @property
    def notices(self) -> tuple[Notice, ...]:
        """The rows, as ``explain --node`` shows them."""
        return tuple(
            Notice("rootless", row.subject, f"{row.consequence}; {row.remedy}") for row in self.rows
        )


def refusal(facts: Facts) -> str:
    """Why there can be no node here, and what to do; empty if there can be one."""
    if facts.uid == 0:
        return "--rootless is for login users; as root, run it without --rootless"
    if facts.state_error:
        return (
            f"the state directory {facts.state} can't be written: {facts.state_error}; "
            "use another one with --state-dir DIR"
        )
    if len(f"{facts.state}/{LONGEST}") > SOCKET_BYTES:
        most = SOCKET_BYTES - len(LONGEST) - 1
        return (
            f"the state directory {facts.state} is longer than the {most} bytes that sockets "
            "allow; use another one with --state-dir DIR"
        )
    if facts.architecture not in CHOWN and _ids(facts) is None:
        return (
            f"--rootless needs subordinate ids on {facts.architecture}; an administrator enables "
            f"them: {_add_ids(facts)}"
        )
    if facts.refused:
        for name, (off, on) in SWITCHES.items():
            # AppArmor's own switch is for programs without a profile
            if facts.switches.get(name) == off and not (facts.profile and "apparmor" in name):
                return (
                    f"user namespaces are switched off here ({name}={off}); an administrator "
                    f"enables them: sysctl -w {name}={on}"
                )
        if facts.profile:
            return f"the kernel refuses {facts.refused}: {confinement(facts.profile)}"
        return (
            f"the kernel refuses {facts.refused} to this user; an administrator has to allow user "
            "namespaces, in a container for example with --security-opt seccomp=unconfined"
        )
    if not facts.programs.get("runc") and not _crun(facts):
        return _missing("runc")
    return next((_missing(name) for name in NEEDED if not facts.programs.get(name)), "")


def confinement(profile: str) -> str:
    """The cause and the remedy where an AppArmor profile refuses what a node needs."""
    return (
        f"AppArmor enforces the profile {profile}; an administrator sets flags=(unconfined) and "
        "the rule `userns,` in it, below /etc/apparmor.d, and loads it: systemctl reload apparmor "
        "(in a container: --security-opt apparmor=unconfined)"
    )


def parse_profile(label: str) -> str:
    """The AppArmor profile of a label if it is enforced, else an empty text.

    Example: ``"lab (enforce)"``; others are ``"unconfined"`` and ``"lab (complain)"``.
    """
    name, _, mode = label.rpartition(" ")
    return name if mode == "(enforce)" else ""


def _crun(facts: Facts) -> bool:
    """Whether crun can replace runc: it refuses a machine with both versions of cgroups."""
    return facts.cgroup_v2 and bool(facts.programs.get("crun"))


NEEDED = ("containerd", "containerd-shim-runc-v2", "ctr")
CHOWN: Mapping[str, tuple[int, tuple[int, ...]]] = {
    # chown, fchown, lchown, fchownat, setgroups
    "x86_64": (0xC000003E, (92, 93, 94, 260, 116)),
    # fchown, fchownat, setgroups
    "aarch64": (0xC00000B7, (55, 54, 159)),
}
"""Architecture -> its number for seccomp (AUDIT_ARCH), and the numbers of the system calls that
have no effect where a namespace has one id."""


def _missing(program: str) -> str:
    package = program if program == "runc" else "containerd"
    return (
        f"{program} is neither installed nor could apt fetch it; an administrator installs it: "
        f"apt-get install {package}"
    )


def make_plan(facts: Facts) -> Plan:
    """The most that is possible where nothing is refused."""
    ids, network = _ids(facts), _network(facts)
    limits = set(DELEGATED) <= set(facts.controllers)
    rows = [
        *([] if limits else [_limits_row(facts)]),
        *([_ids_row(facts)] if ids is None else []),
        _network_row(facts, network),
        *([] if network is NetworkKind.LOGIN or facts.masquerade else [_masquerade_row()]),
        *([] if facts.overlay else [_overlay_row()]),
        *_ROWS,
    ]
    return Plan(
        network=network,
        snapshotter="overlayfs" if facts.overlay else "native",
        ids=ids,
        limits=limits,
        masquerade=facts.masquerade,
        rows=tuple(rows),
    )


def _ids(facts: Facts) -> tuple[IdRange, IdRange] | None:
    return facts.ids if _has_ids(facts) and facts.maps_ids else None


def _has_ids(facts: Facts) -> bool:
    return facts.ids is not None and all(each.count >= IDS for each in facts.ids)


def _network(facts: Facts) -> NetworkKind:
    if facts.tun and facts.programs.get("bridge"):
        for kind in (NetworkKind.PASTA, NetworkKind.SLIRP):
            if facts.programs.get(kind):
                return kind
    return NetworkKind.LOGIN


def _limits_row(facts: Facts) -> Row:
    subject, consequence = "limits", "CPU, memory and process limits are not enforced"
    if not facts.cgroup_v2:
        return Row(subject, consequence, "boot with systemd.unified_cgroup_hierarchy=1")
    if not facts.controllers:
        remedy = f"loginctl enable-linger {facts.user}, then log in again (package libpam-systemd)"
        return Row(subject, consequence, remedy)
    return Row(
        subject,
        consequence,
        "as root: mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate="
        "cpu cpuset io memory pids\\n' > /etc/systemd/system/user@.service.d/delegate.conf && "
        "systemctl daemon-reload, then log in again",
    )


def _add_ids(facts: Facts) -> str:
    ids = f"100000-{100000 + IDS - 1}"
    steps = [] if facts.maps_ids else ["apt-get install uidmap"]
    if not _has_ids(facts):
        steps.append(f"usermod --add-subuids {ids} --add-subgids {ids} {facts.user}")
    return " && ".join(steps)


def _ids_row(facts: Facts) -> Row:
    return Row(
        "users and groups",
        "containers have root only (it is you): other ids of a pod are refused, and changes of "
        "ownership have no effect",
        f"as root: {_add_ids(facts)}",
    )


def _network_row(facts: Facts, network: NetworkKind) -> Row:
    if network is not NetworkKind.LOGIN:
        return Row(
            "host ports",
            "host ports, host network and addresses of pods are those of the node's own network, "
            "which this login does not reach",
            "kubectl port-forward",
        )
    if not facts.tun:
        remedy = "as root: modprobe tun && chmod 666 /dev/net/tun"
    else:
        remedy = "apt-get install passt containernetworking-plugins"
    return Row("pod network", "all pods share the network and ports of this login", remedy)


def _masquerade_row() -> Row:
    return Row("pods to outside", "pods reach each other only", "apt-get install iptables")


def _overlay_row() -> Row:
    return Row(
        "image layers",
        "layers are copied for each container, which is slow and takes space",
        "Linux 5.11 or newer, and a --state-dir on a local file system",
    )


_ROWS = (
    Row(
        "devices and disks",
        "block volumes, disks, network file systems and devices that are not yours do not work",
        "run it as root",
    ),
    Row(
        "protection",
        "AppArmor profiles and OOM scores below yours do not apply; kernel settings are kept",
        "run it as root",
    ),
    Row(
        "life",
        "containers end with this command, for example when you log out",
        "start it in tmux or with systemd-run --user, after loginctl enable-linger",
    ),
)


def render(rows: Sequence[Row]) -> str:
    """The table for a terminal."""
    head = Row("without root", "consequence", "what would enable it")
    width = max(len(row.subject) for row in (head, *rows))
    lines = [f"  {head.subject:<{width}}  {head.consequence}  [{head.remedy}]"]
    lines += [f"  {row.subject:<{width}}  {row.consequence}  [{row.remedy}]" for row in rows]
    return "\n".join(lines)


def parse_subordinate(text: str, user: str, uid: int) -> IdRange | None:
    """The largest range of a user in a file such as /etc/subuid; None: it has none.

    Example: ``"ann:100000:65536"``.
    """
    found = []
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) == 3 and fields[0] in (user, str(uid)) and all(map(_digits, fields[1:])):
            found.append(IdRange(int(fields[1]), int(fields[2])))
    return max(found, key=lambda each: each.count, default=None)


def _digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def id_map(own: int, extra: IdRange | None) -> list[int]:
    """The arguments of ``newuidmap`` after the process: ``own`` is 0 inside."""
    return [0, own, 1, *([1, extra.first, extra.count] if extra is not None else ())]


def packages_to_fetch(facts: Facts, packages: Mapping[str, str]) -> list[str]:
    """The packages of programs that are missing and of use here, from program -> package."""
    have = {name for name, path in facts.programs.items() if path}
    if _crun(facts):
        have.add("runc")
    if NetworkKind.SLIRP in have:
        have.add(NetworkKind.PASTA)
    if not facts.tun:
        have |= {NetworkKind.PASTA, "bridge", "iptables"}
    return sorted({package for name, package in packages.items() if name not in have})

"""``kubeletpy up --rootless`` of a login user: nothing prepared, subordinate ids, delegated cgroup.

Each stage keeps what the one before prepared. A stage takes minutes, so none runs in a run of all
sections: ``./test.sh nodes tests/nodes/test_rootless.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kubeletpy.base.api.types import JSON
from tests.nodes.node import VirtualNode, container, pod
from tools.env.debian import unpacked
from tools.lab.recipe import SITE
from tools.lab.requests import GuestError

ANN = "ann"
HOME = f"/home/{ANN}"
STATE = f"{HOME}/.local/share/kubeletpy"
ADMIN = f"{STATE}/node/api/admin.kubeconfig"
PROGRAMS = f"{HOME}/.cache/kubeletpy/programs"
"""Where apt's packages are unpacked; this machine has no network to fetch them."""
NOTHING, IDS, DELEGATION = "nothing", "ids", "delegation"
MISSING = {NOTHING: {"limits", "users and groups"}, IDS: {"limits"}, DELEGATION: set()}
"""The rows of the table that a stage has, of those that an administrator can change."""
PORT = 18080
WEB = f"echo begun; echo served > /tmp/index.html; exec httpd -f -p {PORT} -h /tmp"
READS = "cat /words/key /hidden/key /host/file && echo written > /host/back && stat -fc %T /memory"
GET = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{PORT}', timeout=60).read())"
FORWARD = f"""\
: > forward.log; kubectl port-forward pod/web {PORT} >> forward.log 2>&1 & forward=$!
until grep -q Forwarding forward.log || ! kill -0 $forward; do sleep 0.2; done
python3 -c "{GET}" || cat forward.log; kill $forward; wait
"""
"""kubectl takes seconds here until it listens; a connection before is refused."""


ROUTE = (
    "link add out0 type veth peer name out1",
    "link set out1 up",
    "addr add 192.0.2.1/24 dev out0",
    "link set out0 up",
    "route add default via 192.0.2.2",
)
"""Commands of `ip`: pasta needs a route to outside."""


class Login:
    """The login of a user without any rights, on a virtual node."""

    def __init__(self, node: VirtualNode) -> None:
        self._node = node
        self._links = self._read_links()
        """Network links of the machine: root's node may have left its bridge."""

    def _read_links(self) -> set[str]:
        return set(self._node.shell("ls /sys/class/net").split())

    def shell(self, script: str) -> str:
        """The output of a script in a session of its own. Raises GuestError."""
        self._node.write("/tmp/ann.sh", f"export KUBECONFIG={ADMIN}\n{script}\n")
        return self._node.shell(f"su - {ANN} -c 'bash /tmp/ann.sh' 2>&1")

    def start(self) -> str:
        """Start a node and wait until it is registered; returns what it printed."""
        return self.shell(
            "setsid kubeletpy up --rootless > up.log 2>&1 < /dev/null & node=$!\n"
            "until grep -q registered up.log; do sleep 0.3; kill -0 $node || break; done\n"
            "cat up.log; kill -0 $node"
        )

    def apply(self, *objects: JSON) -> None:
        """`kubectl apply`."""
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self._node.write("/tmp/objects.json", document)
        self.shell("kubectl apply -f /tmp/objects.json")

    def wait(self, name: str, condition: str = "condition=Ready") -> JSON:
        """Wait until a pod meets a condition; returns the pod."""
        self.shell(
            f"kubectl wait pod/{name} --for={condition} --timeout=600s"
            f" || {{ kubectl describe pod/{name}; tail -n 30 up.log; exit 1; }}"
        )
        found: JSON = json.loads(self.shell(f"kubectl get pod {name} -o json"))
        return found

    def remains(self) -> str:
        """Processes, mounts, files and network links of a node; empty if there are none."""
        links = " ".join(self._read_links() - self._links)
        return links + self._node.shell(
            f"pgrep -u {ANN} -a | grep -v -e systemd -e sd-pam; grep -s {HOME} /proc/mounts;"
            f" ls -d {STATE} 2>/dev/null;"
            f" find /sys/fs/cgroup -path '*user@*' -name 'kubepods*'; ls -A /tmp/*kubelet* 2>&1"
            " | grep -v cannot; true"
        )


def prepare(node: VirtualNode, suite: str, stage: str) -> None:
    """Change what an administrator would, for a stage."""
    ids = f"{ANN}:100000:65536\n" if stage != NOTHING else ""
    for name in ("subuid", "subgid"):
        node.write(f"/etc/{name}", ids)
    node.shell(f"loginctl disable-linger {ANN}; rm -f /usr/bin/new?idmap")
    if stage != NOTHING:
        (program,) = unpacked("uidmap", suite).glob("**/bin/newuidmap")
        for name in ("newuidmap", "newgidmap"):
            node.machine.copy_in(program.with_name(name), f"/usr/bin/{name}")
        node.shell("chown root: /usr/bin/new?idmap && chmod u+s /usr/bin/new?idmap")
        subids = "libsubid4" if suite == "bookworm" else "libsubid5"
        for library in unpacked(subids, suite).glob("**/*.so.?"):
            node.machine.copy_in(library.resolve(), f"/usr/lib/{library.name}")
        install_pasta(node, suite)
    if stage == DELEGATION:
        (module,) = unpacked("libpam-systemd", suite).glob("**/pam_systemd.so")
        node.machine.copy_in(module, f"/usr/lib/x86_64-linux-gnu/security/{module.name}")
        node.shell(
            "grep -q pam_systemd /etc/pam.d/common-session"
            " || echo 'session optional pam_systemd.so' >> /etc/pam.d/common-session\n"
            f"systemctl start systemd-logind && loginctl enable-linger {ANN}"
        )
        node.until(f"[ -S /run/user/$(id -u {ANN})/systemd/private ]")


def install_pasta(node: VirtualNode, suite: str) -> None:
    """Install pasta with Debian's profile of AppArmor, which confines it."""
    folders = [unpacked(name, suite) / "etc/apparmor.d" for name in ("apparmor", "passt")]
    for folder in folders:
        node.machine.mount_host(folder, f"/mnt{folder}")
    apparmor, passt = (f"/mnt{folder}" for folder in folders)
    node.shell(
        f"cp {PROGRAMS}/usr/bin/pasta /usr/bin/pasta"
        f" && apparmor_parser -r --base {apparmor} -I {passt} {passt}/usr.bin.pasta"
        f" && umount {apparmor} {passt}"
    )


@pytest.fixture
def login(shared_node: VirtualNode, suite: str) -> Iterator[Login]:
    """A login of a machine that has a route; the user is removed at the end."""
    node = shared_node
    node.shell(f"useradd --create-home --shell /bin/bash {ANN}; rm -f /etc/sub?id")
    (pasta,) = unpacked("passt", suite).glob("**/bin/passt")
    node.shell(f"mkdir -p {PROGRAMS}/usr/bin {HOME}/shared && echo shared > {HOME}/shared/file")
    node.machine.copy_in(pasta, f"{PROGRAMS}/usr/bin/pasta")
    # a login can't write bytecode there, and would compile at each start
    node.shell(f"chown -R {ANN}: {HOME} && python3 -m compileall -q {SITE}")
    node.shell(" && ".join(f"ip {each}" for each in ROUTE))
    try:
        yield Login(node)
    finally:
        node.shell(
            f"ip link delete out0; loginctl terminate-user {ANN};"
            f" pkill -9 -u {ANN}; sleep 1; userdel -rf {ANN};"
            " rm -f /usr/bin/new?idmap /usr/bin/pasta; true"
        )


@pytest.mark.long
@pytest.mark.parametrize("stage", [NOTHING, IDS, DELEGATION])
def test_a_node_of_a_login_user(
    login: Login, shared_node: VirtualNode, suite: str, stage: str
) -> None:
    prepare(shared_node, suite, stage)
    printed = login.start()
    rows = {row for row in MISSING[NOTHING] if f"\n  {row} " in printed}
    assert rows == MISSING[stage], printed
    assert "pods reach only each other;" not in printed
    login.apply(*web())
    login.wait("web")
    assert login.shell(f"kubectl exec web -- sh -c '{READS}'").splitlines() == [
        *("configured", "hidden", "shared", "tmpfs")
    ]
    assert shared_node.read(f"{HOME}/shared/back") == "written"
    assert login.shell("kubectl logs web") == "begun"
    assert "served" in login.shell(FORWARD)
    if stage == NOTHING:
        login.apply(pod("other", securityContext={"runAsUser": 1000}))
        status = login.wait("other", "jsonpath={.status.reason}=NeedsRoot")["status"]
        assert "spec.securityContext.runAsUser 1000" in status["message"]
    if stage == DELEGATION:
        check_limits(login)
    assert login.shell("kubeletpy down") == "all removed"
    assert login.remains() == ""


def web() -> list[JSON]:
    """A pod that serves a file, and has a volume of each of four kinds."""
    volumes: dict[str, JSON] = {
        "memory": {"emptyDir": {"medium": "Memory"}},
        "host": {"hostPath": {"path": f"{HOME}/shared"}},
        "words": {"configMap": {"name": "words"}},
        "hidden": {"secret": {"secretName": "hidden"}},
    }
    mounts = [{"name": each, "mountPath": f"/{each}"} for each in volumes]
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"},
         "data": {"key": "configured\n"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden"},
         "stringData": {"key": "hidden\n"}},
        pod("web", container(script=WEB, volumeMounts=mounts),
            volumes=[{"name": name, **source} for name, source in volumes.items()]),
    ]  # fmt: skip


def check_limits(login: Login) -> None:
    """Memory beyond a limit kills, and a quota of CPU throttles."""
    login.apply(
        pod(
            "large",
            container(script="head -c 200000000 /dev/zero | tail", limits={"memory": "32Mi"}),
            restartPolicy="Never",
        ),
        pod("busy", container(script="while :; do :; done", limits={"cpu": "100m"})),
    )
    ended = "jsonpath={.status.containerStatuses[0].state.terminated.reason}"
    state = login.wait("large", f"{ended}=OOMKilled")["status"]["containerStatuses"][0]["state"]
    assert state["terminated"]["exitCode"] == 137
    login.wait("busy")
    group = "/sys/fs/cgroup"
    login.shell(
        f"until kubectl exec busy -- grep -q 'nr_throttled [1-9]' {group}/cpu.stat; do :; done"
    )
    assert login.shell(f"kubectl exec busy -- cat {group}/cpu.max") == "10000 100000"


@pytest.mark.long
def test_a_kernel_without_user_namespaces_is_one_sentence(
    login: Login, shared_node: VirtualNode, suite: str
) -> None:
    prepare(shared_node, suite, NOTHING)
    for name, off in (("kernel.unprivileged_userns_clone", 0), ("user.max_user_namespaces", 0)):
        before = shared_node.shell(f"sysctl -n {name}")
        shared_node.shell(f"sysctl -qw {name}={off}")
        try:
            with pytest.raises(GuestError) as refused:
                login.shell("kubeletpy up --rootless")
        finally:
            shared_node.shell(f"sysctl -qw {name}={before}")
        (sentence,) = [each for each in str(refused.value).splitlines() if "user namesp" in each]
        assert f"enables them: sysctl -w {name}=" in sentence
        assert login.remains() == ""


FORBIDS = """\
abi <kernel>,
profile lab-forbids /opt/kubeletpy/.venv/bin/kubeletpy {
  file,
  network,
  signal,
}
"""


@pytest.mark.long
def test_a_profile_that_forbids_user_namespaces_is_one_sentence(
    login: Login, shared_node: VirtualNode, suite: str
) -> None:
    prepare(shared_node, suite, NOTHING)
    shared_node.write("/tmp/lab-forbids", FORBIDS)
    shared_node.shell("apparmor_parser -r /tmp/lab-forbids")
    try:
        with pytest.raises(GuestError) as refused:
            login.shell("kubeletpy up --rootless")
    finally:
        shared_node.shell("apparmor_parser -R /tmp/lab-forbids")
    (sentence,) = [each for each in str(refused.value).splitlines() if "user namesp" in each]
    assert "AppArmor enforces the profile lab-forbids" in sentence
    assert "systemctl reload apparmor" in sentence
    assert login.remains() == ""

"""``kubeletpy adopt`` and ``give-back`` on a node whose unit starts a Go kubelet.

``python -m tools.conformance`` builds the kubelet; without one these tests are skipped, and
``./test.sh nodes`` counts a skipped test as a failure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.kit.pages import follow_page
from tests.nodes.node import SLEEPS, VirtualNode, container, pod
from tests.nodes.setup import ADMIN, CONFIG, kubelet_config
from tests.nodes.test_reboot import MOUNT, ORDER
from tools.check_wheels import ROOT
from tools.control_plane.releases import NEWEST
from tools.env.debian import cache_dir
from tools.lab.uml import SHOW_CLOCK

KUBELET = cache_dir() / "control-plane" / NEWEST / "kubelet"
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not KUBELET.exists(), reason=f"no Go kubelet is built at {KUBELET}: tools.conformance"
    ),
]
UNIT = f"""\
[Unit]
Description=The kubelet
[Service]
Environment=KUBECONFIG_ARGS=--kubeconfig=/etc/kubernetes/kubelet.conf
ExecStart=/usr/bin/kubelet $KUBECONFIG_ARGS --config={CONFIG} --cert-dir=/var/lib/kubelet/pki
KillMode=process
Restart=always
"""
HEALTHY = "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:10248/healthz\")'"
MANIFEST = "/etc/kubernetes/manifests/fixed.json"
DROP_INS = "ls -d /run/systemd/system/kubelet.service.d/* /etc/systemd/system/kubelet.service.d/*"
PROGRAM = "/opt/kubeletpy/bin/kubeletpy"
"""A program that is not the agent; its name is one that `adopt` accepts."""
STATIC = "fixed-node"
PODS = ("one", "two", STATIC)


@pytest.fixture(scope="module")
def kubelet_node(shared_node: VirtualNode) -> Iterator[VirtualNode]:
    """A node with a Go kubelet, pods, and a static pod whose manifest has no uid."""
    node = shared_node
    node.forget_settings()
    node.shell(f"systemctl disable --now kubeletpy; {SHOW_CLOCK}")
    node.configure_containerd("systemd")
    node.write(CONFIG, kubelet_config("systemd", {"failSwapOn": False}))
    node.machine.copy_in(KUBELET, "/usr/bin/kubelet")
    node.write("/etc/systemd/system/kubelet.service", UNIT)
    node.write(MANIFEST, json.dumps(pod("fixed")))
    node.shell(
        "chmod +x /usr/bin/kubelet; systemctl daemon-reload; systemctl restart containerd;"
        " systemctl start kubelet"
    )
    try:
        node.until(HEALTHY, say="journalctl -u kubelet -n 20 --no-pager")
        node.run_pods(*(pod(name) for name in PODS[:2]))
        node.until(f"kubectl --kubeconfig={ADMIN} get pod {STATIC}")
        yield node
        node.shell(f"rm {MANIFEST}")
        node.kubectl("wait", "--for=delete", f"pod/{STATIC}", "--timeout=500s")
        node.remove_pods()
    finally:
        node.shell(
            "systemctl stop kubelet; umount /proc/cpuinfo;"
            f" rm -f {MANIFEST} /etc/systemd/system/kubelet.service; systemctl daemon-reload"
        )


@pytest.fixture
def node(kubelet_node: VirtualNode) -> Iterator[VirtualNode]:
    """That node, of the kubelet before and after."""
    kubelet_node.wait_pods(*PODS)
    yield kubelet_node
    kubelet_node.shell("kubeletpy give-back --yes; rm -rf /opt/kubeletpy/bin")


def running(node: VirtualNode) -> list[str]:
    """The programs of the node that run, whoever started them."""
    found = node.shell(
        "{ for each in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $each; echo; done; } 2>/dev/null"
        " | grep -oE '^/usr/bin/kubelet |kubeletpy ru[n] '"
    )
    return [line.strip() for line in found.splitlines()]


def containers(node: VirtualNode) -> list[tuple[str, str, int]]:
    """Pod, container and number of restarts, as the API shows them; and every task that runs."""
    reported = [
        (item["metadata"]["name"], each["containerID"], each["restartCount"])
        for item in node.get("pods")["items"]
        for each in item["status"]["containerStatuses"]
    ]
    tasks = node.shell("ctr -n k8s.io tasks list -q").split()
    return sorted(reported) + [("", each, 0) for each in sorted(tasks)]


def kubelet_has(node: VirtualNode, before: list[tuple[str, str, int]]) -> None:
    """Check that the kubelet has the node as it was, and nothing is left of the agent."""
    assert running(node) == ["/usr/bin/kubelet"]
    node.until(HEALTHY)
    node.wait_pods(*PODS)
    assert containers(node) == before
    assert node.shell(f"{DROP_INS} 2>/dev/null || true") == ""
    timers = node.shell("systemctl list-timers --all --no-legend kubeletpy-give-back.timer")
    assert timers == ""


def adopt(node: VirtualNode, *more: str) -> tuple[int, str]:
    """Exit code and output of `kubeletpy adopt`."""
    done = node.machine.run("kubeletpy", "adopt", "--yes", *more, timeout=600)
    return done.status, done.output


def killed_watch(node: VirtualNode, watch: str) -> None:
    """Start the takeover, and kill it once it watches the node."""
    node.shell(
        f"kubeletpy adopt --yes --watch {watch} > /tmp/adopt 2>&1 & pid=$!;"
        " until grep -q watching /tmp/adopt; do kill -0 $pid || exit 1; sleep 0.2; done;"
        " kill -9 $pid"
    )


def test_the_tutorial_takes_a_node_over_and_gives_it_back(node: VirtualNode) -> None:
    before, printed = containers(node), list[str]()

    def run(script: str) -> str:
        done = node.machine.run("bash", "-euo", "pipefail", "-c", script, timeout=600)
        assert done.status == 0, done.output
        printed.append(done.output)
        return done.output

    page = (ROOT / "docs" / "tutorials" / "one-node.md").read_text()
    _, walk = page.split("## Check first")  # the agent is installed
    taken, back = walk.split("## Take it back")
    follow_page(taken, run)
    assert running(node) == ["kubeletpy run"]
    assert containers(node) == before
    follow_page(back, run)
    kubelet_has(node, before)
    there, again = printed
    assert "3 pods kept, 0 restarted" in there
    assert "confirmed: the node was well for 3" in there
    for text in (there, again):
        assert re.search(r"\d s from the stop of the one program to an answer of the other", text)
    record = node.shell("kubeletpy adopt --record")
    assert "confirmed (why the node was well for 3" in record
    assert "give back (why it was requested" in record
    print(*(line for line in record.splitlines() if "answers" in line), sep="\n")


@pytest.mark.parametrize("by", ["command", "timer"])
def test_a_watch_that_was_killed_is_given_back(node: VirtualNode, by: str) -> None:
    before = containers(node)
    killed_watch(node, "20s")
    assert running(node) == ["kubeletpy run"]
    assert containers(node) == before
    assert "kubeletpy-give-back.timer" in node.shell("systemctl list-timers --no-legend")
    if by == "command":
        node.shell("kubeletpy give-back --yes --unconfirmed")
    else:
        node.until(f"! ls {DROP_INS.split()[2]}", timeout=400)
        node.until("[ $(systemctl is-active kubeletpy-give-back.service) = inactive ]")
    kubelet_has(node, before)
    assert "no watch has confirmed the agent" in node.shell("kubeletpy adopt --record")


FAULTS = [
    pytest.param(
        "exit 1", "has exited, and systemd has restarted it|the unit runs nothing", id="exits"
    ),
    pytest.param(
        "exec sleep infinity",
        "after 90 s the node is not Ready: its lease is not renewed",
        id="hangs",
    ),
]


@pytest.mark.parametrize(("script", "why"), FAULTS)
def test_an_agent_that_does_not_work_is_given_back(
    node: VirtualNode, script: str, why: str
) -> None:
    before = containers(node)
    node.write(PROGRAM, f"#!/bin/sh\n[ $1 = run ] || exec kubeletpy $@\n{script}\n")
    node.shell(f"chmod +x {PROGRAM}")
    code, text = adopt(node, f"--program={PROGRAM}", "--watch", "10m")
    assert code == 1
    assert re.search(f"giving the node back: .*({why})", text), text
    kubelet_has(node, before)
    assert re.search(f"given back .why .*({why})", node.shell("kubeletpy adopt --record"))


def test_a_shutdown_under_the_watch_ends_the_pods_in_order(node: VirtualNode) -> None:
    """Nothing gives the node back while the agent ends its pods; the next boot does."""
    periods = {"shutdownGracePeriod": "300s", "shutdownGracePeriodCriticalPods": "60s"}
    config = node.read(CONFIG)
    node.write(CONFIG, json.dumps({**json.loads(config), **periods}))
    node.shell("systemctl restart kubelet")
    log = ">> /order/log"
    script = f"trap 'sleep 20; echo ended {log}; exit 0' TERM; echo began {log}; {SLEEPS}"
    slow = container(script=script, volumeMounts=[MOUNT])
    node.run_pods(pod("slow", slow, volumes=[ORDER], terminationGracePeriodSeconds=200))
    node.shell(
        "rm -f /tmp/adopt; setsid kubeletpy adopt --yes > /tmp/adopt 2>&1 &"
        " until grep -q watching /tmp/adopt; do sleep 0.2; done"
    )
    held = "systemd-inhibit --list --no-pager --no-legend | grep -q kubelet"
    node.until(held, say="systemd-inhibit --list --no-pager")
    node.machine.power_off(timeout=600)
    node.machine.boot()
    assert node.read("/var/lib/order/log").split() == ["began", "ended"]
    assert node.shell(f"{DROP_INS} 2>/dev/null || true") == ""
    record = node.shell("kubeletpy adopt --record")
    assert "the machine shuts down; its next boot starts the kubelet" in record
    node.write(CONFIG, config)
    node.shell(f"rm -r /var/lib/order; {SHOW_CLOCK}; systemctl start kubelet")
    node.until(HEALTHY)
    assert running(node) == ["/usr/bin/kubelet"]
    node.kubectl("delete", "pod", "slow", *PODS[:2])
    node.run_pods(*(pod(name) for name in PODS[:2]))

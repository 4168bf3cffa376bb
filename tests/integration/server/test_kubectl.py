"""kubectl logs, exec, attach, cp, port-forward at both ends of the supported range."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.integration.node.fixtures import remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status, is_ready
from tools.env.images import BUSYBOX
from tools.env.process import CommandError
from tools.env.waiting import wait_until

BOTH = pytest.mark.parametrize("version", ["old", "new"], ids=["kubectl-old", "kubectl-new"])
SECONDS = 30


@contextmanager
def running(
    node: Node, version: str, namespace: str, *arguments: str, **options: object
) -> Iterator[subprocess.Popen[bytes]]:
    """A kubectl that a test talks to; killed in the end."""
    program, environment = node.kubectl_program(version)
    process: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
        [program, "--namespace", namespace, *arguments],
        env=environment,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def call(
    node: Node, version: str, namespace: str, *arguments: str, stdin: bytes | None = None
) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of a kubectl."""
    program, environment = node.kubectl_program(version)
    done = subprocess.run(
        [program, "--namespace", namespace, *arguments],
        env=environment,
        input=stdin if stdin is not None else b"",
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@BOTH
def test_logs(node: Node, namespace: str, version: str) -> None:
    kubectl = partial(node.kubectl, namespace=namespace, version=version)
    script = "for i in 1 2 3 4 5; do echo line $i; done; echo err >&2; " + FOREVER
    node.apply(
        pod("talks", container("a", script), container("b", "echo b; " + FOREVER)),
        namespace=namespace,
    )
    node.wait_running(namespace, "talks")
    whole = "".join(f"line {i}\n" for i in range(1, 6)) + "err\n"
    assert sorted(kubectl("logs", "talks", "-c", "a").splitlines()) == sorted(whole.splitlines())
    assert kubectl("logs", "talks", "-c", "b") == "b\n"
    assert len(kubectl("logs", "talks", "-c", "a", "--tail=2").splitlines()) == 2
    assert kubectl("logs", "talks", "-c", "b", "--limit-bytes=1") == "b"
    stamped = kubectl("logs", "talks", "-c", "b", "--timestamps")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}\S+ b\n", stamped)
    assert kubectl("logs", "talks", "-c", "b", "--since=1h") == "b\n"
    since = "--since-time=2100-01-01T00:00:00Z"
    assert kubectl("logs", "talks", "-c", "b", since) == ""
    with pytest.raises(CommandError, match="container c is not valid for pod talks"):
        kubectl("logs", "talks", "-c", "c")
    with pytest.raises(CommandError, match="previous terminated container"):
        kubectl("logs", "talks", "-c", "a", "--previous")


@BOTH
def test_logs_of_the_container_before(node: Node, namespace: str, version: str) -> None:
    script = (
        "echo only the first; if [ -e /data/x ]; then echo again; "
        + FOREVER
        + "; fi; touch /data/x; exit 3"
    )
    mounts = {"volumeMounts": [{"name": "d", "mountPath": "/data"}]}
    one = pod("twice", container("main", script, **mounts), volumes=[{"name": "d", "emptyDir": {}}])
    node.apply(one, namespace=namespace)
    node.wait_pod(
        namespace,
        "twice",
        lambda p: is_ready(p) and container_status(p).get("restartCount") == 1,
        "second start",
    )
    kubectl = partial(node.kubectl, namespace=namespace, version=version)
    assert kubectl("logs", "twice", "--previous") == "only the first\n"
    assert kubectl("logs", "twice") == "only the first\nagain\n"


@BOTH
def test_following_until_the_container_ends(node: Node, namespace: str, version: str) -> None:
    count = "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo line $i; done; "
    script = count + "sleep 2; echo last; printf end"
    node.apply(pod("ends", container("main", script), restartPolicy="Never"), namespace=namespace)
    node.wait_pod(namespace, "ends", lambda p: container_status(p).get("containerID"), "a start")
    with running(node, version, namespace, "logs", "-f", "ends") as process:
        out, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
    assert out.decode() == "".join(f"line {i}\n" for i in range(1, 201)) + "last\nend"


@BOTH
def test_exec(node: Node, namespace: str, version: str) -> None:
    node.apply(pod("box"), namespace=namespace)
    node.wait_running(namespace, "box")

    def run(*command: str, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
        flags = ("-i",) if stdin is not None else ()
        return call(node, version, namespace, "exec", *flags, "box", "--", *command, stdin=stdin)

    assert run("sh", "-c", "echo out; echo err >&2") == (0, b"out\n", b"err\n")
    code, out, err = run("sh", "-c", "echo x; exit 42")
    assert (code, out) == (42, b"x\n")
    assert b"command terminated with exit code 42" in err
    code, _, err = run("no-such-program")
    assert code != 0
    assert b"no-such-program" in err
    blob = os.urandom(3 << 20)
    assert run("sha256sum", stdin=blob)[1].split()[0].decode() == hashlib.sha256(blob).hexdigest()
    assert run("cat", stdin=blob) == (0, blob, b"")
    code, out, _ = run("dd", "if=/dev/zero", "bs=65536", "count=100")
    assert (code, len(out)) == (0, 6553600)
    code, _, err = call(node, version, namespace, "exec", "nobody", "--", "true")
    assert (code, b'pods "nobody" not found' in err) == (1, True)


def type_until(fd: int, question: bytes, desired: bytes) -> None:
    """Type a line, again each two seconds, until the terminal shows a text."""
    seen = b""
    end = time.monotonic() + SECONDS
    while desired not in seen:
        assert time.monotonic() < end, seen
        os.write(fd, question)
        while desired not in seen and select.select([fd], [], [], 2)[0]:
            try:
                seen += os.read(fd, 4096)
            except OSError:  # the last process at the other end has exited
                break


@BOTH
@pytest.mark.parametrize("verb", ["exec", "attach"])
def test_a_terminal(node: Node, namespace: str, version: str, verb: str) -> None:
    # no line editing: busybox would query the cursor's position and wait for the answer
    shell = 'while read -r line; do eval "$line"; done'
    more = {"tty": True, "stdin": True} if verb == "attach" else {}
    script = shell if verb == "attach" else FOREVER
    node.apply(pod("term", container("main", script, **more)), namespace=namespace)
    node.wait_running(namespace, "term")
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    command = ["attach", "-it", "term"]
    if verb == "exec":
        command = ["exec", "-it", "term", "--", "sh", "-c", shell]
    streams = {"stdin": there, "stdout": there, "stderr": there, "start_new_session": True}
    with running(node, version, namespace, *command, **streams) as process:
        os.close(there)
        type_until(here, b"echo $((6*7)); tty\n", b"42")
        type_until(here, b"tty\n", b"/dev/")
        type_until(here, b"stty size\n", b"33 101")
        fcntl.ioctl(here, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        process.send_signal(signal.SIGWINCH)  # a terminal notifies its foreground process itself
        type_until(here, b"stty size\n", b"40 120")
        if verb == "exec":
            type_until(here, b"exit 7\n", b"exit code 7")
            assert process.wait(SECONDS) == 7
    os.close(here)


@BOTH
def test_attach_to_what_is_not_a_terminal(node: Node, namespace: str, version: str) -> None:
    script = "while read line; do echo got $line; done; echo over; " + FOREVER
    node.apply(pod("reads", {**container("main", script), "stdin": True}), namespace=namespace)
    node.wait_running(namespace, "reads")
    streams = {"stdin": subprocess.PIPE}
    with running(node, version, namespace, "attach", "-i", "reads", **streams) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"hello\n")
        process.stdin.flush()
        for line in process.stdout:
            if line == b"got hello\n":
                break
        else:
            raise AssertionError("nothing came back")


def test_stdin_piped_into_a_new_pod(node: Node, namespace: str) -> None:
    """`stdinOnce`: the container's stdin ends with the client's, and with it the pod."""
    run = ("run", "piped", "-i", "--restart=Never", f"--image={BUSYBOX}")
    script = "sleep 2; cat; echo over"  # the client is there before it ends
    rest = ("--image-pull-policy=IfNotPresent", "--", "sh", "-c", script)
    code, out, err = call(node, "new", namespace, *run, *rest, stdin=b"hello\n")
    assert (code, out) == (0, b"hello\nover\n"), err
    node.wait_phase(namespace, "piped", "Succeeded")


@BOTH
def test_copying_a_tree(node: Node, namespace: str, version: str, tmp_path: Path) -> None:
    node.apply(pod("copies"), namespace=namespace)
    node.wait_running(namespace, "copies")
    tree = tmp_path / "tree"
    for name, size in (("a", 0), ("b/c", 1), ("b/d", 70_000), ("e/f/g", 2 << 20)):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(os.urandom(size))
    kubectl = partial(node.kubectl, namespace=namespace, version=version)
    kubectl("cp", str(tree), "copies:/tmp/tree")
    kubectl("cp", "copies:/tmp/tree", str(tmp_path / "back"))
    for path in tree.rglob("*"):
        if path.is_file():
            assert (tmp_path / "back" / path.relative_to(tree)).read_bytes() == path.read_bytes()


def fetch(port: int) -> bytes:
    """All that a server sends."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as link:
        while piece := link.recv(1 << 16):
            got += piece
    return got


@BOTH
def test_port_forward(node: Node, namespace: str, version: str) -> None:
    ports = (7777, 7778, 7779)
    servers = "".join(f"nc -l -p {port} < /blob & " for port in ports)
    script = f"dd if=/dev/urandom of=/blob bs=65536 count=64 2>/dev/null; {servers} {FOREVER}"
    node.apply(pod("serves", container("main", script)), namespace=namespace)
    node.wait_running(namespace, "serves")

    def inside(*command: str) -> str:
        return call(node, version, namespace, "exec", "serves", "--", *command)[1].decode()

    wait_until(
        lambda: all(f":{port} " in inside("netstat", "-ltn") for port in ports),
        "three servers that listen",
        timeout=SECONDS,
    )
    digest = inside("sha256sum", "/blob").split()[0]
    desired = [f":{port}" for port in ports]
    with running(node, version, namespace, "port-forward", "serves", *desired) as process:
        here = local_ports(process, len(ports))
        for port in ports:
            assert hashlib.sha256(fetch(here[port])).hexdigest() == digest
    code, _, err = call(node, version, namespace, "port-forward", "nobody", ":1")
    assert (code, b"not found" in err) == (1, True)


def test_the_nodes_own_api_through_the_api(node2: Node, namespace: str) -> None:
    node2.apply(pod("seen"), namespace=namespace)
    node2.wait_running(namespace, "seen")
    base = f"/api/v1/nodes/{node2.name}/proxy"
    assert node2.kubectl("get", "--raw", f"{base}/healthz") == "ok"
    assert '"name":"seen"' in node2.kubectl("get", "--raw", f"{base}/pods")
    assert '"name":"seen"' in node2.kubectl("get", "--raw", f"{base}/runningpods/")
    assert "kubelet_running_pods" in node2.kubectl("get", "--raw", f"{base}/metrics")
    assert '"kubeletconfig"' in node2.kubectl("get", "--raw", f"{base}/configz")
    resources = node2.kubectl("get", "--raw", f"{base}/metrics/resource")
    used = re.search(
        rf'container_memory_working_set_bytes{{container="main",namespace="{namespace}",pod="seen"}}'
        r" (\d+) \d{13}",
        resources,
    )
    assert used is not None, resources
    assert 0 < int(used[1]) < 100 << 20
    assert f'pod_cpu_usage_seconds_total{{namespace="{namespace}",pod="seen"}}' in resources
    assert "\nresource_scrape_error 0\n" in resources
    run = f"{base}/run/{namespace}/seen/main?cmd=echo%20hi"
    assert node2.kubectl("create", "--raw", run, "-f", "/dev/null") == "hi\n"


AT_ONCE = 8
SIZE = 300_000


def digest_of(port: int, content: bytes) -> str:
    """Wait for the server, send all, close this direction, and read the server's digest."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as link:
        assert link.recv(6) == b"ready\n", "no server"
        link.sendall(content)
        link.shutdown(socket.SHUT_WR)
        got = b""
        while piece := link.recv(4096):
            got += piece
    return got.decode().split()[0] if got else ""


def local_ports(process: subprocess.Popen[bytes], count: int) -> dict[int, int]:
    """The ports here, by the port there."""
    assert process.stdout is not None
    here: dict[int, int] = {}
    while len(here) < count:
        line = process.stdout.readline().decode()
        assert line, "kubectl has ended"
        if found := re.search(r"127\.0\.0\.1:(\d+) -> (\d+)", line):
            here[int(found[2])] = int(found[1])
    return here


@BOTH
def test_many_connections_that_are_half_closed(node: Node, namespace: str, version: str) -> None:
    # a listener each: that of busybox has a queue of two
    ports = range(7700, 7700 + AT_ONCE)
    serve = f"sh -c 'echo ready; head -c {SIZE} | sha256sum'"
    script = "".join(f"nc -ll -p {port} -e {serve} & " for port in ports) + FOREVER
    node.apply(pod("digests", container("main", script)), namespace=namespace)
    node.wait_running(namespace, "digests")

    def listening() -> bool:
        inside = ("exec", "digests", "--", "netstat", "-ltn")
        seen = call(node, version, namespace, *inside)[1].decode()
        return all(f":{port} " in seen for port in ports)

    wait_until(listening, "servers that listen", timeout=SECONDS)
    blobs = {port: os.urandom(SIZE) for port in ports}
    desired = [f":{port}" for port in ports]
    with (
        running(node, version, namespace, "port-forward", "digests", *desired) as process,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        here = local_ports(process, AT_ONCE)
        found = list(threads.map(lambda port: digest_of(here[port], blobs[port]), ports))
    assert found == [hashlib.sha256(blobs[port]).hexdigest() for port in ports]


def test_killed_clients_leave_nothing_behind(node: Node, namespace: str) -> None:
    node.apply(pod("many"), namespace=namespace)
    node.wait_running(namespace, "many")
    assert call(node, "new", namespace, "exec", "many", "--", "true")[0] == 0
    wait_until(lambda: steady(node), "a quiet agent", timeout=30)
    before = node.descriptors()
    commands = [
        ("logs", "-f", "many"),
        ("exec", "many", "--", "sleep", "1000"),
        ("exec", "-i", "many", "--", "cat"),
        ("attach", "many"),
        ("port-forward", "many", ":80"),
    ]
    for version in ("old", "new"):
        processes = []
        for command in commands * 3:
            with_stdin = {"stdin": subprocess.PIPE} if "-i" in command else {}
            entered = running(node, version, namespace, *command, **with_stdin)
            processes.append((entered, entered.__enter__()))
        wait_until(lambda: node.descriptors() > before + 10, "streams", timeout=30)
        for entered, _ in processes:
            entered.__exit__(None, None, None)
        wait_until(lambda: node.descriptors() <= before + 2, "nothing left open", timeout=30)
    assert call(node, "new", namespace, "exec", "many", "--", "true")[0] == 0


def test_clients_killed_while_they_connect_hold_up_nothing(node: Node, namespace: str) -> None:
    """A runtime that can't answer a client's streams may never process its container's exit."""
    node.apply(pod("brief"), namespace=namespace)
    node.wait_running(namespace, "brief")
    commands = [("attach", "brief"), ("attach", "-i", "brief"), ("exec", "-i", "brief", "cat")] * 5
    wait_until(lambda: steady(node), "a quiet agent", timeout=30)
    before = node.descriptors()
    for version in ("old", "new"):
        for number in range(3):
            wait_until(lambda: node.descriptors() <= before + 2, "nothing left open", timeout=30)
            with contextlib.ExitStack() as killed:
                for command in commands:
                    killed.enter_context(
                        running(node, version, namespace, *command, stdin=subprocess.PIPE)
                    )
                until_more(node, before + 2 + 4 * number)
    remove_pods(node, namespace)


def until_more(node: Node, than: int) -> None:
    wait_until(lambda: node.descriptors() > than, "streams", timeout=30, interval=0.001)


def steady(node: Node) -> bool:
    first = node.descriptors()
    return all(node.descriptors() == first for _ in range(3))

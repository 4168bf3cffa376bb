"""kubectl on a node of a test: exec, cp, attach and port-forward into a runtime of the program."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kubeletpy.library.cluster import Cluster
from kubeletpy.library.images import Running
from kubeletpy.remote.streams import ProcessStreams
from tools.env.kubectl import Kubectl

SECONDS = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with images that sleep, run a function, and write lines."""
    directory = tmp_path_factory.mktemp("cluster")
    with Cluster(directory, engine="embedded", nodes=("n1",)) as running:
        running.image("sleep", ("sleep", "1000"))
        running.image("work", work)
        running.image("ticks", ("sh", "-c", "while :; do echo tick; sleep 0.1; done"))
        yield running


def work(container: Running) -> None:
    """A container whose commands print the size of the terminal."""

    async def run(command: object, client: ProcessStreams) -> int:
        async for columns, rows in client.resized():
            await client.stdout.write(b"%dx%d\r\n" % (columns, rows))
            break
        return 5

    container.exec = run
    container.stopped.wait()


@pytest.fixture(scope="module", params=["old", "new"])
def kubectl(
    request: pytest.FixtureRequest, cluster: Cluster, kubectl_versions: dict[str, Kubectl]
) -> Iterator[list[str | Path]]:
    """A kubectl that speaks SPDY, and one that speaks WebSockets; with a namespace of its own."""
    with cluster.namespace() as namespace:
        program = kubectl_versions[request.param].program
        command: list[str | Path] = [
            program,
            "--kubeconfig",
            cluster.kubeconfig,
            "--namespace",
            namespace,
        ]
        for name, image in (("process", "sleep"), ("function", "work"), ("ticks", "ticks")):
            spec = {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": image}],
            }
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            text = json.dumps(pod).encode()
            subprocess.run([*command, "apply", "-f", "-"], input=text, check=True)
            cluster.wait(
                "v1/pods",
                name,
                namespace,
                until=lambda found: bool(found) and found["status"].get("phase") == "Running",
            )
        yield command


def run(kubectl: list[str | Path], *arguments: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    """Exit code, output and errors."""
    done = subprocess.run(
        [*kubectl, *arguments], input=stdin, capture_output=True, timeout=SECONDS, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_exec(kubectl: list[str | Path]) -> None:
    blob = os.urandom(1 << 20)
    assert run(kubectl, "exec", "-i", "process", "--", "cat", stdin=blob) == (0, blob, b"")
    script = "echo out; echo err >&2; exit 7"
    code, out, err = run(kubectl, "exec", "process", "--", "sh", "-c", script)
    assert (code, out) == (7, b"out\n")
    assert err.startswith(b"err\n") and b"exit code 7" in err
    code, out, err = run(kubectl, "exec", "process", "--", "no-such-program")
    assert (code, out) == (1, b"") and b"no-such-program: No such file or directory" in err


def in_terminal(kubectl: list[str | Path], *arguments: str) -> tuple[int, bytes]:
    """Exit code and output of an exec in a terminal.

    Its input stays open: where that ends, ``script`` sends a character for the end of the file.
    """
    command = f"stty cols 91 rows 33; {shlex.join(map(str, (*kubectl, 'exec', '-it', *arguments)))}"
    script = ["script", "--quiet", "--return", "--command", command, "/dev/null"]
    end, kept = os.pipe()
    try:
        done = subprocess.run(
            script, stdin=end, stdout=subprocess.PIPE, timeout=SECONDS, check=False
        )
    finally:
        os.close(end)
        os.close(kept)
    return done.returncode, done.stdout


def test_a_terminal_of_a_function(kubectl: list[str | Path]) -> None:
    code, output = in_terminal(kubectl, "function", "--", "x")
    assert code == 5 and output.startswith(b"91x33")


def test_a_terminal_of_a_process(kubectl: list[str | Path]) -> None:
    """It gets the size, is the controlling terminal, and its last output arrives."""
    script = "until stty size | grep 33; do :; done; echo >/dev/tty tty; seq 20000; exit 6"
    code, output = in_terminal(kubectl, "process", "--", "sh", "-c", script)
    assert code == 6, output[-1000:]
    assert b"33 91\r\ntty\r\n1\r\n" in output and b"\n19999\r\n20000\r\n" in output


def test_cp(kubectl: list[str | Path], tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.mkdir()
    (tmp_path / "data").write_bytes(os.urandom(1 << 20))
    assert run(kubectl, "cp", f"{tmp_path}/data", f"process:{there}/copy")[0] == 0
    assert run(kubectl, "cp", f"process:{there}/copy", str(back))[0] == 0
    assert back.read_bytes() == (there / "copy").read_bytes() == (tmp_path / "data").read_bytes()


def test_attach(kubectl: list[str | Path]) -> None:
    with subprocess.Popen([*kubectl, "attach", "ticks"], stdout=subprocess.PIPE) as attached:
        assert attached.stdout is not None
        assert attached.stdout.readline() == b"tick\n"
        attached.kill()


class Hello(BaseHTTPRequestHandler):
    """Answers with the path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *_: object) -> None:
        pass


def test_port_forward(kubectl: list[str | Path]) -> None:
    with HTTPServer(("127.0.0.1", 0), Hello) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        command = [*kubectl, "port-forward", "process", f":{server.server_port}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as forward:
            assert forward.stdout is not None
            port = int(forward.stdout.readline().split(b" -> ")[0].rpartition(b":")[2])
            for path in ("/a", "/b"):
                connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
                connection.request("GET", path)
                assert connection.getresponse().read() == path.encode()
                connection.close()
            forward.terminate()
        server.shutdown()

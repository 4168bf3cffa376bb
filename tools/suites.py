"""Runs the tests of another project on a cluster of the fixture, as their authors publish them.

    python -m tools.suites kr8s CHECKOUT --python VENV/bin/python --engine real

Run it as a plain user. The suite's own environment has its dependencies. The suite finds the
cluster by KUBECONFIG; where it would start a kind cluster, it gets this one. The images that it
names are commands of this machine and a small web server. All of it runs in a network of its own,
so that a container can have port 80. docs/results/suites.csv has the results.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from kubeletpy.library.cluster import ENGINES, Cluster
from kubeletpy.library.images import Running
from kubeletpy.remote.streams import ProcessStreams

SUITES = {
    "kr8s": "-o addopts= -p pytest_kind.cluster --timeout=90 kr8s/tests",
    "kubernetes": "kubernetes/e2e_test kubernetes/aio/e2e_test"
    " kubernetes/base/dynamic/test_client.py kubernetes/base/dynamic/test_discovery.py",
    "kubernetes_asyncio": "kubernetes_asyncio/e2e_test kubernetes_asyncio/dynamic/client_test.py"
    " kubernetes_asyncio/dynamic/discovery_test.py",
    "kopf": "--only-e2e --timeout=120 tests/e2e examples/09-testing examples/10-builtins"
    " examples/11-filtering-handlers",
}
"""Arguments of pytest, in a checkout of each suite."""
OWN_NETWORK = (
    "ip link set lo up && echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start && "
    'user=$1 group=$2 && shift 2 && exec unshare --map-user="$user" --map-group="$group" -- "$@"'
)
WEB_ROOT = "/usr/share/nginx/html"
KIND = '''
import os, pathlib, subprocess

class KindCluster:
    def __init__(self, **_):
        self.kubectl_path = pathlib.Path("kubectl")
        self.kubeconfig_path = pathlib.Path(os.environ["KUBECONFIG"])

    def create(self):
        """It runs."""

    def kubectl(self, *args):
        return subprocess.run(("kubectl", *args), check=True, capture_output=True, text=True).stdout

def pytest_addoption(parser):
    parser.addoption("--keep-cluster", default=True)
'''
"""pytest-kind, whose cluster is the one of KUBECONFIG."""


class _Server(ThreadingHTTPServer):
    allow_reuse_port = True
    daemon_threads = True


def nginx(container: Running) -> None:
    """Serve as nginx does; commands in the container see its directory."""
    with tempfile.TemporaryDirectory() as root:
        Path(root, "index.html").write_text("<h1>Welcome to nginx!</h1>")

        async def run(command: Sequence[str], client: ProcessStreams) -> int:
            here = [each.replace(WEB_ROOT, root) for each in command]
            process = await asyncio.create_subprocess_exec(*here, stdout=-1, stderr=-1)
            out, err = await process.communicate()
            await client.stdout.write(out)
            await client.stderr.write(err)
            return process.returncode or 0

        container.exec = run
        with _Server(("", 80), partial(SimpleHTTPRequestHandler, directory=root)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            container.stopped.wait()
            server.shutdown()


def python(container: Running) -> int:
    """Run a script that a volume has."""
    script = [str(container.path(each)) if each[0] == "/" else each for each in container.args[1:]]
    with subprocess.Popen((sys.executable, *script), stdout=subprocess.DEVNULL) as process:
        container.stopped.wait()
        process.kill()
    return 0


def run_suite(arguments: argparse.Namespace) -> int:
    """Run a suite on a new cluster; the exit code of its pytest."""
    checkout, engine = arguments.checkout.absolute(), arguments.engine
    with (
        tempfile.TemporaryDirectory() as home,
        Cluster(Path(home, "cluster"), engine=engine) as cluster,
    ):
        for name, image in (("busybox", ()), ("ubuntu", ()), ("nginx", nginx), ("python", python)):
            cluster.image(name, image)
        kind = Path(home, "modules", "pytest_kind")
        kind.mkdir(parents=True)
        (kind / "__init__.py").touch()
        (kind / "cluster.py").write_text(KIND)
        env = os.environ | {
            "HOME": home,
            "KUBECONFIG": str(cluster.kubeconfig),
            "PYTHONPATH": f"{checkout}:{kind.parent}",
        }
        # as in kind, there are pods before the first test
        cluster.wait("v1/serviceaccounts", "default", "kube-system")
        pod = "-n kube-system run pause --image=registry.k8s.io/pause"
        subprocess.run(("kubectl", *pod.split()), check=True, env=env)
        run = (*SUITES[arguments.suite].split(), *shlex.split(arguments.pytest))
        command = (arguments.python.absolute(), "-m", "pytest", "-rfE", *run)
        return subprocess.run(command, check=False, cwd=checkout, env=env).returncode


def main() -> None:
    """Run a suite in a network of its own."""
    assert __doc__
    parser = argparse.ArgumentParser(prog="python -m tools.suites", description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--pytest", default="", help="more arguments of pytest, as one text")
    parser.add_argument("--python", type=Path, required=True, help="of the suite's environment")
    parser.add_argument("--engine", choices=ENGINES, default="auto")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        sys.exit(run_suite(arguments))
    user, group = map(str, (os.getuid(), os.getgid()))
    again = (sys.executable, "-m", "tools.suites", "--inside", *sys.argv[1:])
    inside = ("sh", "-c", OWN_NETWORK, "sh", user, group, *again)
    os.execvp("unshare", ("unshare", "--map-root-user", "--net", *inside))


if __name__ == "__main__":
    main()

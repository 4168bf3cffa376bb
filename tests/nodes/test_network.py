"""Virtual nodes reach each other and the machine that runs them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tools.env.process import run
from tools.lab.image import build, default_recipe
from tools.lab.network import HOST, Network, address_of, device_argument
from tools.lab.uml import UserModeLinux

pytestmark = [pytest.mark.long, pytest.mark.machine("uml")]
_SERVE = "systemd-run --unit=web --working-directory=/srv python3 -m http.server 8000"
_WAIT = "until (echo > /dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.1; done"
_GET = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=20).read().decode())"


def test_nodes_and_the_host_reach_each_other(tmp_path: Path, suite: str) -> None:
    disk = build(default_recipe(suite))
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        nodes = []
        for number in range(2):
            network.add_tap(number)
            node = UserModeLinux(
                disk,
                tmp_path / str(number),
                memory_mib=512,
                more=(device_argument(number),),
                within=network.inside,
            )
            node.boot()
            stack.callback(node.cut_power)
            network.attach(node, number)
            script = f"echo node-{number} > /srv/who; {_SERVE} && {_WAIT}"
            assert node.run("bash", "-c", script).status == 0
            nodes.append(node)

        for own, other in ((0, 1), (1, 0)):
            url = f"http://{address_of(other)}:8000/who"
            assert nodes[own].run("python3", "-c", _GET, url).output.strip() == f"node-{other}"
            with network.entered():
                assert run("python3", "-c", _GET, url).strip() == f"node-{other}"
        reached = nodes[0].run("bash", "-c", f"echo > /dev/tcp/{HOST}/1")
        assert "Connection refused" in reached.output

"""deploy/guests on a real control plane: a guest joins with the rights of its pod, and no others.

The program runs beside the control plane instead of in its pod, with a token of the pod's account.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.node import WITHIN
from tests.cluster.objects import deployment
from tests.integration.node.machine import ROOT
from tools.control_plane.plane import ControlPlane
from tools.env.kubectl import kubectl
from tools.env.process import Daemon

pytestmark = pytest.mark.timeout(400)
BASE = ROOT / "deploy" / "guests"
IN_THE_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def test_a_guest_joins_and_is_given_pods(plane: ControlPlane, tmp_path: Path) -> None:
    def run(*arguments: str | Path) -> str:
        return kubectl("new").run(plane.admin, *arguments, timeout=120)

    objects: list[dict[str, Any]] = list(yaml.safe_load_all(run("kustomize", BASE)))
    (stateful,) = (each for each in objects if each["kind"] == "StatefulSet")
    stateful["spec"]["replicas"] = 0  # no node of the tests has its image
    rendered = tmp_path / "guests.json"
    rendered.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    run("apply", "-f", rendered)

    token, bootstrap = tmp_path / "token", tmp_path / "bootstrap.yaml"
    token.write_text(run("--namespace=guests", "create", "token", "guest"))
    kubeconfig = yaml.safe_load((BASE / "bootstrap.yaml").read_text())
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    assert cluster["certificate-authority"] == str(IN_THE_POD / "ca.crt")
    assert user == {"tokenFile": str(IN_THE_POD / "token")}
    url = f"https://{plane.address}:{plane.port}"
    cluster |= {"server": url, "certificate-authority": str(plane.authority.ca)}
    user["tokenFile"] = str(token)
    bootstrap.write_text(yaml.safe_dump(kubeconfig))

    guest = Daemon("guest", tmp_path)
    own = {"NODE_NAME": "guest-0", "STATE": str(tmp_path / "s"), "BOOTSTRAP": str(bootstrap)}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **own}
    guest.start([sys.executable, BASE / "guest.py"], environment)
    try:
        template = {
            "containers": [{"name": "c", "image": "none"}],
            "nodeSelector": {"guest": "true"},
            "tolerations": [{"key": "guest", "operator": "Exists"}],
        }
        web = tmp_path / "web.json"
        web.write_text(json.dumps(deployment("guested", 2, template)))
        run("apply", "-f", web)
        run("rollout", "status", "deployment/guested", WITHIN)
        run("delete", "-f", web, "--cascade=foreground", WITHIN)
    finally:
        guest.stop()
    assert "Traceback" not in guest.log.read_text()
    run("delete", "node/guest-0", "namespace/guests", WITHIN)
    run("delete", "clusterrole/kubeletpy-guest", "clusterrolebinding/kubeletpy-guest")

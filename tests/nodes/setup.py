"""The files that make a virtual node a Kubernetes node, as an administrator writes them (pure).

The unit, the agent's configuration and containerd's are those of ``deploy/``; what differs is named
here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tools.env.images import PAUSE

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
LIBRARY = "/opt/kubeletpy/lib"
"""Where the agent's packages are in the node."""
STATE = "/var/lib/lab"
"""Where the embedded API keeps its data."""
ADMIN = f"{STATE}/api/admin.kubeconfig"
CONFIG = "/etc/kubernetes/kubelet-config.yaml"
CONTAINERD_CONFIG = "/etc/containerd/config.toml"

PROGRAM = """\
#!/usr/bin/python3
from kubeletpy.cli.main import main
raise SystemExit(main())
"""
API_UNIT = f"""\
[Unit]
Description=An embedded API
Before=kubeletpy.service

[Service]
Type=notify
ExecStart=/usr/bin/python3 {LIBRARY}/guest_api.py {STATE}
Restart=always

[Install]
WantedBy=multi-user.target
"""
NETWORK = json.dumps(
    {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods0",
                "isGateway": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": "10.88.0.0/24"}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
)


def containerd_config(driver: str, generation: int = 2) -> str:
    """deploy's configuration of containerd, with our image of sandboxes and a cgroup driver."""
    text = (DEPLOY / f"containerd-config-v{generation}.toml").read_text()
    text = re.sub(r'(sandbox(_image)?) = ".*"', rf'\1 = "{PAUSE}"', text)
    return re.sub(
        r"SystemdCgroup = \w+", f"SystemdCgroup = {str(driver == 'systemd').lower()}", text
    )


def kubelet_config(driver: str, more: Mapping[str, Any]) -> str:
    """deploy's configuration of the agent, with a cgroup driver and further fields."""
    pki = f"{STATE}/api/pki"
    return json.dumps(
        {
            **yaml.safe_load((DEPLOY / "kubelet-config.yaml").read_text()),
            "cgroupDriver": driver,
            # the embedded API's own keys, for kubectl logs and exec
            "authentication": {"x509": {"clientCAFile": f"{pki}/ca.crt"}},
            "tlsCertFile": f"{pki}/kubelet-server.crt",
            "tlsPrivateKeyFile": f"{pki}/kubelet-server.key",
            **more,
        },
        indent=1,
    )

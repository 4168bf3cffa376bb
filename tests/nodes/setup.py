"""The files that make a virtual node a Kubernetes node, as an administrator writes them (pure).

The unit and the agent's configuration are those of ``deploy/``; what differs is named here.
:mod:`tools.lab.versions` has the files of containerd.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from tools.lab.versions import DEPLOY

LIBRARY = "/opt/kubeletpy/lib"
"""Where the agent's packages are in the node."""
STATE = "/var/lib/lab"
"""Where the embedded API keeps its data."""
ADMIN = f"{STATE}/api/admin.kubeconfig"
CONFIG = "/etc/kubernetes/kubelet-config.yaml"

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

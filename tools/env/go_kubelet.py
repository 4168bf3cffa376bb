"""How a Go kubelet is started beside others on one machine. Needs root."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.env.process import run
from tools.env.sweep import hierarchies


def prepare_root(root: Path, cgroup_root: str) -> None:
    """Make its root directory, from which mounts propagate, and its cgroup: it makes neither."""
    root.mkdir()
    run("mount", "--bind", root, root)
    run("mount", "--make-rshared", root)
    for hierarchy in hierarchies():
        (hierarchy / cgroup_root.lstrip("/")).mkdir(exist_ok=True)


def kubelet_command(
    program: Path, root: Path, *, kubeconfig: Path, config: Path, node_name: str
) -> Sequence[str | Path]:
    """The command line of a Go kubelet that keeps everything below ``root``."""
    return [
        program,
        f"--kubeconfig={kubeconfig}",
        f"--config={config}",
        f"--root-dir={root}",
        f"--cert-dir={root}/pki",
        f"--hostname-override={node_name}",
    ]

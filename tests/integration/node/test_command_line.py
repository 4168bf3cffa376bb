"""`kubeletpy run` started wrongly: every problem is printed, nothing runs, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.node.machine import Node

ROOT = Path(__file__).resolve().parents[3]
GOOD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


def start(*arguments: str) -> tuple[int, str]:
    """Run `kubeletpy`; returns its exit code and output."""
    done = subprocess.run(
        [sys.executable, "-m", "kubeletpy.cli.main", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


CASES = {
    "unknown-field": (
        {**GOOD, "syncFreqency": "10s", "maxPods": -1},
        ["syncFreqency", "syncFrequency", "maxPods"],
    ),
    "two-problems": (
        # what this machine does not fit is reported with them
        {**GOOD, "maxPods": -1, "healthzPort": 123456, "failCgroupV1": False},
        ["2 problems", "maxPods", "healthzPort"],
    ),
    "wrong-type": ({**GOOD, "maxPods": "many"}, ["maxPods", "many"]),
    "wrong-kind": ({**GOOD, "kind": "Deployment"}, ["Deployment", "KubeletConfiguration"]),
    "wrong-version": ({**GOOD, "apiVersion": "v7"}, ["v7"]),
    "a-list": ([], ["config.json"]),
    "no-yaml": ("{{{", ["config.json"]),
}


@pytest.mark.parametrize("name", list(CASES))
def test_a_bad_file(work_dir: Path, name: str) -> None:
    content, desired = CASES[name]
    file = work_dir / "config.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    code, stated = start("run", f"--config={file}")
    assert code == 1
    assert "Traceback" not in stated
    for text in desired:
        assert text in stated


@pytest.mark.parametrize(
    ("arguments", "code", "desired"),
    [
        (["run", "--config=/does/not/exist"], 1, "/does/not/exist"),
        (["run", "--nonsense"], 1, "--nonsense"),
        (["run", "--max-pods=many"], 1, "--max-pods"),
        (["run", "--kubeconfig=/does/not/exist"], 1, "/does/not/exist"),
        (["fly"], 2, "fly"),
        (["run", "--help"], 0, "--kubeconfig"),
        (["--help"], 0, "run"),
        (["version"], 0, "kubeletpy "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_flags(arguments: list[str], code: int, desired: str) -> None:
    got, stated = start(*arguments)
    assert (got, desired in stated, "Traceback" in stated) == (code, True, False), stated


def test_the_health_port_is_taken(node2: Node, work_dir: Path) -> None:
    """Another kubelet already runs."""
    file = work_dir / "config.json"
    file.write_text(json.dumps(node2.config()))
    kubeconfig = node2.api.endpoint.node_kubeconfig
    code, stated = start(
        "run",
        f"--config={file}",
        f"--kubeconfig={kubeconfig}",
        f"--root-dir={work_dir / 'root'}",
        f"--device-plugins-dir={work_dir / 'device-plugins'}",
        "--keep-kernel-settings",
    )
    assert code == 1
    assert "can't listen on " in stated
    assert "another port: kubeletpy run … --" in stated
    assert "Traceback" not in stated

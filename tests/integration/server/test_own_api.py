"""The node's own API beside pods and streams, called through the embedded API."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tools.env.process import CommandError


def test_status_flags_logs_and_profiles(node2: Node) -> None:
    def get(path: str) -> str:
        return node2.kubectl("get", "--raw", f"/api/v1/nodes/{node2.name}/proxy{path}")

    assert get("/healthz?verbose").splitlines()[:3] == ["[+]ping ok", "[+]log ok", "[+]syncloop ok"]
    assert get("/healthz/syncloop") == "ok"
    assert f"hostname-override={node2.name}\n" in get("/flagz")
    assert "Binary version: 1.37.0" in get("/statusz")
    names = {entry.name for entry in Path("/var/log").iterdir() if entry.is_file()}
    listed = get("/logs/")
    assert all(name in listed for name in names if name.isalnum())
    for way_out in ("/logs/../../etc/passwd", "/logs/%2e%2e/%2e%2e/etc/passwd"):
        with pytest.raises(CommandError):
            get(way_out)
    assert "SyncLoop.run" in get("/debug/pprof/goroutine")
    assert "MainThread" in get("/debug/pprof/threadcreate")


def test_streams_logs_and_scrapes_are_counted(node2: Node, namespace: str) -> None:
    def get(path: str) -> str:
        return node2.kubectl("get", "--raw", f"/api/v1/nodes/{node2.name}/proxy{path}")

    node2.apply(pod("says", container("main", f"echo hello; {FOREVER}")), namespace=namespace)
    uid = node2.wait_running(namespace, "says")["metadata"]["uid"]
    node2.kubectl("exec", "says", "--", "true", namespace=namespace)  # kubectl 1.36: a WebSocket
    get("/metrics/cadvisor")
    reported = get("/metrics")
    assert 'kubelet_websocket_streaming_requests_total{subresource="exec"} 1\n' in reported
    assert re.search(
        r'kubelet_http_requests_total\{[^}]*path="metrics/cadvisor"[^}]*\} 1\n', reported
    )
    named = f'container="main",namespace="{namespace}",pod="says",uid="{uid}"'
    used = re.search(rf"kubelet_container_log_filesystem_used_bytes\{{{named}\}} (\d+)\n", reported)
    assert used is not None, reported[-2000:]
    assert 0 < int(used[1]) < 100_000
    assert "\nprocess_start_time_seconds " in get("/metrics/probes")


def test_a_checkpoint_is_made_or_the_answer_has_the_reason(node2: Node, namespace: str) -> None:
    node2.apply(pod("still"), namespace=namespace)
    node2.wait_running(namespace, "still")
    base = f"/api/v1/nodes/{node2.name}/proxy/checkpoint/{namespace}"
    with pytest.raises(CommandError, match="could not find"):
        node2.kubectl("create", "--raw", f"{base}/still/other", "-f", "/dev/null")
    directory = node2.root_dir / "checkpoints"
    try:
        answer = node2.kubectl("create", "--raw", f"{base}/still/main", "-f", "/dev/null")
    except CommandError as error:
        assert f"checkpointing of {namespace}/still/main failed" in str(error)
    else:
        (made,) = directory.iterdir()
        assert str(made) in answer
        made.unlink()
    assert directory.stat().st_mode & 0o777 == 0o700

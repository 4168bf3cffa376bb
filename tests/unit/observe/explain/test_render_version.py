"""The Kubernetes version in a node's explanation."""

from __future__ import annotations

from typing import Any

from kubeletpy.observe.explain.render import version

FOUND: dict[str, Any] = {
    "running": "1.36",
    "source": "server",
    "why": "the API server is v1.36.3",
    "server": "v1.37.2",
    "restart": "restart the agent",
}


def test_both_versions_are_shown() -> None:
    assert version(FOUND) == (
        "\nKubernetes version\n  runs as 1.36: the API server is v1.36.3\n"
        "  API server: v1.37.2\n  restart the agent\n"
    )


def test_without_an_api_server() -> None:
    alone = {**FOUND, "source": "standalone", "server": "", "restart": ""}
    assert version(alone) == "\nKubernetes version\n  runs as 1.36: the API server is v1.36.3\n"
    assert "API server: unknown\n" in version({**FOUND, "server": "", "source": "oldest"})


def test_an_agent_of_an_earlier_release_reports_none() -> None:
    assert version(None) == ""

"""Requests are counted by the first part of their route."""

from __future__ import annotations

import pytest

from kubeletpy.server.routes import ROUTES


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("healthz", "healthz"),
        ("exec", "exec"),
        ("port_forward", "portForward"),
        ("stats_summary", "stats"),
        ("pprof", "debug"),
        ("metrics", "metrics"),
        ("cadvisor_metrics", "metrics/cadvisor"),
        ("resource_metrics", "metrics/resource"),
    ],
)
def test_folders(name: str, folder: str) -> None:
    assert next(route.folder for route in ROUTES if route.name == name) == folder

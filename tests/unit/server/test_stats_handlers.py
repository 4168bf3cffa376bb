"""Stats of the node over HTTP: access and formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.host.errors import NoThread
from kubeletpy.server.settings import AccessSettings
from tests.unit.server.helpers import Pki, Reviewer, make_view, serving

SHORT, WHOLE = '{"short":true}', '{"short":false}'


@pytest.mark.parametrize(
    ("path", "subresource", "text"),
    [
        ("/stats/summary", "stats", WHOLE),
        ("/stats/summary?only_cpu_and_memory=true", "stats", SHORT),
        ("/stats/summary?only_cpu_and_memory=1", "stats", WHOLE),
        ("/stats/summary?only_cpu_and_memory=true&only_cpu_and_memory=true", "stats", WHOLE),
        ("/metrics/cadvisor", "metrics", "a_container_metric 1\n"),
        ("/metrics/resource", "metrics", "a_resource_metric 1\n"),
        ("/metrics/slis", "metrics", "a_health_metric 1\n"),
    ],
)
async def test_authorized_clients_get_stats(
    path: str, subresource: str, text: str, pki: Pki, tmp_path: Path
) -> None:
    api = Reviewer()
    api.allowed = {("alice", "get", subresource)}
    async with serving(make_view(tmp_path), api, pki) as server:
        assert await server.request("GET", path, client=pki.client) == (200, text)
        assert (await server.request("POST", path, client=pki.client))[0] in (403, 405)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (
            NoThread(),
            (503, "no thread can be made: too many processes or threads on this machine\n"),
        ),
        (OSError(24, "Too many open files", "/etc/secret"), (503, "Too many open files\n")),
        (FileNotFoundError(2, "No such file", "/etc/secret"), (500, "internal error\n")),
        (ValueError("secret"), (500, "internal error\n")),
    ],
    ids=["threads", "descriptors", "a file", "a bug"],
)
async def test_errors_name_exhausted_resources_of_the_machine_only(
    error: Exception, answer: tuple[int, str], pki: Pki, tmp_path: Path
) -> None:
    async def broken() -> str:
        raise error

    view: Any = make_view(tmp_path)
    view.stats.resource_metrics = broken
    access = AccessSettings(anonymous=True, always_allow=True)
    async with serving(view, None, pki, access) as server:
        assert await server.request("GET", "/metrics/resource") == answer

"""Fixtures that run the client's tests with both protocols."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http2.certificates import Certificates
from tests.kit import api as api_server


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A server's certificate."""
    return Certificates.made(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def protocol(
    request: pytest.FixtureRequest, tls: Certificates, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Protocol of :func:`tests.kit.api.serving`; HTTP/2 by a server in front of it."""
    if request.param == "HTTP/2":
        monkeypatch.setattr(api_server, "FRONT", tls)
    yield request.param

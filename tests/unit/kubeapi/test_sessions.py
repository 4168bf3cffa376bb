"""Code that a session loads on demand, and the server attributes of spans."""

from __future__ import annotations

import errno
import importlib
from typing import Any

import pytest

from kubeletpy.kubeapi import errors, sessions, transport
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.protocol import PODS
from kubeletpy.kubeapi.transport import Attempt, TransportError
from tests.http2.certificates import Certificates
from tests.http2.server import Exchange, serving_http2
from tests.kit.api import answer, serving

POD = {"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}
HTTP1, HTTP2 = (f"kubeletpy.kubeapi.{each}" for each in ("http1", "http2"))


class Imports:
    """Test double for imports: raises the given errors in order, then succeeds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failures: Exception | None) -> None:
        self.requested: list[str] = []
        self._failures = list(failures)
        self._import = importlib.import_module
        monkeypatch.setattr(transport, "import_module", self)
        monkeypatch.setattr(transport, "_code", {})

    def __call__(self, name: str) -> Any:
        self.requested.append(name)
        if self._failures and (failure := self._failures.pop(0)) is not None:
            raise failure
        return self._import(name)


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.EMFILE, "Too many open files"),
        ImportError("x.so: cannot open shared object file: Too many open files"),
    ],
)
async def test_a_failed_import_is_a_failed_attempt(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    imports = Imports(monkeypatch, failure)
    async with serving(answer(POD)) as server:
        api = KubeClient(Connection(server.url), qps=0)
        with pytest.raises(errors.Unavailable, match=r"can't be loaded: .*Too many open files"):
            await api.get(PODS, "p", "n")
        assert await api.get(PODS, "p", "n") == POD
        assert await api.get(PODS, "p", "n") == POD
        await api.close()
    assert imports.requested == [HTTP1, HTTP1], "loaded once"


async def test_a_connection_whose_code_can_not_be_loaded_is_dropped(
    monkeypatch: pytest.MonkeyPatch, tls: Certificates
) -> None:
    async def found(exchange: Exchange) -> None:
        exchange.head(200, {"content-type": "application/json"})
        await exchange.write(b'{"kind": "Pod"}', last=True)

    imports = Imports(monkeypatch, OSError(errno.EMFILE, "Too many open files"))
    async with serving_http2(found, tls.server()) as server:
        api = KubeClient(Connection(server.url, tls.client()), qps=0)
        with pytest.raises(errors.Unavailable, match="can't be loaded"):
            await api.get(PODS, "p", "n")
        assert await api.get(PODS, "p", "n") == {"kind": "Pod"}
        assert server.accepted == 2
        await api.close()
    assert imports.requested == [HTTP2, HTTP2]


async def test_a_session_that_is_closed_meanwhile_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = sessions.Session(Connection("http://127.0.0.1:1"))

    async def loaded(name: str) -> Any:
        await session.close()
        return importlib.import_module(name)

    monkeypatch.setattr(sessions, "loaded", loaded)
    with pytest.raises(TransportError, match="the client is closed"):
        await session.request(Attempt("GET", "/", {}, None, 1, 1, False))
    assert session.idle


@pytest.mark.parametrize(
    ("host", "reported"),
    [
        ("https://10.0.0.1:6443", ("https://10.0.0.1:6443", "10.0.0.1", 6443)),
        ("https://api.example", ("https://api.example", "api.example", 443)),
        ("http://[::1]/", ("http://[::1]", "::1", 80)),
        ("https://u:p@api.example:6443/a/", ("https://api.example:6443/a", "api.example", 6443)),
    ],
)
def test_server_attributes_of_spans(host: str, reported: tuple[str, str, int]) -> None:
    assert sessions._server(host) == reported

"""The API server under test: any, by ``--kubeconfig``; else an embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.server import Embedded, Server

OPTION = "--kubeconfig"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option is known when tests/contract is named on the command line."""
    help_ = "an administrator's kubeconfig of the API server to test (an embedded one)"
    parser.addoption(OPTION, type=Path, help=help_)


@pytest.fixture(scope="session")
def kubeconfig(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The kubeconfig of the administrator."""
    supplied: Path | None = request.config.getoption(OPTION)
    if supplied is not None:
        yield supplied
        return
    embedded = Embedded(tmp_path_factory.mktemp("api"))
    yield embedded.kubeconfig
    embedded.close()


@pytest.fixture(scope="session")
def is_embedded(request: pytest.FixtureRequest) -> bool:
    """Whether the server is our own."""
    return request.config.getoption(OPTION) is None


@pytest.fixture
def server(kubeconfig: Path, tmp_path: Path) -> Iterator[Server]:
    """The server, with two new nodes."""
    made = Server(kubeconfig, tmp_path)
    yield made
    made.clear()

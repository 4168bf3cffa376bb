"""Requests to an API server ten times a second, and the longest time without an answer."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from tools.control_plane.plane import ControlPlane

EVERY_S = 0.1
PATH = "/api/v1/namespaces/kube-system"
"""An object that the API server reads from etcd for each request."""


class Answers:
    """When each answer came, in seconds since the epoch, and the failures between them."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.failures: list[str] = []

    def longest_gap(self, since: float = 0.0) -> float:
        """The longest time between two answers, in seconds, after a moment."""
        return max(two - one for one, two in pairwise(each for each in self.times if each >= since))


@contextmanager
def answers(plane: ControlPlane) -> Iterator[Answers]:
    """Send requests while in the block."""
    found, ended = Answers(), threading.Event()
    pki = plane.authority.directory
    tls = ssl.create_default_context(cafile=str(plane.authority.ca))
    tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    connection = http.client.HTTPSConnection("127.0.0.1", plane.port, timeout=10, context=tls)

    def request() -> None:
        while not ended.wait(EVERY_S):
            try:
                connection.request("GET", PATH)
                answer = connection.getresponse()
                answer.read()
                if answer.status != http.HTTPStatus.OK:
                    raise OSError(f"status {answer.status}")
                found.times.append(time.time())
            except (OSError, http.client.HTTPException) as error:
                found.failures.append(f"{time.time():.1f}: {error}")
                connection.close()

    requesting = threading.Thread(target=request)
    requesting.start()
    try:
        yield found
    finally:
        ended.set()
        requesting.join()
        with contextlib.suppress(OSError):
            connection.close()

"""Events of a watch of the API, each with the time at which it came."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from subprocess import Popen
from typing import Protocol

from kubeletpy.base.api.types import JSON


class HasKubectl(Protocol):
    """A cluster, or a part of it."""

    def kubectl_process(self, *arguments: str) -> AbstractContextManager[Popen[str]]:
        """kubectl as a process with pipes, which ends with the ``with``."""


@dataclass(frozen=True)
class Change:
    """One event of a watch.

    Attributes:
        at: seconds since the epoch, when it was received.
        kind: ADDED, MODIFIED or DELETED.
    """

    at: float
    kind: str
    item: JSON

    @property
    def name(self) -> str:
        """The object's name."""
        name: str = self.item["metadata"]["name"]
        return name


@contextmanager
def watched(node: HasKubectl, *what: str) -> Iterator[list[Change]]:
    """All events of ``kubectl get WHAT --watch`` until now, those of existing objects first.

    >>> with watched(node, "pods", "--selector=kind=rich") as changes:
    ...     switch(node)
    """
    changes: list[Change] = []
    arguments = ("get", *what, "--watch", "--output-watch-events", "--output=json")
    with node.kubectl_process(*arguments) as process:

        def collect() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if line.endswith("\n"):  # kubectl may be killed in the middle of one
                    event = json.loads(line)
                    changes.append(Change(time.time(), event["type"], event["object"]))

        collecting = threading.Thread(target=collect)
        collecting.start()
        try:
            yield changes
        finally:
            process.kill()
            collecting.join()

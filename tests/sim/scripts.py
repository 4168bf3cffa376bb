"""Scripts of simulated containers and images, by the image's name: ``host/behaviour:version``.

The host selects how the image comes to the node, the behaviour what its container does.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

LOCAL = "local.test"
"""On the node from the start."""
REMOTE = "remote.test"
"""Pulled within seconds."""
SLOW = "slow.test"
"""Takes half a minute."""
SECRET = "secret.test"
"""Needs the credentials below."""
MISSING = "missing.test"
"""In no registry."""

USERNAME, PASSWORD = "user", "pass"


@dataclass(frozen=True, slots=True)
class Script:
    """Behaviour of one container run. Seconds are of virtual time."""

    runs_for: float | None = None
    """None: until it is stopped."""
    exit_code: int = 0
    term_takes: float | None = 0.05
    """From SIGTERM to the end; None: the signal is ignored."""
    term_code: int = 0
    starts: bool = True
    """False: StartContainer fails."""


_SCRIPTS = {
    "run": Script(),
    "run143": Script(term_code=143),
    "stubborn": Script(term_takes=None),
    "slowstop": Script(term_takes=3.0),
    "instant": Script(0.0, 5),
    "done": Script(0.3, 0),
    "doneslow": Script(8.0, 0),
    "fail": Script(0.5, 3),
    "failslow": Script(12.0, 7),
    "badstart": Script(starts=False),
}
_FLAKY_FAILURES = 2
ALL = (*_SCRIPTS, "flaky", "flakyrun")


def behaviour(image: str) -> str:
    """The behaviour part of an image's name."""
    return image.rpartition("/")[2].partition(":")[0]


def host(image: str) -> str:
    """The host part of an image's name."""
    return image.partition("/")[0]


def script_of(image: str, earlier_runs: int) -> Script:
    """The script of a container of an image, after so many earlier runs in its pod.

    ``flaky`` fails twice, then succeeds; ``flakyrun`` fails twice, then runs on.
    """
    name = behaviour(image)
    if name in ("flaky", "flakyrun"):
        if earlier_runs < _FLAKY_FAILURES:
            return Script(1.0, 1)
        return Script(0.5, 0) if name == "flaky" else Script()
    return _SCRIPTS[name]


def runs_on(image: str) -> bool:
    """Whether containers of an image run until they are stopped, sooner or later."""
    return behaviour(image) in ("run", "run143", "stubborn", "slowstop", "flakyrun")


def image_id(image: str) -> str:
    """The runtime's id of an image."""
    return "sha256:" + hashlib.sha256(image.encode()).hexdigest()

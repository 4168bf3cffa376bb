"""The agent as tests start it, with watches that the API server ends after some seconds.

An agent's watches state how long they last, so that no setting of the API server shortens them.
"""

from __future__ import annotations

import sys
from typing import Any, cast

from kubeletpy.agent import eviction
from kubeletpy.cli.main import main
from kubeletpy.kubeapi import objects, reflector
from tests.integration.node import agent

LASTS_S = (3, 5)

if __name__ == "__main__":
    cast("Any", reflector.Reflector).watch_seconds = LASTS_S  # of all, whatever they were handed
    objects.SHORTEST_WATCH_S, objects.LONGEST_WATCH_S = LASTS_S
    eviction.SOON_S = agent.SOON_S
    sys.exit(main())

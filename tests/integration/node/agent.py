"""``kubeletpy`` as tests of whole nodes start it: what ended pods left is collected at once.

Each node waits for that at its end, and `SOON_S` would be most of this wait. When rounds are is
decided by tests/unit/agent/test_upkeep.py; that the agent collects everything, by each node here.
A first start waits longer for the API server's version: on a busy machine the agent would run as
the oldest one.
"""

from __future__ import annotations

import sys

from kubeletpy.agent import eviction
from kubeletpy.agent.launch import runtime
from kubeletpy.cli.main import main

COMMAND = (sys.executable, "-m", "tests.integration.node.agent")
SOON_S = 0.5
ANSWER_S = 60.0

if __name__ == "__main__":
    eviction.SOON_S = SOON_S
    runtime.ANSWER_S = ANSWER_S
    sys.exit(main())

"""The agent as tests start it; it requests the API server's version each second or two."""

from __future__ import annotations

import sys

from kubeletpy.agent import eviction
from kubeletpy.cli.main import main
from kubeletpy.node import server_version
from tests.integration.node import agent

CHECK_S = 1.0

if __name__ == "__main__":
    server_version.CHECK_S = CHECK_S
    eviction.SOON_S = agent.SOON_S
    sys.exit(main())

"""From settings to a running agent on this machine: real runtime, real API, real files.

The edge of the composition: reads the machine, connects, and supplies what is outside the agent
(:mod:`kubeletpy.agent.context`); :func:`kubeletpy.agent.build.build` does the rest.
"""

from kubeletpy.agent.errors import LaunchError
from kubeletpy.agent.launch.start import make_agent, run_agent

__all__ = ["LaunchError", "make_agent", "run_agent"]

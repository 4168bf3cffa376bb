"""From settings to a running agent on this machine: real runtime, real API, real files.

The edge of the composition: reads the machine, connects, and fills in the parts of
:class:`kubeletpy.agent.Agent`, whose business it is what they do together.
"""

from kubeletpy.launch.errors import LaunchError
from kubeletpy.launch.start import make_agent, run_agent

__all__ = ["LaunchError", "make_agent", "run_agent"]

"""The composition root: builds the rooms of one node agent and runs them as one task group.

:mod:`~kubeletpy.agent.agent` holds the rooms and what they tell each other, ``making`` knows what
each room is made of, ``health`` adds up how they are. Must never decide anything about a pod.
"""

from kubeletpy.agent.agent import Agent

__all__ = ["Agent"]

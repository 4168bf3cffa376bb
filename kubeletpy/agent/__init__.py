"""The composition root: builds the rooms of one node agent and runs them as one task group.

:mod:`~kubeletpy.agent.agent` runs the rooms, ``rooms`` makes them in their order, ``making`` knows
what each is made of, ``wires`` what they tell each other, ``health`` adds up how they are. Must
never decide anything about a pod.
"""

from kubeletpy.agent.agent import Agent

__all__ = ["Agent"]

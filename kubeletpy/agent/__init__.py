"""The composition root: one node agent, built from its rooms and run as one task group.

:mod:`~kubeletpy.agent.build` builds it, in one place and in order; ``outside`` is what it is given;
``room`` and ``signals`` wire it together; ``agent`` runs it. Must never decide anything about a
pod.
"""

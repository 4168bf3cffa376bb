"""The composition root: one node agent, made of its rooms and run as one task group.

:mod:`~kubeletpy.agent.build` makes it, in one place and in order; ``outside`` is what it is given;
``room`` and ``signals`` are what it is wired with; ``agent`` runs it. Must never decide anything
about a pod.
"""

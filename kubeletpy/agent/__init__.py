"""The composition root: one node agent, built from its components and run as one task group.

:mod:`~kubeletpy.agent.build` builds it: the ``core``, which runs pods, then the ``observers`` from
it. ``outside`` has its dependencies; ``component`` and ``signals`` wire it together; ``agent``
runs it.
Must never decide anything about a pod.
"""

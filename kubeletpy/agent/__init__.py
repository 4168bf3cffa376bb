"""The composition root: one node agent, built from its components and run as one task group.

:mod:`~kubeletpy.agent.build` builds it: the ``core``, which runs pods, then the ``observers`` from
it. The other modules each build the parts of one subject, called once by ``core``, ``observers`` or
``build``. ``context`` has their inputs, ``signals`` the circular connections; ``agent`` runs the
result. Nothing here decides anything about a pod.
"""

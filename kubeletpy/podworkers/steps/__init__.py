"""The steps of a pod's sync, one a file; :mod:`kubeletpy.agent.core` lists them in their order."""

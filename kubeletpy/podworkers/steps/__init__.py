"""The steps of a pod's sync; :mod:`kubeletpy.agent.core` lists them in their order."""

"""The steps of a pod's sync, one a file; :mod:`kubeletpy.agent.build` lists them in their order."""

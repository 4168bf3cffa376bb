"""Whether a node admits a pod, and which pods it preempts.

Pure: so is every module here.
"""

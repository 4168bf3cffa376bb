"""Pods that use more of the node than they may, or than it has: which are evicted, and why.

``decide`` computes what a round does next, from ``thresholds``, the observed ``signals`` and pods
that exceed a limit of ``local_storage``; ``ranking`` orders the pods; ``messages`` has the texts.
``keeper`` has it done. Must never end a critical pod.
"""

"""Pods that use more of the node than they may, or than it has: which are evicted, and why.

``decide`` says what a round does next, from ``thresholds``, the observed ``signals`` and pods that
exceed a limit of ``local_storage``; ``ranking`` says which pod is evicted first and ``words`` how
that is reported. ``keeper`` has it done. Must never end a critical pod.
"""

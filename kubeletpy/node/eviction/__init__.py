"""Pods that use more of the node than they may, or than it has: which are evicted, and why.

``decide`` computes what a round does next, from thresholds, observed signals and pods that exceed a
limit of their own; ``ranking`` orders the pods; ``report`` has the texts. ``keeper`` carries it
out. Must never end a critical pod.
"""

"""Whether a node admits a pod, and which pods it preempts.

Every module here is pure. ``checks`` has the values and each rule by itself, and ``handlers``
applies the rules in the kubelet's order.
"""

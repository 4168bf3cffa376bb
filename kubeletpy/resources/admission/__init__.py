"""Whether a node admits a pod, and which pods it preempts.

Every module here is pure. ``checks`` has the values and each rule by itself, ``handlers`` applies
the rules in the kubelet's order, and ``at_start`` judges all pods of a node together.
"""

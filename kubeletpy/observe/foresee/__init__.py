"""Predicts what this node would do with a pod, or with a change to one.

The decisions are those of the components that carry them out, called with the node as it is now.
``change``, ``faults``, ``model``, ``start`` and ``render`` are pure; ``foreseer`` queries the
components. Must never change, book, pull or write anything.
"""

"""Pods that take more of the node than they may, or than the node has: who has to go, and why.

``decide`` says what a node under pressure does next, from ``thresholds`` and what is seen of the
``signals``; ``ranking`` says which pod goes first and ``words`` how that is reported. Limits of
local storage are ``local_storage``'s. Keepers act. Must never end a critical pod.
"""

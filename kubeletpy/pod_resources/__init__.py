"""The pod resources API: which devices the containers of this node have, for programs on it.

``answers`` makes the messages (pure), ``server`` serves them on a socket. Source:
docs/reference/behaviour-resources.md, rw.
"""
